#include "checks/adapter/loader.h"

#include <fmt/format.h>

#include <stdexcept>

#include "checks/adapter/llama_adapter.h"
#include "checks/compare.h"
#include "checks/scratch_folder.h"
#include "oracle/safetensors.h"

namespace checks {
namespace {

using std::runtime_error;
namespace fs = std::filesystem;

const std::string kModel = "language_model.model.";

// a(k, i), b(o, k)
template <class A, class B>
std::vector<double> product(std::int64_t rank, Frozen size, double scale, const A& a, const B& b) {
  std::vector<double> delta(static_cast<std::size_t>(size.out * size.in));
  for (std::int64_t o = 0; o < size.out; ++o) {
    for (std::int64_t i = 0; i < size.in; ++i) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < rank; ++k) sum += b(o, k) * a(k, i);
      delta[static_cast<std::size_t>(o * size.in + i)] = scale * sum;
    }
  }
  return delta;
}

double peft_scale(double alpha, std::int64_t rank) {
  return static_cast<float>(alpha / static_cast<double>(rank));
}

// "0.18.1" -> 18001; for the one comparison that is wanted.
int version_number(const std::string& version) {
  int major = 0, minor = 0, patch = 0;
  std::sscanf(version.c_str(), "%d.%d.%d", &major, &minor, &patch);
  return major * 1'000'000 + minor * 1'000 + patch;
}

// Module paths of "layers.N.TARGET" by what the checkpoint has.
std::vector<std::string> paths_of(const std::string& stem, const FrozenMatrices& frozen) {
  static const std::map<std::string, std::vector<std::string>> kTails = {
      {"q", {"self_attn.q_proj", "self_attn.q_b_proj"}},
      {"v", {"self_attn.v_proj", "self_attn.kv_b_proj"}},
      {"dense_gate", {"mlp.gate_proj"}},
      {"dense_up", {"mlp.up_proj"}},
      {"dense_down", {"mlp.down_proj"}},
      {"shared_gate", {"block_sparse_moe.shared_experts.gate_proj"}},
      {"shared_up", {"block_sparse_moe.shared_experts.up_proj"}},
      {"shared_down", {"block_sparse_moe.shared_experts.down_proj"}}};
  static const std::map<std::string, std::string> kExperts = {
      {"expert_gate", "w1"}, {"expert_up", "w3"}, {"expert_down", "w2"}};
  const std::size_t dot = stem.rfind('.');
  const std::string layer = kModel + stem.substr(0, dot) + '.', target = stem.substr(dot + 1);
  std::vector<std::string> paths;
  if (const auto expert = kExperts.find(target); expert != kExperts.end()) {
    for (int e = 0;; ++e) {
      paths.push_back(fmt::format("{}block_sparse_moe.experts.{}.{}", layer, e, expert->second));
      if (frozen.contains(paths.back())) continue;
      paths.pop_back();
      break;
    }
  } else {
    for (const std::string& tail : kTails.at(target)) {
      if (frozen.contains(layer + tail)) paths.push_back(layer + tail);
    }
  }
  if (paths.empty()) throw runtime_error(stem + ": stands for no matrix");
  return paths;
}

}  // namespace

FrozenMatrices frozen_matrices(const fs::path& checkpoint) {
  FrozenMatrices matrices;
  const oracle::SafeTensors tensors(checkpoint);
  for (const auto& [name, info] : tensors.tensors()) {
    for (const auto& [end, per_byte] : {std::pair{".weight", 1}, {".weight_packed", 2}}) {
      if (!name.ends_with(end) || info.shape.size() != 2) continue;
      matrices[name.substr(0, name.size() - std::string(end).size())] = {info.shape[0],
                                                                         per_byte * info.shape[1]};
    }
  }
  return matrices;
}

