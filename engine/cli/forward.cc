#include "engine/cli/forward.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/sha256.h"
#include "engine/cli/common.h"
#include "engine/data/ids.h"
#include "engine/model/trace.h"
#include "engine/store/dump.h"
#include "engine/store/matrix_spool.h"

namespace engine::cli {
namespace {

struct ForwardOptions {
  std::string model, ids, adapter, dump;
  bool foreign_adapter = false;
  bool json = false;
  bool strict = false;
  MachineOptions machine;
};

// All n ids are run; the first n-1 predictions have a target.
model::Batch batch_of(const std::vector<std::int32_t>& ids) {
  model::Batch batch;
  batch.tokens = ids;
  batch.targets.assign(ids.begin() + 1, ids.end());
  batch.targets.push_back(-1);
  batch.documents = {0, batch.size()};
  return batch;
}

// Writes what the trace holds under the names of the dumps, layer NNN behind, and empties it.
class LayerDump {
 public:
  LayerDump(const std::filesystem::path& path, const model::Batch& batch,
            const model::Config& config)
      : writer_(path),
        tokens_(batch.size()),
        last_layer_(fmt::format("h_layer_{:03}", config.layers - 1)) {
    writer_.attribute("ids", fmt::format("{}", fmt::join(batch.tokens, ",")));
    writer_.attribute("config_sha256", config.sha256);
  }

  void flush(model::Trace& trace) {
    find_first_not_finite(trace);
    for (const auto& [name, values] : trace.values) write(dump_name(name), values);
    for (const auto& [layer, index] : trace.route_index) {
      writer_.write(fmt::format("route_idx_{:03}", layer), tokens_,
                    static_cast<std::int64_t>(index.size()) / tokens_, index);
    }
    for (const auto& [layer, gap] : trace.gap) write(fmt::format("gap_{:03}", layer), gap);
    trace = {};
  }

  void logits(const store::MatrixSpool& matrix) { writer_.write("logits", matrix); }
  void commit() { writer_.commit(); }

  // Where the residual first was not finite; empty: nowhere.
  const std::string& not_finite() const { return not_finite_; }

 private:
  // A flush holds what one layer saw, the last one also what follows the layers: in the order of the
  // walk, which is not that of the names.
  void find_first_not_finite(const model::Trace& trace) {
    for (const auto& [name, values] : trace.values) {
      if (!name.starts_with("h_in.")) continue;
      const std::string layer = name.substr(5);
      look(layer == "0" ? "the embedding" : "what enters layer " + layer, values);
    }
    for (const char* name : {"h_out", "final_res", "final_norm"}) {
      const auto found = trace.values.find(name);
      if (found != trace.values.end()) look(name, found->second);
    }
  }

  void look(const std::string& what, const std::vector<float>& values) {
    if (!not_finite_.empty()) return;
    const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
    if (bad == values.end()) return;
    const std::int64_t width = static_cast<std::int64_t>(values.size()) / tokens_;
    not_finite_ = fmt::format("{}, token {}", what, (bad - values.begin()) / width);
  }

  // "attn_in.3" -> "attn_in_003". The residual after layer n is what enters n + 1; the last is
  // "h_out".
  static std::string dump_name(const std::string& name) {
    const std::size_t point = name.find('.');
    if (point == std::string::npos) return name;
    const int layer = std::stoi(name.substr(point + 1));
    const std::string kind = name.substr(0, point);
    if (kind == "h_in") return layer == 0 ? "" : fmt::format("h_layer_{:03}", layer - 1);
    return fmt::format("{}_{:03}", kind, layer);
  }

  void write(const std::string& name, const std::vector<float>& values) {
    if (name.empty()) return;
    writer_.write(name == "h_out" ? last_layer_ : name, tokens_,
                  static_cast<std::int64_t>(values.size()) / tokens_,
                  std::span<const float>(values));
  }

