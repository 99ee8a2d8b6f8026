#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/train/trainer.h"

namespace checks {

// Just enough of a configuration for an adapter set: two layers, all widths different.
inline engine::model::Config toy_config() {
  engine::model::Config config;
  config.hidden = 12;
  config.layers = 2;
  config.vocabulary = 50;
  config.kda_heads = 2;
  config.kda_width = 7;
  config.mla_heads = 2;
  config.q_lora_rank = 5;
  config.kv_lora_rank = 6;
  config.nope_width = 4;
  config.rope_width = 2;
  config.value_width = 3;
  config.experts = 4;
  config.chosen = 2;
  config.shared_experts = 1;
  config.latent = 10;
  config.inner = 8;
  config.dense_layers = 1;
  config.dense_inner = 9;
  config.block = 1;
  config.is_mla = {false, true};
  return config;
}

// Instead of a model: a loss per trained token that depends on token, target and every adapter,
//   l_t = sum_i (theta_i - c(t, i))^2 / 2n,
// its mean over the trained tokens, and the gradient of n times that. Token-weighted, like a model.
inline engine::model::SweepResult toy_sweep(const engine::model::Batch& batch,
                                            engine::model::AdapterSet& adapters,
                                            const engine::model::SweepHooks& hooks) {
  engine::model::SweepResult result;
  result.trained = batch.trained();
  result.distinct_experts = {0, 3};
  if (hooks.progress) hooks.progress("forward", 0);
  double loss = 0.0;
  std::int64_t parameters = 0;
  for (const auto& tensor : adapters.tensors()) {
    parameters += static_cast<std::int64_t>(tensor.values.size());
  }
  for (const auto& tensor : adapters.tensors()) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      double gradient = 0.0;
      for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
        if (batch.targets[t] < 0) continue;
        const double wanted =
            0.01 * batch.tokens[t] - 0.02 * batch.targets[t] + 0.001 * static_cast<double>(i % 7);
        const double off = tensor.values[i] - wanted;
        loss += off * off / (2.0 * static_cast<double>(parameters));
        gradient += off;
      }
      tensor.gradient[i] += static_cast<float>(gradient / static_cast<double>(result.trained));
    }
  }
  result.loss = loss / static_cast<double>(result.trained);
  if (hooks.progress) hooks.progress("backward", 0);
  return result;
}

// The toy's l_t without a gradient.
inline engine::model::SweepResult toy_forward(const engine::model::Batch& batch,
                                              const engine::model::AdapterSet& adapters,
                                              const engine::model::SweepHooks& hooks) {
  engine::model::SweepResult result;
  result.trained = batch.trained();
  result.nll.assign(batch.tokens.size(), 0.0);
  for (std::size_t t = 0; t < batch.tokens.size(); ++t) {
    if (batch.targets[t] < 0) continue;
    for (const auto& tensor : adapters.tensors()) {
      for (const float value : tensor.values) {
        const double off = value - 0.01 * batch.tokens[t] + 0.02 * batch.targets[t];
        result.nll[t] += off * off / static_cast<double>(adapters.parameters());
      }
    }
  }
  if (hooks.progress) hooks.progress("forward", 0);
  return result;
}

inline engine::train::SweepFunctions toy_functions() {
  return {toy_sweep, [](engine::train::Timing& timing) { timing.bytes_read = 1; }, toy_forward};
}

// Seven steps over three sequences, of which the third is too short to keep a target behind
// mask_first.
inline engine::train::Job toy_job(const std::filesystem::path& run) {
  engine::train::Job job;
  job.run = run;
  job.settings.schedule = {1e-2, 1e-4, 2, 7};
  job.settings.adapter = {3, 6.0, {"q", "v", "dense_down", "expert_gate"}};
  job.settings.mask_first = 3;
  job.settings.checkpoint_every = 3;
  job.settings.seed = 11;
  job.sequence_names = {"a", "b", "c"};
  job.sequences = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10}, {11, 12, 13}};
  job.identity.config_sha256 = std::string(64, 'c');
  job.identity.headers_sha256 = std::string(64, 'd');
  return job;
}

// Runs a job to its end, or until `sweep` throws or `stop` says yes; whether it came to its end.
inline bool run_toy(engine::train::Job job, engine::train::SweepFunctions sweep = toy_functions(),
                    engine::train::Observer observer = {}, const std::function<bool()>& stop = {},
                    const std::filesystem::path& scratch = {}) {
  engine::base::RamBudget budget(1 << 20);
  engine::train::OpenRun run = engine::train::open_run(std::move(job));
  engine::model::AdapterSet adapters(toy_config(), run.job.settings.adapter, budget, scratch);
  return engine::train::Trainer(std::move(run), adapters, budget, std::move(sweep),
                                std::move(observer))
      .run(stop);
}

// What must be equal, byte for byte, however a run came about.
inline std::vector<std::pair<std::string, std::string>> reproducible(
    const std::filesystem::path& run) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const char* name : {"log.jsonl", "adapter.safetensors"}) {
    all.emplace_back(name, read_bytes(run / name));
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run / "checkpoints")) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    all.emplace_back(std::filesystem::relative(file, run).string(), read_bytes(file));
  }
  return all;
}

struct Killed {};

// The toy model, cut off inside its n-th sweep (counted from 1).
inline engine::train::SweepFunctions dies_in(int n) {
  engine::train::SweepFunctions functions = toy_functions();
  const auto count = std::make_shared<int>(0);
  functions.forward_backward = [count, n](const engine::model::Batch& batch,
                                          engine::model::AdapterSet& adapters,
                                          const engine::model::SweepHooks& hooks) {
    const engine::model::SweepResult result = toy_sweep(batch, adapters, hooks);
    if (++*count == n) throw Killed();
    return result;
  };
  return functions;
}

// The message of the Error that `action` throws; empty if it throws none.
inline std::string why_refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const engine::base::Error& error) {
    return error.what();
  }
  return "";
}

inline std::vector<nlohmann::json> log_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(run / "log.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline std::vector<nlohmann::json> phase(const std::vector<nlohmann::json>& lines,
                                         const char* name) {
  std::vector<nlohmann::json> found;
  for (const auto& line : lines) {
    if (line.at("phase") == name) found.push_back(line);
  }
  return found;
}

}  // namespace checks
