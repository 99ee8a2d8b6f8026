#include "engine/data/batching.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace engine::data {

namespace {

std::int64_t count_trained(std::span<const std::int32_t> targets) {
  return std::ranges::count_if(targets, [](std::int32_t id) { return id >= 0; });
}

}  // namespace

std::int64_t Sequence::trained() const { return count_trained(targets); }
std::int64_t Joined::trained() const { return count_trained(targets); }

Sequence make_sequence(std::string name, std::span<const std::int32_t> ids,
                       std::int64_t mask_first) {
  if (ids.size() < 2) {
    throw base::Error(
        "{}: 0 samples: {} ids, and in a sequence of fewer than 2 nothing is predicted", name,
        ids.size());
  }
  Sequence sequence{std::move(name), {ids.begin(), ids.end() - 1}, {ids.begin() + 1, ids.end()}};
  const auto masked = std::min(std::max<std::int64_t>(mask_first - 1, 0),
                               static_cast<std::int64_t>(sequence.targets.size()));
  std::fill_n(sequence.targets.begin(), masked, -1);
  return sequence;
}

void append(Joined& to, const Joined& more) {
  to.tokens.insert(to.tokens.end(), more.tokens.begin(), more.tokens.end());
  to.targets.insert(to.targets.end(), more.targets.begin(), more.targets.end());
  append_borders(to.borders, more.borders);
}

void append_borders(std::vector<std::int64_t>& to, std::span<const std::int64_t> more) {
  const std::int64_t before = to.back();
  for (const std::int64_t border : more.subspan(1)) to.push_back(before + border);
}

}  // namespace engine::data
