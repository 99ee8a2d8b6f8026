#include "engine/data/filters.h"

#include <algorithm>

#include "engine/data/utf8.h"

namespace engine::data {

namespace {

bool has_one_of(std::string_view text, std::string_view characters) {
  for (std::size_t at = 0; at < characters.size();) {
    const std::size_t bytes = character_at(characters, at).bytes;
    if (text.find(characters.substr(at, bytes)) != std::string_view::npos) return true;
    at += bytes;
  }
  return false;
}

}  // namespace

const char* name_of(Reason reason) {
  constexpr const char* kNames[kReasons] = {
      "category",  "question_length", "response_length", "required_characters",
      "duplicate", "in_another_set",  "too_long"};
  return kNames[static_cast<int>(reason)];
}

int first_reason(const Filters& filters, const Record& record) {
  if (!filters.categories.empty() &&
      std::ranges::find(filters.categories, record.category) == filters.categories.end()) {
    return static_cast<int>(Reason::kCategory);
  }
  const std::string question = record.question();
  if (!filters.question.holds(count_characters(question))) {
    return static_cast<int>(Reason::kQuestion);
  }
  if (!filters.response.holds(count_characters(record.response))) {
    return static_cast<int>(Reason::kResponse);
  }
  if (!filters.required.empty() && !has_one_of(question, filters.required) &&
      !has_one_of(record.response, filters.required)) {
    return static_cast<int>(Reason::kRequired);
  }
  return kReasons;
}

}  // namespace engine::data
