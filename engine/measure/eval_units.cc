#include "engine/measure/eval_units.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "engine/base/error.h"

namespace engine::measure {

std::vector<EvalUnit> chunk_units(std::span<const std::int32_t> ids, const ChunkSettings& settings,
                                  const ByteCount& bytes, std::string_view where) {
  assert(settings.chunk >= 1 && settings.stride >= 1 && settings.stride <= settings.chunk);
  const auto size = static_cast<std::int64_t>(ids.size());
  const std::int64_t first = settings.bos == Bos::kNone ? 1 : 0;
  if (first >= size) {
    throw base::Error("{}: {} ids and no begin-of-text id before them: nothing is predicted", where,
                      size);
  }
  std::vector<EvalUnit> units;
  std::int64_t scored = first;
  for (std::int64_t begin = first; scored < size; begin += settings.stride) {
    const std::int64_t end = std::min(begin + settings.chunk, size);
    EvalUnit unit;
    for (std::int64_t i = begin; i < end; ++i) {
      const bool from_bos = i == 0 || (settings.bos == Bos::kEach && i == begin);
      unit.tokens.push_back(from_bos ? settings.bos_id : ids[i - 1]);
      unit.targets.push_back(i >= scored ? ids[i] : -1);
      if (i >= scored) unit.bytes += bytes(ids[i]);
    }
    scored = end;
    units.push_back(std::move(unit));
  }
  return units;
}

std::vector<EvalUnit> set_units(const data::PackedSet& set) {
  std::vector<EvalUnit> units;
  for (std::int64_t s = 0; s < set.count(); ++s) {
    const data::Joined joined = data::training_form(set.sequence(s));
    for (std::size_t d = 0; d + 1 < joined.borders.size(); ++d) {
      const std::int64_t begin = joined.borders[d], end = joined.borders[d + 1];
      EvalUnit unit;
      unit.tokens.assign(joined.tokens.begin() + begin, joined.tokens.begin() + end);
      unit.targets.assign(joined.targets.begin() + begin, joined.targets.begin() + end);
      const bool any = std::ranges::any_of(unit.targets, [](std::int32_t t) { return t >= 0; });
      if (any) units.push_back(std::move(unit));
    }
  }
  return units;
}

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    words += !space && !inside ? 1 : 0;
    inside = !space;
  }
  return words;
}

}  // namespace engine::measure
