// Adapters, gradients and moments on disk: whoever is done with them holds none of them, neighbours that
// a read brought in among them.

#include <gtest/gtest.h>

#include "checks/pages_held.h"
#include "checks/train/toy.h"

namespace {

namespace fs = std::filesystem;
using engine::model::AdapterSet;
using engine::train::AdamwClock;
using engine::train::AdamwSettings;
using engine::train::AdamwTensor;
using engine::train::Moments;

// So large that a tensor of the toy is several windows of the page cache, the smallest of them 140 KB.
engine::model::AdapterSettings large() {
  engine::model::AdapterSettings settings = checks::toy_job("").settings.adapter;
  settings.rank = 7000;
  return settings;
}

struct Toy {
  checks::ScratchFolder folder;
  engine::base::RamBudget budget{1 << 30};
  AdapterSet adapters{checks::toy_config(), large(), budget, folder.path()};
  Moments moments{adapters, budget};

  std::size_t held() const {
    std::size_t pages = 0;
    for (const AdamwTensor& tensor : moments.tensors()) {
      pages += checks::pages_held(tensor.values) + checks::pages_held(tensor.gradient) +
               checks::pages_held(tensor.m) + checks::pages_held(tensor.v);
    }
    return pages;
  }
  void fill_gradients() const {
    for (const auto& tensor : adapters.tensors()) std::ranges::fill(tensor.gradient, 0.5f);
  }
};

TEST(OnDisk, InitializedAndCleared) {
  Toy toy;
  toy.adapters.initialize(3);
  EXPECT_EQ(toy.held(), 0u);
  toy.fill_gradients();
  toy.adapters.clear_gradients();
  EXPECT_EQ(toy.held(), 0u);
}

TEST(OnDisk, NormAndUpdate) {
  Toy toy;
  toy.adapters.initialize(3);
  toy.fill_gradients();
  EXPECT_GT(engine::train::adamw_norm(toy.moments.tensors(), 1.0).norm, 1.0);
  EXPECT_EQ(toy.held(), 0u);
  const AdamwSettings settings;
  engine::train::adamw_update(toy.moments.tensors(), settings, 1e-3, 1.0, AdamwClock(settings, 1));
  EXPECT_EQ(toy.held(), 0u);
}

TEST(OnDisk, ACheckpointWrittenAndLoaded) {
  Toy toy;
  toy.adapters.initialize(3);
  const fs::path run = toy.folder / "run";
  engine::train::write_adapter(toy.folder / "alone.safetensors", toy.adapters, {});
  EXPECT_EQ(toy.held(), 0u);
  engine::train::SnapshotWriter writer(run, 3);
  writer.write_tensors(toy.adapters, toy.moments, {});
  EXPECT_EQ(toy.held(), 0u);
  writer.publish({});
  engine::train::load_tensors(run / "checkpoints/step_00003", toy.adapters, toy.moments);
  EXPECT_EQ(toy.held(), 0u);
}

// A run, looked at behind its steps, where the adapter was just found finite, and its checkpoints.
TEST(OnDisk, AStepAndItsCheckpoint) {
  Toy toy;
  engine::train::Job job = checks::toy_job(toy.folder / "run");
  job.settings.adapter = large();
  job.settings.schedule.total = 2;
  job.settings.checkpoint_every = 2;
  int looked = 0;
  const auto look = [&] {
    ++looked;
    EXPECT_EQ(toy.held(), 0u) << looked;
  };
  engine::train::Observer observer;
  observer.stepped = [&](const auto&) { look(); };
  observer.saved = [&](const auto&, const auto&, const auto&) { look(); };
  EXPECT_TRUE(engine::train::Trainer(engine::train::open_run(job), toy.adapters, toy.budget,
                                     checks::toy_functions(), observer)
                  .run({}));
  EXPECT_EQ(looked, 3);
}

// Planted: one value of each tensor used and not put away; and one of four arrays forgotten.
TEST(OnDisk, PlantedFaults) {
  Toy toy;
  toy.adapters.initialize(3);
  for (const AdamwTensor& tensor : toy.moments.tensors()) tensor.values[5000] += 1.0f;
  EXPECT_GE(toy.held(), toy.moments.tensors().size());
  for (const AdamwTensor& tensor : toy.moments.tensors()) engine::train::put_away(tensor);
  EXPECT_EQ(toy.held(), 0u);
  for (const AdamwTensor& tensor : toy.moments.tensors()) {
    tensor.v[5000] = 1.0f;
    toy.adapters.put_away(toy.adapters.tensors()[0]);
  }
  EXPECT_GE(toy.held(), toy.moments.tensors().size());
}

}  // namespace
