#include "engine/data/feed.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/base/rng.h"

namespace engine::data {

Feed feed_of(std::string name, std::vector<Sequence> sequences) {
  const auto all = std::make_shared<const std::vector<Sequence>>(std::move(sequences));
  const auto one = [all](std::int64_t i) {
    const Sequence& s = (*all)[static_cast<std::size_t>(i)];
    return Joined{s.tokens, s.targets, {0, std::ssize(s.tokens)}};
  };
  return {std::move(name), std::ssize(*all), false, one};
}

Feed feed_of(std::shared_ptr<const PackedSet> set, bool shuffled) {
  return {set->folder().string(), set->count(), shuffled,
          [set](std::int64_t i) { return training_form(set->sequence(i)); }};
}

Order::Order(std::int64_t count, std::uint64_t seed, base::RamBudget& budget)
    : count_(count), seed_(seed), places_(budget.take<Place>("order of an epoch", count)) {}

void Order::shuffle(std::int64_t epoch) {
  const base::CounterRng rng(seed_, fmt::format("order of epoch {}", epoch));
  for (std::int64_t i = 0; i < count_; ++i) {
    const auto at = static_cast<std::uint64_t>(2 * i);
    places_[i] = {std::uint64_t{rng.bits(at)} << 32 | rng.bits(at + 1), i};
  }
  std::ranges::sort(places_.span(), [](const Place& a, const Place& b) {
    return std::tie(a.word, a.index) < std::tie(b.word, b.index);
  });
  epoch_ = epoch;
}

std::int64_t Order::at(std::int64_t cursor) {
  if (places_.size() == 0) return cursor % count_;
  if (cursor / count_ != epoch_) shuffle(cursor / count_);
  return places_[cursor % count_].index;
}

Taken take(const Feed& feed, Order& order, std::int64_t cursor, std::int64_t count) {
  Taken taken;
  for (std::int64_t i = cursor; i < cursor + count; ++i) {
    const Joined one = feed.sequence(order.at(i));
    if (one.trained() > 0) {
      append(taken.joined, one);
      ++taken.sequences;
    } else {
      ++taken.skipped;
    }
  }
  return taken;
}

std::vector<std::int64_t> take_borders(const Feed& feed, Order& order, std::int64_t cursor,
                                       std::int64_t count) {
  std::vector<std::int64_t> borders = {0};
  for (std::int64_t i = cursor; i < cursor + count; ++i) {
    const Joined one = feed.sequence(order.at(i));
    if (one.trained() > 0) append_borders(borders, one.borders);
  }
  return borders;
}

}  // namespace engine::data
