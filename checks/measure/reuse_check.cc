// Reuse of experts: LRU by stack distances against a memory that is simulated, hot sets against
// paper.
#include <gtest/gtest.h>

#include <fstream>
#include <list>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "checks/measure/toy_routing.h"
#include "checks/reference.h"
#include "checks/scratch_folder.h"
#include "engine/base/rng.h"
#include "engine/measure/reuse.h"

namespace {

namespace measure = engine::measure;
using checks::toy_layer;
using checks::toy_shape;
using Requests = std::vector<std::int32_t>;

std::vector<std::int64_t> hits_of(const std::vector<measure::CapacityHits>& rows) {
  std::vector<std::int64_t> hits;
  for (const measure::CapacityHits& row : rows) hits.push_back(row.hits);
  return hits;
}

// A memory as one would build it: a list with the newest in front, thrown out at the back. With
// `spare` -1 or 1 it holds one fewer or one more than it should; `touch` is what makes it LRU and
// not first in, first out.
std::int64_t simulated_hits(const Requests& requests, std::int64_t capacity, int spare = 0,
                            bool touch = true) {
  std::list<std::int32_t> held;
  std::unordered_map<std::int32_t, std::list<std::int32_t>::iterator> where;
  std::int64_t hits = 0;
  for (const std::int32_t key : requests) {
    const auto found = where.find(key);
    if (found != where.end()) {
      ++hits;
      if (touch) held.splice(held.begin(), held, found->second);
      continue;
    }
    held.push_front(key);
    where[key] = held.begin();
    if (static_cast<std::int64_t>(held.size()) > capacity + spare) {
      where.erase(held.back());
      held.pop_back();
    }
  }
  return hits;
}

std::vector<std::int64_t> simulated(const Requests& requests,
                                    const std::vector<std::int64_t>& capacities, int spare = 0,
                                    bool touch = true) {
  std::vector<std::int64_t> hits;
  for (const std::int64_t capacity : capacities) {
    hits.push_back(simulated_hits(requests, capacity, spare, touch));
  }
  return hits;
}

const std::vector<std::int64_t> kToyCapacities{1, 2, 3, 4};

TEST(Reuse, DistancesOfTheToy) {
  // Asked:     0 1 1 0 2 1 0 3 1 2 2 1
  // Distance:  - - 1 2 - 3 3 - 3 4 1 2
  EXPECT_EQ(measure::reuse_distances(toy_layer().index, 4),
            (std::vector<std::int64_t>{4, 2, 2, 3, 1}));
  EXPECT_EQ(hits_of(measure::lru_hits(toy_layer().index, 4, kToyCapacities)),
            (std::vector<std::int64_t>{2, 4, 7, 8}));
  EXPECT_EQ(simulated(toy_layer().index, kToyCapacities), (std::vector<std::int64_t>{2, 4, 7, 8}));
}

TEST(Reuse, HotSetsLeaveTheirOwnTextOut) {
  // Text 1 uses experts 0 ... 3   3 3 1 1 times, text 2   0 2 2 0.
  // For text 1, ranked on text 2: 1 2 0 3, which meet  3 4 7 8 of its requests.
  // For text 2, ranked on text 1: 0 1 2 3, which meet  0 2 4 4.
  EXPECT_EQ(hits_of(measure::hot_set_hits(toy_shape(), toy_layer(), kToyCapacities)),
            (std::vector<std::int64_t>{3, 6, 11, 12}));
  // More than there are meets what all meet.
  EXPECT_EQ(hits_of(measure::hot_set_hits(toy_shape(), toy_layer(), std::vector<std::int64_t>{9})),
            (std::vector<std::int64_t>{12}));
  measure::TraceShape one = toy_shape();
  one.documents = {0, 6};
  EXPECT_TRUE(measure::hot_set_hits(one, toy_layer(), kToyCapacities).empty());
}

TEST(Reuse, AnyRequestsAsSimulated) {
  const engine::base::CounterRng rng(1, "requests");
  for (const std::int32_t keys : {1, 2, 7, 60}) {
    Requests requests;
    for (std::uint64_t i = 0; i < 700; ++i) {
      // Uneven: the smaller of two draws.
      const auto a = rng.bits(2 * i) % static_cast<std::uint32_t>(keys);
      const auto b = rng.bits(2 * i + 1) % static_cast<std::uint32_t>(keys);
      requests.push_back(static_cast<std::int32_t>(std::min(a, b)));
    }
    const std::vector<std::int64_t> capacities{1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    EXPECT_EQ(hits_of(measure::lru_hits(requests, keys, capacities)),
              simulated(requests, capacities))
        << keys;
  }
  EXPECT_EQ(hits_of(measure::lru_hits(Requests{}, 3, kToyCapacities)),
            (std::vector<std::int64_t>{0, 0, 0, 0}));
}

// The C reference's requests of the real model: (i32 layer, i32 expert) in request order.
struct RealRequests {
  std::map<std::int32_t, Requests> by_layer;
  Requests all;  // layer x 896 + expert
};

RealRequests read_real_requests(const std::filesystem::path& path) {
  const std::string bytes = checks::read_bytes(path);
  std::vector<std::int32_t> words(bytes.size() / 4);
  std::copy_n(bytes.data(), words.size() * 4, reinterpret_cast<char*>(words.data()));
  RealRequests real;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    real.by_layer[words[i]].push_back(words[i + 1]);
    real.all.push_back(words[i] * 896 + words[i + 1]);
  }
  return real;
}

TEST(Reuse, RealModelsRequestsAsSimulated) {
  CHECKS_NEED(path, checks::reference_data("upstream/expert_trace.bin"));
  const RealRequests real = read_real_requests(path);
  ASSERT_EQ(real.all.size(), 100096u);
  ASSERT_EQ(real.by_layer.size(), 92u);
  const std::vector<std::int64_t> capacities{1, 15, 16, 17, 32, 64, 128, 256, 512, 896};
  for (const auto& [layer, requests] : real.by_layer) {
    ASSERT_EQ(requests.size(), 1088u) << layer;  // 68 tokens of 16
    const auto hits = hits_of(measure::lru_hits(requests, 896, capacities));
    EXPECT_EQ(hits, simulated(requests, capacities)) << layer;
    const std::set<std::int32_t> distinct(requests.begin(), requests.end());
    EXPECT_EQ(hits.back(), 1088 - static_cast<std::int64_t>(distinct.size())) << layer;
  }
  // One memory for all layers, asked in the order of the run.
  const std::vector<std::int64_t> shared{16, 1000, 1472, 4000, 20000, 93 * 896};
  const auto hits = hits_of(measure::lru_hits(real.all, 93 * 896, shared));
  EXPECT_EQ(hits, simulated(real.all, shared));
  EXPECT_GT(hits[4], hits[3]);
}

TEST(Reuse, PlantedFaults) {
  const auto right = hits_of(measure::lru_hits(toy_layer().index, 4, kToyCapacities));
  ASSERT_EQ(right, simulated(toy_layer().index, kToyCapacities));
  EXPECT_NE(right, simulated(toy_layer().index, kToyCapacities, -1)) << "room for one fewer";
  EXPECT_NE(right, simulated(toy_layer().index, kToyCapacities, 1)) << "room for one more";
  EXPECT_NE(right, simulated(toy_layer().index, kToyCapacities, 0, false)) << "first in, first out";
  // Each token's experts sorted by number, which is not the order in which they are asked for.
  Requests sorted = toy_layer().index;
  for (std::size_t t = 0; t < sorted.size(); t += 2) std::sort(&sorted[t], &sorted[t] + 2);
  EXPECT_NE(right, hits_of(measure::lru_hits(sorted, 4, kToyCapacities)));
  // Ranked on all texts, its own included: 1 0 2 3 meets 5 8 11 12.
  EXPECT_NE(hits_of(measure::hot_set_hits(toy_shape(), toy_layer(), kToyCapacities)),
            (std::vector<std::int64_t>{5, 8, 11, 12}));
}

}  // namespace
