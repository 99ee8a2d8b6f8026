#include "engine/cli/adapter_modules.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/model/adapter_set.h"

namespace engine::cli {
namespace {

using model::Target;

// Folder and name of the projection, below "layers.N.".
std::pair<const char*, const char*> place_of(Target target, bool mla) {
  switch (target) {
    case Target::kQ:
      return {"self_attn", mla ? "q_b_proj" : "q_proj"};
    case Target::kV:
      return {"self_attn", mla ? "kv_b_proj" : "v_proj"};
    case Target::kDenseGate:
      return {"mlp", "gate_proj"};
    case Target::kDenseUp:
      return {"mlp", "up_proj"};
    case Target::kDenseDown:
      return {"mlp", "down_proj"};
    case Target::kSharedGate:
      return {"block_sparse_moe.shared_experts", "gate_proj"};
    case Target::kSharedUp:
      return {"block_sparse_moe.shared_experts", "up_proj"};
    case Target::kSharedDown:
      return {"block_sparse_moe.shared_experts", "down_proj"};
    case Target::kExpertGate:
      return {"block_sparse_moe.experts", "w1"};
    case Target::kExpertUp:
      return {"block_sparse_moe.experts", "w3"};
    case Target::kExpertDown:
      return {"block_sparse_moe.experts", "w2"};
  }
  return {};
}

}  // namespace

AdapterModules::AdapterModules(const model::Config& config, const store::ShardReader& shards) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const bool mla = config.is_mla[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; i < model::kTargetNames.size(); ++i) {
      const auto target = static_cast<Target>(i);
      const model::AdapterWidths widths = model::adapter_widths(config, layer, target);
      if (widths.in == 0) continue;
      const auto [parent, leaf] = place_of(target, mla);
      adapter::Module module;
      module.layer = layer;
      module.target = model::kTargetNames[i];
      module.parent = fmt::format("language_model.model.layers.{}.{}", layer, parent);
      module.leaf = leaf;
      module.in = widths.in;
      module.out = widths.out;
      if (target >= Target::kExpertGate) module.experts = config.experts;
      if (mla && target == Target::kV) {
        module.heads = config.mla_heads;
        module.key_rows = config.nope_width;
      }
      modules_.push_back(std::move(module));
    }
  }
  for (const store::TensorEntry& entry : shards.entries()) {
    for (const std::string_view end : {".weight", ".weight_packed"}) {
      if (!entry.name.ends_with(end)) continue;
      names_.emplace_back(entry.name.substr(0, entry.name.size() - end.size()));
    }
  }
}

std::vector<adapter::Module> AdapterModules::of(const std::vector<std::string>& targets) const {
  std::vector<adapter::Module> some;
  for (const adapter::Module& module : modules_) {
    if (std::ranges::find(targets, module.target) != targets.end()) some.push_back(module);
  }
  return some;
}

}  // namespace engine::cli
