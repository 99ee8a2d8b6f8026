#pragma once

// Internal to engine/model/config.cc and its neighbours: the JSON library shows here.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/store/finding.h"

namespace engine::model {

// Where a field may stand: as `text` or `alias` at the root or in text_config, as `linear` in the
// linear_attn_config of either. An empty name stands nowhere.
struct Field {
  std::string_view text;
  std::string_view alias = {};
  std::string_view linear = {};
};

// A config.json, and its fields by name. What is wrong with a field becomes a finding that names
// file and field, and the reading goes on: whoever mends a file wants to know all of it.
class ConfigSource {
 public:
  using Json = nlohmann::json;

  // Errors    Error if the text is not one JSON object, nests too deeply, or has a key twice
  ConfigSource(const std::string& text, std::string where);
  ConfigSource(const ConfigSource&) = delete;
  ConfigSource& operator=(const ConfigSource&) = delete;

  // Nothing, and a finding, if missing, no integer (128.0, "128", true are none), or outside
  // [low, high].
  std::optional<std::int64_t> integer(const Field& field, std::int64_t low, std::int64_t high);
  // ... if missing, not a number, or outside float32's range.
  std::optional<float> number(const Field& field);
  // ... or not above 0; 0 then.
  float positive(const Field& field);
  // A finding if present and neither true nor false.
  bool flag_or(const Field& field, bool otherwise);
  // Nothing if absent, with a finding if it is required; nothing, and a finding, if it is no list of
  // integers in [1, high], each once.
  std::optional<std::vector<std::int64_t>> layers(const Field& field, std::int64_t high,
                                                  bool required);

  // A finding if the field is present, in whatever block, with another value than the one that this
  // program computes.
  void require_if_present(std::string_view name, const Json& only);

  // Every block of that name, with its path: root and text_config.
  std::vector<std::pair<std::string, const Json*>> blocks(std::string_view name) const;

  // A finding about a field, or in any words.
  void refuse(const Field& field, const std::string& message);
  void report(const std::string& message);

  std::vector<store::Finding> take_findings() { return std::move(findings_); }

 private:
  struct Found {
    std::string path;
    const Json* value = nullptr;
  };
  // An empty value if it is absent; nothing, and a finding, if the places that have it disagree.
  std::optional<Found> find(const Field& field);
  // Nothing, and a finding, if it is absent, too.
  std::optional<Found> require(const Field& field);

  std::string where_;
  Json root_;
  std::vector<store::Finding> findings_;
  // Prefix of the names in it, and the block: the root and text_config; their linear_attn_config.
  std::vector<std::pair<std::string, const Json*>> text_blocks_;
  std::vector<std::pair<std::string, const Json*>> linear_blocks_;
};

// The facts of a compressed-tensors block that must hold for its experts to be MXFP4 as
// docs/model.md section 3 says, wherever in the block they stand: those that are there are judged,
// absent ones are not missed. A finding for each that does not hold, with its path and both values.
void check_quantization(const ConfigSource::Json& block, const std::string& path,
                        ConfigSource& source);

}  // namespace engine::model