Deltas native_deltas(const fs::path& adapter, const FrozenMatrices& frozen) {
  const oracle::SafeTensors file(adapter);
  const std::int64_t rank = std::stoll(file.metadata().at("r"));
  const double scale = peft_scale(std::stod(file.metadata().at("alpha")), rank);
  Deltas deltas;
  for (const auto& [name, info] : file.tensors()) {
    if (!name.ends_with(".lora_A")) continue;
    const std::string stem = name.substr(0, name.size() - 7);
    const std::vector<double> a = file.load(name), b = file.load(stem + ".lora_B");
    const std::vector<std::string> paths = paths_of(stem, frozen);
    const Frozen size = frozen.at(paths[0]);
    const auto delta = product(
        rank, size, scale, [&](auto k, auto i) { return a.at(k * size.in + i); },
        [&](auto o, auto k) { return b.at(o * rank + k); });
    for (const std::string& path : paths) deltas[path] = delta;
  }
  return deltas;
}

Deltas peft_deltas(const fs::path& folder, const FrozenMatrices& frozen, std::string version) {
  const nlohmann::json config = nlohmann::json::parse(read_bytes(folder / "adapter_config.json"));
  const std::int64_t r = config.at("r");
  const double scale = peft_scale(config.at("lora_alpha"), r);
  if (version.empty()) version = config.value("peft_version", "");
  const oracle::SafeTensors file(folder / "adapter_model.safetensors");
  const std::string prefix = "base_model.model.", end = ".lora_A.weight";
  Deltas deltas;
  for (const auto& [name, info] : file.tensors()) {
    if (!name.ends_with(end)) continue;
    const std::string path = name.substr(prefix.size(), name.size() - prefix.size() - end.size());
    const auto& b_info = file.info(prefix + path + ".lora_B.weight");
    const std::vector<double> a = file.load(name), b = file.load(prefix + path + ".lora_B.weight");
    if (const auto found = frozen.find(path); found != frozen.end()) {
      const Frozen size = found->second;
      if (info.shape != std::vector{r, size.in} || b_info.shape != std::vector{size.out, r}) {
        throw runtime_error(path + ": shape");
      }
      deltas[path] = product(
          r, size, scale, [&](auto k, auto i) { return a[k * size.in + i]; },
          [&](auto o, auto k) { return b[o * r + k]; });
      continue;
    }
    // PARENT.w1 for all PARENT.E.w1
    const std::size_t dot = path.rfind('.');
    std::int64_t experts = 0;
    const auto expert = [&](std::int64_t e) {
      return fmt::format("{}.{}{}", path.substr(0, dot), e, path.substr(dot));
    };
    while (frozen.contains(expert(experts))) ++experts;
    if (experts == 0) throw runtime_error(path + ": no such module");
    const Frozen size = frozen.at(expert(0));
    for (std::int64_t e = 0; e < experts; ++e) {
      std::vector<double>& delta = deltas[expert(e)];
      if (info.shape.size() == 3) {
        if (info.shape != std::vector{std::int64_t{1}, r, size.in} ||
            b_info.shape != std::vector{std::int64_t{1}, size.out, r}) {
          throw runtime_error(path + ": shape");
        }
        delta = product(
            r, size, scale, [&](auto k, auto i) { return a[k * size.in + i]; },
            [&](auto o, auto k) { return b[o * r + k]; });
        continue;
      }
      // einsum over lora_B as [y,r,E] and lora_A as [E,r,x]; the result is the parameter's [E,.,.]
      // with y in front from 0.19.1 on, with x in front before.
      const bool swapped = version_number(version) >= 19'001;
      const std::int64_t x = swapped ? size.in : size.out, y = swapped ? size.out : size.in;
      if (info.shape != std::vector{experts * r, x} ||
          b_info.shape != std::vector{y, r * experts}) {
        throw runtime_error(path + ": shape");
      }
      const auto lora_a = [&](std::int64_t k, std::int64_t i) { return a[(e * r + k) * x + i]; };
      const auto lora_b = [&](std::int64_t o, std::int64_t k) {
        return b[o * r * experts + k * experts + e];
      };
      delta = swapped ? product(r, size, scale, lora_a, lora_b)
                      : product(
                            r, size, scale, [&](auto k, auto i) { return lora_b(i, k); },
                            [&](auto o, auto k) { return lora_a(k, o); });
    }
  }
  return deltas;
}

