#pragma once

// Internal to engine/model/config.cc and its neighbours: the JSON library shows here.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace engine::model {

// Where a field may stand: as `text` or `alias` at the root or in text_config, as `linear` in the
// linear_attn_config of either. An empty name stands nowhere.
struct Field {
  std::string_view text;
  std::string_view alias = {};
  std::string_view linear = {};
};

// A config.json, and its fields by name. Every Error names the file and the field.
class ConfigSource {
 public:
  using Json = nlohmann::json;

  // Errors    Error if the text is not one JSON object, nests too deeply, or has a key twice
  ConfigSource(const std::string& text, std::string where);
  ConfigSource(const ConfigSource&) = delete;
  ConfigSource& operator=(const ConfigSource&) = delete;

  // Errors    Error if missing, no integer (128.0, "128", true are none), or outside [low, high]
  std::int64_t integer(const Field& field, std::int64_t low, std::int64_t high) const;
  // Errors    Error if missing, not a number, or outside float32's range
  float number(const Field& field) const;
  float positive(const Field& field) const;
  // Errors    Error if present and neither true nor false
  bool flag_or(const Field& field, bool otherwise) const;
  // Errors    Error if present and not a list of integers in [1, high], each once
  std::optional<std::vector<std::int64_t>> layers(const Field& field, std::int64_t high) const;

  // Errors    Error if the field is present, in whatever block, with another value than the one
  //           that this program computes
  void require_if_present(std::string_view name, const Json& only) const;

  // Every block of that name, with its path: root and text_config.
  std::vector<std::pair<std::string, const Json*>> blocks(std::string_view name) const;

  [[noreturn]] void refuse(const Field& field, const std::string& message) const;
  [[noreturn]] void refuse_missing(const Field& field) const;

 private:
  struct Found {
    std::string path;
    const Json* value = nullptr;
  };
  // Errors    Error if the places that have it disagree
  Found find(const Field& field) const;
  Found require(const Field& field) const;

  std::string where_;
  Json root_;
  // Prefix of the names in it, and the block: the root and text_config; their linear_attn_config.
  std::vector<std::pair<std::string, const Json*>> text_blocks_;
  std::vector<std::pair<std::string, const Json*>> linear_blocks_;
};

// The facts of a compressed-tensors block that must hold for its experts to be MXFP4 as
// docs/model.md section 3 says, wherever in the block they stand: those that are there are judged,
// absent ones are not missed.
//
// Errors    Error naming the path of the first odd one and both values
void check_quantization(const ConfigSource::Json& block, const std::string& path,
                        const std::string& where);

}  // namespace engine::model
