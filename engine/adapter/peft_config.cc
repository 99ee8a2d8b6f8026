#include "engine/adapter/peft_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/error.h"
#include "engine/store/file.h"
#include "engine/store/json_text.h"

namespace engine::adapter {
namespace {

using base::Error;
using Json = nlohmann::ordered_json;

// With whole paths for every expert of the released model: 250 thousand entries of 90 bytes.
constexpr std::uint64_t kMaxConfigBytes = 64'000'000;
constexpr std::int64_t kMaxRank = 1 << 20;

// Keys that change what the matrices mean, and the values under which they do not.
struct Plain {
  const char* key;
  Json value;
};
const std::vector<Plain>& plain_keys() {
  static const std::vector<Plain> kPlain = {{"use_rslora", false},
                                            {"use_dora", false},
                                            {"fan_in_fan_out", false},
                                            {"lora_bias", false},
                                            {"bias", "none"},
                                            {"rank_pattern", Json::object()},
                                            {"alpha_pattern", Json::object()}};
  return kPlain;
}
// Keys whose value does not matter here: what is read below, and what only training looks at.
constexpr std::string_view kFree[] = {"peft_type",
                                      "r",
                                      "lora_alpha",
                                      "target_modules",
                                      "target_parameters",
                                      "task_type",
                                      "peft_version",
                                      "inference_mode",
                                      "auto_mapping",
                                      "revision",
                                      "megatron_core",
                                      "lora_dropout",
                                      "qalora_group_size",
                                      "loftq_config",
                                      "base_model_name_or_path"};
// Ways of drawing the first A and B that leave the frozen weights alone; "pissa", "olora" and others
// do not, so their adapter belongs to another base.
const std::vector<Json>& plain_starts() {
  static const std::vector<Json> kPlain = {true, false, nullptr, "gaussian", "orthogonal"};
  return kPlain;
}

bool holds_nothing(const Json& value) {
  return value.is_null() || value == false || value == "" ||
         (value.is_structured() && value.empty());
}

// Whether a key of that name stands anywhere below.
bool has_key(const Json& json, const std::string& key) {
  if (json.is_object() && json.contains(key)) return true;
  return json.is_structured() && std::any_of(json.begin(), json.end(), [&](const Json& below) {
           return has_key(below, key);
         });
}

Json number(double value) {
  const bool integral = value == std::floor(value) && std::abs(value) < 0x1p53;
  return integral ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

std::vector<std::string> list(const Json& json, const char* key, const std::string& file) {
  std::vector<std::string> entries;
  if (!json.contains(key) || json[key].is_null()) return entries;
  if (!json[key].is_array()) {
    throw Error("{}: {} is {}, a list of module names is wanted", file, key,
                store::shortened(json[key].dump()));
  }
  for (const Json& entry : json[key]) {
    if (!entry.is_string()) throw Error("{}: {} holds {}", file, key, entry.dump());
    entries.push_back(entry);
  }
  return entries;
}

void refuse_other_meanings(const Json& json, const std::string& file) {
  if (json.value("peft_type", Json()) != "LORA") {
    throw Error("{}: peft_type is {}, \"LORA\" is wanted", file,
                json.value("peft_type", Json()).dump());
  }
  for (const Plain& plain : plain_keys()) {
    if (json.contains(plain.key) && json[plain.key] != plain.value) {
      throw Error("{}: {} is {}, only {} is understood", file, plain.key,
                  store::shortened(json[plain.key].dump()), plain.value.dump());
    }
  }
  if (const Json start = json.value("init_lora_weights", Json(true));
      std::ranges::find(plain_starts(), start) == plain_starts().end()) {
    throw Error("{}: init_lora_weights is {}, which changes the frozen weights", file,
                store::shortened(start.dump()));
  }
  // A key that is not known may mean another formula, and so may one that is yet to come.
  for (const auto& [key, value] : json.items()) {
    const bool known =
        key == "init_lora_weights" || key == "quantization_config" ||
        std::ranges::find(kFree, key) != std::end(kFree) ||
        std::ranges::any_of(plain_keys(), [&name = key](const Plain& p) { return name == p.key; });
    if (!known && !holds_nothing(value)) {
      throw Error("{}: {} is {}, which is not understood", file, store::shortened(key),
                  store::shortened(value.dump()));
    }
  }
  if (has_key(json, "quantization_config")) {
    throw Error("{}: quantization_config: an adapter's matrices are not quantized", file);
  }
}

// The path itself and what follows each of its dots.
template <class Function>
void for_ends(std::string_view path, const Function& f) {
  f(path);
  for (std::size_t at = path.find('.'); at != path.npos; at = path.find('.', at + 1)) {
    f(path.substr(at + 1));
  }
}

}  // namespace

std::string peft_config_text(const PeftConfig& config) {
  Json json = {{"alpha_pattern", Json::object()},
               {"base_model_name_or_path", config.base_model},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"inference_mode", true},
               {"lora_alpha", number(config.alpha)},
               {"lora_dropout", 0.0},
               {"peft_type", "LORA"}};
  if (!config.peft_version.empty()) json["peft_version"] = config.peft_version;
  json["r"] = config.rank;
  json["rank_pattern"] = Json::object();
  json["target_modules"] = config.target_modules;
  if (!config.target_parameters.empty()) json["target_parameters"] = config.target_parameters;
  json["task_type"] = "CAUSAL_LM";
  json["use_dora"] = false;
  json["use_rslora"] = false;
  return json.dump(2) + "\n";
}

PeftConfig read_peft_config(const std::filesystem::path& path) {
  const std::string file = path.string();
  const std::string text = store::read_text(path, kMaxConfigBytes);
  PeftConfig config;
  try {
    store::require_strict_json(text, file);
    const Json json = Json::parse(text);
    if (!json.is_object()) throw Error("{}: is no JSON object", file);
    refuse_other_meanings(json, file);
    const Json rank = json.value("r", Json()), alpha = json.value("lora_alpha", Json());
    // The bound keeps every product with a width or a number of experts inside 64 bits.
    if (!rank.is_number_integer() || rank.get<std::int64_t>() < 1 ||
        rank.get<std::int64_t>() > kMaxRank || rank > kMaxRank) {
      throw Error("{}: r is {}, an integer of 1 ... {} is wanted", file, rank.dump(), kMaxRank);
    }
    if (!alpha.is_number() || !(alpha.get<double>() > 0) || !std::isfinite(alpha.get<double>())) {
      throw Error("{}: lora_alpha is {}, a positive number is wanted", file, alpha.dump());
    }
    config.rank = rank;
    config.alpha = alpha;
    const Json version = json.value("peft_version", Json());
    if (!version.is_null()) config.peft_version = version.get<std::string>();
    config.target_modules = list(json, "target_modules", file);
    config.target_parameters = list(json, "target_parameters", file);
  } catch (const nlohmann::json::exception& wrong) {
    throw Error("{}: {}", file, store::json_reason(wrong.what()));
  }
  return config;
}

std::vector<std::string> target_entries(std::span<const Module> modules,
                                        std::span<const std::string> names) {
  std::unordered_set<std::string_view> there(names.begin(), names.end());
  std::unordered_map<std::string_view, std::int64_t> matches;  // by the end of a path
  for (const std::string& name : names) {
    for_ends(name, [&](std::string_view end) { ++matches[end]; });
  }
  // Modules of a kind: equal behind "layers.N.", for experts equal in their leaf.
  std::vector<std::string> order;
  std::unordered_map<std::string, std::vector<const Module*>> kinds;
  for (const Module& module : modules) {
    const std::string path = module.path();
    const std::string layer = fmt::format("layers.{}.", module.layer);
    const std::string kind =
        module.experts > 0 ? module.leaf : path.substr(path.find(layer) + layer.size());
    auto& members = kinds[kind];
    if (members.empty()) order.push_back(kind);
    members.push_back(&module);
  }
  std::vector<std::string> entries;
  for (const std::string& kind : order) {
    std::vector<std::string> paths;
    for (const Module* module : kinds[kind]) {
      for (std::int64_t expert = 0; expert < module->matrices(); ++expert) {
        paths.push_back(module->experts > 0 ? module->path(expert) : module->path());
        if (!there.contains(paths.back())) {
          throw Error("the checkpoint has no module {}", paths.back());
        }
      }
    }
    if (matches[kind] == static_cast<std::int64_t>(paths.size())) {
      entries.push_back(kind);
    } else {
      entries.insert(entries.end(), paths.begin(), paths.end());
    }
  }
  return entries;
}

void resolve_entries(const std::string& file, std::span<const std::string> entries,
                     std::span<const Module> modules, std::span<const std::string> names) {
  const ModuleIndex index(modules);
  std::unordered_map<std::string_view, std::int64_t> hits;
  for (const std::string& entry : entries) hits.emplace(entry, 0);
  std::int64_t matched = 0;
  for (const std::string& name : names) {
    std::string_view by;
    for_ends(name, [&](std::string_view end) {
      if (const auto hit = hits.find(end); hit != hits.end()) {
        ++hit->second;
        by = hit->first;
      }
    });
    const bool adapted = index.find(name).has_value();
    if (!by.empty() && !adapted) {
      throw Error(
          "{}: target_modules entry \"{}\" matches module {}, for which there is no adapter", file,
          by, name);
    }
    if (by.empty() && adapted) {
      throw Error("{}: there is an adapter for module {}, which no entry of target_modules matches",
                  file, name);
    }
    matched += by.empty() ? 0 : 1;
  }
  for (const std::string& entry : entries) {
    if (hits[entry] == 0) {
      throw Error("{}: target_modules entry \"{}\" matches no module of the checkpoint", file,
                  entry);
    }
  }
  std::int64_t wanted = 0;
  for (const Module& module : modules) wanted += module.matrices();
  if (matched != wanted) {
    throw Error("{}: target_modules match {} modules of the checkpoint, there are adapters for {}",
                file, matched, wanted);
  }
}

}  // namespace engine::adapter
