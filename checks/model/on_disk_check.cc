// Adapters on disk: a sweep leaves none of them in memory, and their charge is never more than theirs
// would be in memory.

#include <gtest/gtest.h>

#include <algorithm>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/pages_held.h"
#include "checks/scratch_folder.h"
#include "engine/base/parallel.h"
#include "engine/model/synthesize.h"

namespace {

using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::model::AdapterSettings;
using engine::model::Model;

constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

std::size_t held(const AdapterSet& adapters) {
  std::size_t pages = 0;
  for (const auto& tensor : adapters.tensors()) {
    pages += checks::pages_held(tensor.values) + checks::pages_held(tensor.gradient);
  }
  return pages;
}

// Rank 512 makes tensors of many pages, whose neighbours a read brings in with them.
TEST(OnDisk, ASweepLeavesNoPageInMemory) {
  const checks::ScratchFolder scratch;
  RamBudget budget(kAmple);
  Model model(checks::tiny_checkpoint(), budget);
  AdapterSet adapters(model.config(), {512, 1024.0, {"q", "v", "dense_down", "expert_gate"}},
                      budget, scratch.path());
  const auto batch = checks::forward_batch(checks::random_ids(9, 512, 11));
  adapters.initialize(3);
  EXPECT_EQ(held(adapters), 0u) << "initialized";
  model.forward(batch, &adapters);
  EXPECT_EQ(held(adapters), 0u) << "forward, which an evaluation is as well";
  model.forward_backward(batch, adapters);
  EXPECT_EQ(held(adapters), 0u) << "backward";
  // Planted: who looks at gradients, and does not put them away, holds them. They are there.
  std::size_t nonzero = 0;
  for (const auto& tensor : adapters.tensors()) {
    nonzero += static_cast<std::size_t>(
        std::ranges::count_if(tensor.gradient, [](float g) { return g != 0.0f; }));
  }
  EXPECT_GT(nonzero, 1000u);
  EXPECT_GT(held(adapters), 1000u);
  adapters.clear_gradients();
  EXPECT_EQ(held(adapters), 0u) << "cleared";
}

TEST(OnDisk, TheChargeIsNeverMoreThanInMemory) {
  const auto config = engine::model::checkpoint_shape("tiny").config;
  const int before = engine::base::threads();
  for (const auto name : engine::model::kTargetNames) {
    const AdapterSettings settings{4, 8.0, {std::string(name)}};
    RamBudget budget(kAmple);
    const AdapterSet adapters(config, settings, budget);
    std::size_t largest = 0;
    for (const auto& tensor : adapters.tensors()) {
      largest = std::max(largest, tensor.values.size_bytes());
    }
    ASSERT_GT(largest, 0u) << name;
    for (const int threads : {1, 2, 1000}) {
      engine::base::set_threads(threads);
      const std::int64_t on_disk = adapters.memory_bytes(true);
      EXPECT_LE(on_disk, adapters.memory_bytes(false)) << name << " " << threads;
      // A layer has two of them, and there is no thread without one that could hold any.
      EXPECT_LE(on_disk, static_cast<std::int64_t>(
                             std::max<std::size_t>(8, adapters.tensors().size()) * largest))
          << name << " " << threads;
      // Planted: a tensor a thread, however many there are.
      if (threads == 1000) {
        EXPECT_GT(threads * static_cast<std::int64_t>(largest), adapters.memory_bytes(false));
      }
    }
  }
  engine::base::set_threads(before);
}

}  // namespace