Deltas llama_deltas(const fs::path& path) {
  const LlamaAdapter adapter = read_llama_adapter(read_bytes(path));
  Deltas deltas;
  for (const auto& [name, pair] : adapter.pairs) {
    const LlamaTensor &a = pair.a, &b = pair.b;
    // ggml: y = mul_mat(b, mul_mat(a, x)); ne[0] is contracted, ne[2] of 1 serves every group.
    const std::int64_t rank = b.ne[0], groups = std::max(a.ne[2], b.ne[2]);
    const double scale = adapter.alpha / static_cast<float>(rank);
    std::vector<double>& all = deltas[name];
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t ga = a.ne[2] == 1 ? 0 : g, gb = b.ne[2] == 1 ? 0 : g;
      const auto one = product(
          rank, {b.ne[1], a.ne[0]}, scale,
          [&](auto k, auto i) { return a.values.at((ga * a.ne[1] + k) * a.ne[0] + i); },
          [&](auto o, auto k) { return b.values.at((gb * b.ne[1] + o) * b.ne[0] + k); });
      all.insert(all.end(), one.begin(), one.end());
    }
  }
  return deltas;
}

Deltas as_llama(const Deltas& deltas, const FrozenMatrices& frozen, std::int64_t heads,
                std::int64_t key_rows) {
  static const std::map<std::string, std::string> kNames = {
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.q_b_proj", "attn_q_b"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"block_sparse_moe.shared_experts.gate_proj", "ffn_gate_shexp"},
      {"block_sparse_moe.shared_experts.up_proj", "ffn_up_shexp"},
      {"block_sparse_moe.shared_experts.down_proj", "ffn_down_shexp"}};
  static const std::map<std::string, std::string> kExperts = {
      {"w1", "ffn_gate_exps"}, {"w3", "ffn_up_exps"}, {"w2", "ffn_down_exps"}};
  Deltas out;
  for (const auto& [path, delta] : deltas) {
    int layer = 0, at = 0;
    std::sscanf(path.c_str(), "language_model.model.layers.%d.%n", &layer, &at);
    const std::string tail = path.substr(static_cast<std::size_t>(at));
    const auto blk = [&](const std::string& name) {
      return fmt::format("blk.{}.{}.weight", layer, name);
    };
    int expert = 0, end = 0;
    if (std::sscanf(tail.c_str(), "block_sparse_moe.experts.%d.%n", &expert, &end) == 1) {
      std::vector<double>& stack = out[blk(kExperts.at(tail.substr(end)))];
      stack.resize(std::max(stack.size(), (expert + 1) * delta.size()));
      std::copy(delta.begin(), delta.end(),
                stack.begin() + static_cast<std::ptrdiff_t>(expert * delta.size()));
    } else if (tail == "self_attn.kv_b_proj") {
      const Frozen size = frozen.at(path);
      const std::int64_t head = size.out / heads;
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto row = [&](std::int64_t o) { return delta.begin() + (h * head + o) * size.in; };
        for (std::int64_t i = 0; i < size.in; ++i) {
          for (std::int64_t o = 0; o < key_rows; ++o) {
            out[blk("attn_k_b")].push_back(row(o)[i]);
          }
        }
        for (std::int64_t o = key_rows; o < head; ++o) {
          auto& values = out[blk("attn_v_b")];
          values.insert(values.end(), row(o), row(o) + size.in);
        }
      }
    } else {
      out[blk(kNames.at(tail))] = delta;
    }
  }
  return out;
}

std::string difference(const Deltas& got, const Deltas& want) {
  if (want.empty()) return "nothing to compare with";
  for (const auto& [name, delta] : got) {
    if (!want.contains(name)) return name + ": a change that is not wanted";
  }
  for (const auto& [name, delta] : want) {
    const auto found = got.find(name);
    if (found == got.end()) return name + ": no change";
    // The same products of the same floats, summed in the same order: no rounding to allow for.
    const auto same = compare(found->second, delta, std::vector<double>(delta.size(), 0.0));
    if (!same) return name + ": " + same.why;
  }
  return "";
}

}  // namespace checks
