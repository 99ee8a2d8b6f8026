// What a sweep asks the system for: when, how much at once, and into which memory.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "checks/engine_run.h"
#include "checks/model/stream_case.h"
#include "engine/model/expert_stream.h"
#include "engine/model/layer_stream.h"

namespace {

using checks::kAmple;
using checks::Outcome;
using checks::run;
using checks::some_batch;
using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::model::Model;
using engine::model::ModelOptions;
using engine::model::Plan;
using engine::store::DirectReads;

// What the threads ask the system for.
struct Recorder {
  std::mutex mutex;
  std::vector<std::pair<std::size_t, off_t>> reads;
  std::vector<const std::byte*> rooms;  // [reads] where to
  std::atomic<int> until_failure = -1;
  void forget() {
    reads.clear();
    rooms.clear();
  }
};
Recorder recorder;

ssize_t recorded_pread(int descriptor, void* out, std::size_t count, off_t offset) {
  if (recorder.until_failure >= 0 && recorder.until_failure-- == 0) {
    recorder.until_failure = 0;  // and from now on
    errno = EBADF;
    return -1;
  }
  {
    const std::lock_guard lock(recorder.mutex);
    recorder.reads.emplace_back(count, offset);
    recorder.rooms.push_back(static_cast<const std::byte*>(out));
  }
  return ::pread(descriptor, out, count, offset);
}

ModelOptions recorded(int threads) {
  ModelOptions options;
  options.reads.pread = recorded_pread;
  options.reads.direct = DirectReads::kNever;
  options.queue = {false, threads};
  return options;
}

// By what the system is asked for: "attention 3", "mlp 3" (the first range of each), "expert 3.7"; "" for
// other weights.
std::map<std::pair<std::size_t, off_t>, std::string> names_of_reads() {
  RamBudget budget(kAmple);
  const Model model(checks::tiny_checkpoint(), budget);
  const auto& config = model.config();
  const engine::model::LayerBlocks blocks(model.shards(), config);
  std::map<std::pair<std::size_t, off_t>, std::string> names;
  const auto add = [&](std::uint64_t bytes, std::uint64_t offset, const std::string& name) {
    const auto place = std::pair(static_cast<std::size_t>(bytes), static_cast<off_t>(offset));
    EXPECT_TRUE(names.emplace(place, name).second) << name << " is like " << names[place];
  };
  for (std::uint32_t block = 0; block < blocks.count(); ++block) {
    std::string name;
    if (block < blocks.output_mix()) {
      name = fmt::format("{} {}", block % 2 == 0 ? "attention" : "mlp", block / 2);
    }
    for (const auto& range : blocks.list(block).ranges()) {
      add(range.bytes, range.offset, std::exchange(name, ""));
    }
  }
  const std::string first = ".w1.weight_packed", between = ".block_sparse_moe.experts.";
  for (const auto& entry : model.shards().entries()) {
    std::string name(entry.name);
    if (!name.ends_with(first)) continue;
    name.resize(name.size() - first.size());
    name.erase(0, std::string("language_model.model.layers.").size());
    add(static_cast<std::uint64_t>(engine::model::ExpertStream::bytes(config)), entry.offset,
        "expert " + name.replace(name.find(between), between.size(), "."));
  }
  return names;
}

// Where a block of the file begins one of memory does: only then can it be read directly, and where the
// file system cannot, or the memory is elsewhere, it is read all the same.
TEST(Stream, EveryReadLiesInItsSlotAsInTheFile) {
  const auto names = names_of_reads();
  recorder.forget();
  const Plan plan = run(kAmple, recorded(1)).plan;
  EXPECT_GT(plan.weights_slots, 2);
  EXPECT_GT(plan.expert_slots, 2);
  std::size_t seen = 0;
  for (std::size_t i = 0; i < recorder.reads.size(); ++i) {
    const auto name = names.find(recorder.reads[i]);
    if (name == names.end()) continue;
    ++seen;
    const auto in_block = [](std::uint64_t place) { return place % engine::store::kBlock; };
    EXPECT_EQ(in_block(reinterpret_cast<std::uintptr_t>(recorder.rooms[i])),
              in_block(static_cast<std::uint64_t>(recorder.reads[i].second)))
        << name->second << ", slots of " << plan.weights_bytes << " and " << plan.expert_bytes;
  }
  EXPECT_GT(seen, 100u);
}

// Where each was read for the `time`th time: a place among all reads of one thread, which carries them
// out in the order in which they were asked for.
struct ReadPlaces {
  std::map<std::string, std::vector<std::size_t>> of;
  std::size_t half(const std::string& kind, std::int64_t layer, std::size_t time) const {
    return of.at(fmt::format("{} {}", kind, layer)).at(time);
  }
  // The earliest of a layer's.
  std::size_t experts(std::int64_t layer, std::size_t time) const {
    std::size_t first = std::numeric_limits<std::size_t>::max();
    for (const auto& [name, places] : of) {
      if (name.starts_with(fmt::format("expert {}.", layer))) {
        first = std::min(first, places.at(time));
      }
    }
    return first;
  }
};

ReadPlaces places_of_reads(std::uint64_t beyond_least) {
  const auto names = names_of_reads();
  recorder.forget();
  run(beyond_least, recorded(1));
  ReadPlaces places;
  for (std::size_t i = 0; i < recorder.reads.size(); ++i) {
    const auto name = names.find(recorder.reads[i]);
    if (name != names.end()) places.of[name->second].push_back(i);
  }
  return places;
}

// A slot into which nothing is read early brings the same bits, and nothing else would tell.
TEST(Stream, WhatThereIsASlotForIsReadBeforeItsTurn) {
  const Plan least = run(0).plan;
  const auto ahead = static_cast<std::uint64_t>(8 * least.expert_bytes + least.weights_bytes);
  const ReadPlaces at_once = places_of_reads(0), early = places_of_reads(ahead);
  // Not the last two layers: some of theirs is still there on the way down.
  for (std::int64_t layer = 1; layer < 11; ++layer) {
    // Upwards the next half is asked for when this one is there, before its experts are known.
    EXPECT_LT(early.half("attention", layer + 1, 0), early.experts(layer, 0)) << layer;
    EXPECT_GT(at_once.half("attention", layer + 1, 0), at_once.experts(layer, 0)) << layer;
    // Downwards experts are known, and asked for while those of the layer above are in use.
    EXPECT_LT(early.experts(layer, 1), early.half("mlp", layer, 1)) << layer;
    EXPECT_GT(at_once.experts(layer, 1), at_once.half("mlp", layer, 1)) << layer;
  }
}

TEST(Stream, AnExpertIsOneReadAndEveryRepetitionAsksForTheSame) {
  RamBudget budget(kAmple);
  const Model model(checks::tiny_checkpoint(), budget);
  const auto expert = static_cast<std::size_t>(engine::model::ExpertStream::bytes(model.config()));
  std::vector<std::vector<std::pair<std::size_t, off_t>>> all;
  for (int again = 0; again < 2; ++again) {
    recorder.forget();
    const Outcome now = run(20 << 10, recorded(1));
    std::int64_t distinct = 0;
    for (const std::int64_t count : now.result.distinct_experts) distinct += count;
    const auto of_experts = std::ranges::count_if(
        recorder.reads, [&](const auto& read) { return read.first == expert; });
    EXPECT_LE(of_experts, 2 * distinct);
    EXPECT_GT(of_experts, distinct);
    all.push_back(recorder.reads);
  }
  EXPECT_EQ(all[0], all[1]);
}

// A read that fails while others are on their way ends the sweep, names the tensor, and leaves the
// budget as it was: nothing reads into memory that is gone.
TEST(Stream, AFailedReadEndsTheSweepWhereverItFalls) {
  for (const int reads : {0, 25, 60, 90, 130}) {
    RamBudget budget(kAmple);
    Model model(checks::tiny_checkpoint(), budget, recorded(3));
    AdapterSet adapters(model.config(), {}, budget);
    const std::uint64_t held = budget.used_bytes();
    recorder.until_failure = reads;
    EXPECT_THAT([&] { model.forward_backward(some_batch(), adapters); },
                testing::ThrowsMessage<engine::base::Error>(testing::AllOf(
                    testing::HasSubstr("Bad file descriptor"), testing::HasSubstr("safetensors"))))
        << reads;
    recorder.until_failure = -1;
    EXPECT_EQ(budget.used_bytes(), held);
    EXPECT_NO_THROW(model.forward_backward(some_batch(), adapters));
  }
}

}  // namespace
