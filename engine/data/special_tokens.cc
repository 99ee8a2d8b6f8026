#include "engine/data/special_tokens.h"

#include <algorithm>
#include <charconv>

#include "engine/base/error.h"
#include "engine/data/strict_json.h"
#include "engine/store/json_text.h"

namespace engine::data {

namespace {

using base::Error;
using nlohmann::json;

std::string reserved_name(std::int32_t id) { return fmt::format("<|reserved_token_{}|>", id); }

// "163584", and neither "+1", "01" nor "1.0".
std::optional<std::int32_t> as_id(std::string_view text) {
  std::int32_t id = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (fmt::format("{}", id) != text) return std::nullopt;
  return id;
}

}  // namespace

SpecialTokens::SpecialTokens(std::string_view config_text, const std::string& where,
                             std::int32_t first)
    : first_(first), names_(kCount) {
  const json config = parse_strictly(config_text, where);
  const std::string list = where + ": added_tokens_decoder";
  const json& entries = member(config, "added_tokens_decoder", where);
  if (!entries.is_object()) throw Error("{} is {}, not an object", list, shown(entries));
  for (const auto& [key, entry] : entries.items()) {
    const auto id = as_id(key);
    if (!id || *id < first_ || *id >= end()) {
      throw Error("{}: the id \"{}\" is none of the {} behind the ranks, {} ... {}", list,
                  store::shortened(key), kCount, first_, end() - 1);
    }
    std::string name = string_member(entry, "content", fmt::format("{}: {}", list, key));
    if (name.empty()) throw Error("{}: id {} has an empty name", list, *id);
    names_[*id - first_] = std::move(name);
  }
  for (std::int32_t id = first_; id < end(); ++id) {
    std::string& name = names_[id - first_];
    if (name.empty()) name = reserved_name(id);
    if (name.starts_with("<|reserved_token_") && name != reserved_name(id)) {
      throw Error("{}: id {} is named {}: that name belongs to the id it contains", list, id,
                  store::shortened(name));
    }
    const auto [other, is_new] = ids_.emplace(name, id);
    if (!is_new) {
      throw Error("{}: ids {} and {} are both named {}", list, other->second, id,
                  store::shortened(name));
    }
    lengths_.push_back(name.size());
    begins_[static_cast<unsigned char>(name.front())] = true;
  }
  std::ranges::sort(lengths_, std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

std::int32_t SpecialTokens::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? -1 : found->second;
}

std::optional<SpecialTokens::Found> SpecialTokens::next(std::string_view text,
                                                        std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    for (const std::size_t length : lengths_) {
      if (at + length > text.size()) continue;
      const std::int32_t id = find(text.substr(at, length));
      if (id >= 0) return Found{at, at + length, id};
    }
  }
  return std::nullopt;
}

}  // namespace engine::data