  store::DumpWriter writer_;
  std::int64_t tokens_;
  std::string last_layer_;
  std::string not_finite_;
};

struct Logits {
  std::string sha256;  // of [n,V] float32, row-major
  std::int64_t argmax_last = 0;
  std::int64_t first_not_finite = -1;  // row; -1: none
};

Logits digest(const store::MatrixSpool& matrix) {
  base::Sha256 hash;
  Logits result;
  std::vector<float> row(static_cast<std::size_t>(matrix.cols()));
  for (std::int64_t t = 0; t < matrix.rows(); ++t) {
    matrix.read_row(t, row);
    hash.update_values(std::span<const float>(row));
    const bool finite = std::ranges::all_of(row, [](float x) { return std::isfinite(x); });
    if (!finite && result.first_not_finite < 0) result.first_not_finite = t;
  }
  // The lowest id on ties.
  result.argmax_last = std::max_element(row.begin(), row.end()) - row.begin();
  result.sha256 = hash.hex();
  return result;
}

void report(const ForwardOptions& options, const model::Config& config, const model::Model& model,
            const model::SweepResult& result, const Logits& logits) {
  if (options.json) {
    nlohmann::ordered_json out;
    out["tokens"] = result.nll.size();
    out["trained"] = result.trained;
    out["loss"] = std::isfinite(result.loss) ? nlohmann::ordered_json(result.loss) : nullptr;
    out["logits_sha256"] = logits.sha256;
    out["argmax_last"] = logits.argmax_last;
    out["bytes_read"] = result.bytes_read;
    out["bytes_from_pack"] = model.shards().bytes_from_copy();
    out["distinct_experts"] = result.distinct_experts;
    out["smallest_gap"] = result.smallest_gap;
    out["nan_groups"] = result.nan_groups;
    out["nan_groups_with_codes"] = result.nan_groups_with_codes;
    out["peak_rss_bytes"] = base::peak_rss_bytes();
    out["config_sha256"] = config.sha256;
    say_json(out.dump() + '\n');
    return;
  }
  say("tokens             {}\n", result.nll.size());
  if (result.trained > 0) {
    say("loss               {:.9f} nats a token over {} predictions\n", result.loss,
        result.trained);
  } else {
    say("loss               none: a single token predicts nothing that is known\n");
  }
  say("logits SHA-256     {}\n", logits.sha256);
  say("argmax, last row   {}\n", logits.argmax_last);
  say("bytes read         {} ({})\n", result.bytes_read, how_read(model, options.machine));
  say("distinct experts   {}\n", fmt::join(result.distinct_experts, " "));
  if (result.nan_groups > 0) {
    say("scale byte 255     {} groups, {} of them with non-zero codes, taken as zero\n",
        result.nan_groups, result.nan_groups_with_codes);
  }
  say("peak RSS           {}\n", base::format_bytes(base::peak_rss_bytes()));
}

// A loss that is no number is no result. Rows see only rows before them, so the first row with such
// a logit names the token; the layer is known where every layer was looked at.
void require_finite(const model::SweepResult& result, const Logits& logits, const LayerDump* dump) {
  if (logits.first_not_finite < 0 && (result.trained == 0 || std::isfinite(result.loss))) return;
  std::string where = "--dump finds the layer";
  if (dump != nullptr) {
    where = "first in " + (dump->not_finite().empty() ? "the logits" : dump->not_finite());
  }
  throw base::Error("the result is not finite: loss {}, logits from token {} on ({})", result.loss,
                    logits.first_not_finite, where);
}

void run(const ForwardOptions& options) {
  apply_machine_options(options.machine);
  const OpenModel open = open_model(options.model, options.machine, options.strict);
  const model::Config& config = open.model->config();
  const std::vector<std::int32_t> ids =
      data::read_ids(options.ids, config.vocabulary, open.budget.get());
  if (ids.empty()) throw base::Error("{}: holds no token ids", options.ids);
  const model::Batch batch = batch_of(ids);
  open.model->require_budget(batch.documents, nullptr, false);
  std::unique_ptr<model::AdapterSet> adapters;
  if (!options.adapter.empty()) {
    adapters = open_adapter(options.adapter, *open.model, options.foreign_adapter, *open.budget,
                            model::Gradients::kNone);
    open.model->require_budget(batch.documents, adapters.get(), false);
  }

  store::MatrixSpool matrix(scratch_folder(options.machine), batch.size(), config.vocabulary);
  std::optional<LayerDump> dump;
  model::Trace trace;
  model::SweepHooks hooks;
  hooks.logits = [&](std::int64_t first, std::int64_t count, std::span<const float> band) {
    matrix.write_columns(first, count, band);
  };
  if (!options.dump.empty()) {
    dump.emplace(options.dump, batch, config);
    hooks.trace = &trace;
    hooks.progress = [&](std::string_view, std::int64_t) { dump->flush(trace); };
  }
  const model::SweepResult result = open.model->forward(batch, adapters.get(), hooks);
  if (dump) {
    dump->flush(trace);
    dump->logits(matrix);
    dump->commit();
  }
  const Logits logits = digest(matrix);
  report(options, config, *open.model, result, logits);
  require_finite(result, logits, dump ? &*dump : nullptr);
}

}  // namespace

void add_forward_command(CLI::App& app) {
  auto options = std::make_shared<ForwardOptions>();
  CLI::App& command = *app.add_subcommand(
      "forward", "run a checkpoint over one sequence of token ids and print loss and digests");
  command.add_option("--model", options->model, "checkpoint folder")->required();
  command.add_option("--ids", options->ids, "file of token ids, comma- or space-separated")
      ->required();
  command.add_option("--adapter", options->adapter, "adapter file, or a folder that holds one")
      ->check(refuse_empty);
  command.add_flag("--foreign-adapter", options->foreign_adapter, kForeignAdapter);
  command
      .add_option("--dump", options->dump,
                  "write every layer's values to an HDF5 file (.h5) or a folder of raw files")
      ->check(refuse_empty);
  command.add_flag("--json", options->json, "print one JSON object");
  command.add_flag("--strict", options->strict, "refuse E8M0 scale bytes of 255");
  add_machine_options(command, options->machine);
  add_pack_option(command, options->machine);
  command.callback([options] { run(*options); });
}

}  // namespace engine::cli
