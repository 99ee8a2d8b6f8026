#include <fmt/format.h>

#include <algorithm>

#include "engine/model/config_source.h"

namespace engine::model {
namespace {

using Json = ConfigSource::Json;

std::string shown(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
}

// The values that are MXFP4 as docs/model.md section 3 decodes it; the first is the one that
// messages name.
std::vector<Json> supported(const std::string& key) {
  if (key == "quant_method") return {"compressed-tensors"};
  if (key == "format") return {"mxfp4-pack-quantized"};
  if (key == "group_size") return {32};
  if (key == "num_bits") return {4};
  if (key == "type") return {"float"};
  if (key == "symmetric") return {true};
  if (key == "scale_dtype") return {"uint8", "torch.uint8"};
  if (key == "status" || key == "quantization_status") return {"compressed"};
  if (key == "input_activations" || key == "output_activations" || key == "actorder")
    return {nullptr};
  if (key == "transform_config" || key == "sparsity_config") return {Json::object(), nullptr};
  return {};
}

// What is not quantised in a K3 checkpoint must be on the list: a list without it describes another
// one.
void check_ignored(const Json& list, const std::string& path, ConfigSource& source) {
  if (!list.is_array()) {
    source.report(fmt::format("{} is {}, not a list", path, shown(list)));
    return;
  }
  for (const Json& pattern : list) {
    if (pattern.is_string()) continue;
    source.report(fmt::format("{} holds {}, not a text", path, shown(pattern)));
    return;
  }
  for (const char* module : {"self_attn", "shared_experts", "mlp", "lm_head"}) {
    bool listed = false;
    for (const Json& pattern : list) {
      listed = listed || pattern.get_ref<const std::string&>().find(module) != std::string::npos;
    }
    if (!listed) {
      source.report(
          fmt::format("{} does not list {}: only routed experts may be quantised", path, module));
    }
  }
}

}  // namespace

void check_quantization(const Json& block, const std::string& path, ConfigSource& source) {
  for (const auto& [key, value] : block.items()) {
    const std::string below = path + "." + key;
    const std::vector<Json> values = supported(key);
    if (key == "ignore") {
      check_ignored(value, below, source);
    } else if (!values.empty()) {
      if (std::ranges::find(values, value) == values.end()) {
        source.report(fmt::format("{} is {}; only {} is supported", below, shown(value),
                                  values.front().dump()));
      }
    } else if (value.is_object()) {
      check_quantization(value, below, source);
    } else if (value.is_array()) {
      for (const Json& entry : value) {
        if (entry.is_object()) check_quantization(entry, below, source);
      }
    }
  }
}

}  // namespace engine::model
