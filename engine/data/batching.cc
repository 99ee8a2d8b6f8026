#include "engine/data/batching.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace engine::data {

std::int64_t Sequence::trained() const {
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t id) { return id >= 0; });
}

Sequence make_sequence(std::string name, std::span<const std::int32_t> ids,
                       std::int64_t mask_first) {
  if (ids.size() < 2) {
    throw base::Error("{}: {} ids; a sequence of fewer than 2 has nothing to predict (0 samples)",
                      name, ids.size());
  }
  Sequence sequence{std::move(name), {ids.begin(), ids.end() - 1}, {ids.begin() + 1, ids.end()}};
  const auto masked = std::min(std::max<std::int64_t>(mask_first - 1, 0),
                               static_cast<std::int64_t>(sequence.targets.size()));
  std::fill_n(sequence.targets.begin(), masked, -1);
  return sequence;
}

Taken take(std::span<const Sequence> sequences, std::int64_t cursor, std::int64_t count) {
  Taken taken;
  const auto size = static_cast<std::int64_t>(sequences.size());
  for (std::int64_t i = cursor; i < cursor + count; ++i) {
    if (sequences[static_cast<std::size_t>(i % size)].trained() > 0) {
      taken.sequences.push_back(i % size);
    } else {
      ++taken.skipped;
    }
  }
  return taken;
}

Joined join(std::span<const Sequence> sequences, std::span<const std::int64_t> indices) {
  Joined joined;
  joined.borders.push_back(0);
  for (const std::int64_t index : indices) {
    const Sequence& sequence = sequences[static_cast<std::size_t>(index)];
    joined.tokens.insert(joined.tokens.end(), sequence.tokens.begin(), sequence.tokens.end());
    joined.targets.insert(joined.targets.end(), sequence.targets.begin(), sequence.targets.end());
    joined.borders.push_back(static_cast<std::int64_t>(joined.tokens.size()));
  }
  return joined;
}

}  // namespace engine::data
