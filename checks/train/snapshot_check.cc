#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/train/toy.h"
#include "engine/adapter/native.h"
#include "engine/base/error.h"
#include "engine/base/rng.h"
#include "engine/base/sha256.h"
#include "engine/train/snapshot.h"

namespace {

namespace fs = std::filesystem;
using checks::read_bytes;
using checks::same_bits;
using checks::ScratchFolder;
using checks::write_bytes;
using engine::base::Error;
using engine::base::RamBudget;
using engine::model::AdapterSet;
using engine::train::find_newest;
using engine::train::FoundSnapshot;
using engine::train::Moments;
using engine::train::SnapshotState;
using engine::train::SnapshotWriter;
using testing::HasSubstr;

// Adapters and moments filled with values that depend on `seed`.
struct Trained {
  RamBudget budget{1 << 20};
  AdapterSet adapters;
  Moments moments;

  explicit Trained(std::uint64_t seed)
      : adapters(checks::toy_config(), {3, 6.0, {"q", "expert_gate"}}, budget),
        moments(adapters, budget) {
    for (const auto& tensor : moments.tensors()) {
      const engine::base::CounterRng rng(seed, tensor.name);
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        tensor.values[i] = rng.uniform(3 * i) - 0.5f;
        tensor.m[i] = rng.uniform(3 * i + 1) - 0.5f;
        tensor.v[i] = rng.uniform(3 * i + 2);
      }
    }
  }
  std::vector<float> all() const {
    std::vector<float> values;
    for (const auto& t : moments.tensors()) {
      values.insert(values.end(), t.values.begin(), t.values.end());
      values.insert(values.end(), t.m.begin(), t.m.end());
      values.insert(values.end(), t.v.begin(), t.v.end());
    }
    return values;
  }
};

SnapshotState state_at(std::int64_t step) {
  SnapshotState state;
  state.run_id = "name-0123";
  state.identity = {"c", "w", "d", "", "e"};
  state.settings = {{"lr", "0.0002"}, {"steps", "20"}};
  state.step = step;
  state.cursor = 2 * step;
  state.skipped = 1;
  state.evaluated = 4;
  state.log = {4 * step, 1000, std::string(64, 'a')};
  return state;
}

fs::path folder_of(const fs::path& run, int step) {
  return run / "checkpoints" / fmt::format("step_{:05}", step);
}

void save(const fs::path& run, std::int64_t step) {
  const Trained trained(static_cast<std::uint64_t>(step));
  SnapshotWriter writer(run, step);
  writer.write_tensors(trained.adapters, trained.moments, state_at(step).identity);
  writer.publish(state_at(step));
}

std::int64_t newest_step(const fs::path& run) {
  const FoundSnapshot found = find_newest(run);
  return found.newest ? found.newest->state.step : -1;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(Snapshot, ComesBackBitForBit) {
  const ScratchFolder run;
  save(run.path(), 5);
  const FoundSnapshot found = find_newest(run.path());
  ASSERT_TRUE(found.newest);
  const SnapshotState& got = found.newest->state;
  const SnapshotState want = state_at(5);
  EXPECT_EQ(got.run_id, want.run_id);
  EXPECT_EQ(got.identity.config_sha256, "c");
  EXPECT_EQ(got.identity.headers_sha256, "w");
  EXPECT_EQ(got.identity.data_sha256, "d");
  EXPECT_EQ(got.identity.held_out_sha256, "e");
  EXPECT_EQ(got.evaluated, 4);
  EXPECT_EQ(got.settings, want.settings);
  EXPECT_EQ(got.cursor, 10);
  EXPECT_EQ(got.skipped, 1);
  EXPECT_EQ(got.log, want.log);
  Trained loaded(99);
  engine::train::load_tensors(found.newest->folder, loaded.adapters, loaded.moments);
  const auto result = same_bits(loaded.all(), Trained(5).all());
  EXPECT_TRUE(result) << result.why;
}

// What `lazylora forward --adapter` compares: a shape that fits is no sign that the model is the one.
TEST(Snapshot, AdapterFileSaysForWhichCheckpointItIs) {
  const ScratchFolder run;
  save(run.path(), 5);
  const auto read =
      engine::adapter::read_native_adapter(folder_of(run.path(), 5) / "adapter.safetensors");
  EXPECT_THAT(read.more, testing::UnorderedElementsAre(testing::Pair("config_sha256", "c"),
                                                       testing::Pair("headers_sha256", "w")));
}

TEST(Snapshot, NewestByNumberNotByName) {
  const ScratchFolder run;
  save(run.path(), 99999);
  save(run.path(), 100000);
  EXPECT_EQ(newest_step(run.path()), 100000);
}

TEST(Snapshot, KilledWhileWritingLeavesTheOneBefore) {
  const ScratchFolder run;
  save(run.path(), 5);
  // What a kill may leave: a temporary folder at any stage, up to all three files whole.
  const fs::path temporary = folder_of(run.path(), 10).string() + ".lazylora-tmp";
  fs::create_directories(temporary);
  EXPECT_EQ(newest_step(run.path()), 5);
  for (const char* name : {"adapter.safetensors", "moments.safetensors", "state.json"}) {
    fs::copy_file(folder_of(run.path(), 5) / name, temporary / name);
    EXPECT_EQ(newest_step(run.path()), 5) << name;
  }
  save(run.path(), 10);
  EXPECT_EQ(newest_step(run.path()), 10);
  EXPECT_FALSE(fs::exists(temporary));
}

TEST(Snapshot, GivenUpBeforePublishLeavesNothing) {
  const ScratchFolder run;
  save(run.path(), 5);
  {
    const Trained trained(10);
    SnapshotWriter writer(run.path(), 10);
    writer.write_tensors(trained.adapters, trained.moments, state_at(10).identity);
  }
  EXPECT_THAT(names_in(run.path() / "checkpoints"), testing::ElementsAre("step_00005"));
}

// Every file of the newest, damaged in every way: the one before is found and the reason told.
TEST(Snapshot, DamagedNewestIsPassedOverWithItsReason) {
  for (const char* name : {"adapter.safetensors", "moments.safetensors", "state.json"}) {
    for (const char* damage : {"flip", "cut", "gone"}) {
      const ScratchFolder run;
      save(run.path(), 5);
      save(run.path(), 10);
      const fs::path file = folder_of(run.path(), 10) / name;
      std::string text = read_bytes(file);
      if (damage == std::string("flip")) {
        text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
        write_bytes(file, text);
      } else if (damage == std::string("cut")) {
        fs::resize_file(file, fs::file_size(file) - 3);
      } else {
        fs::remove(file);
      }
      const FoundSnapshot found = find_newest(run.path());
      ASSERT_TRUE(found.newest) << name << " " << damage;
      EXPECT_EQ(found.newest->state.step, 5) << name << " " << damage;
      ASSERT_EQ(found.refused.size(), 1u);
      EXPECT_THAT(found.refused[0], HasSubstr("step_00010"));
      save(run.path(), 10);
      EXPECT_EQ(newest_step(run.path()), 10) << "a damaged folder stood in the way";
      EXPECT_TRUE(fs::exists(folder_of(run.path(), 10).string() + ".damaged"));
    }
  }
}

// Whole in itself, under the name of another step: going on from it would tell of steps that nobody took.
TEST(Snapshot, AFolderIsNamedAfterItsStep) {
  const ScratchFolder run;
  save(run.path(), 5);
  save(run.path(), 10);
  const fs::path wrong = folder_of(run.path(), 12);
  fs::rename(folder_of(run.path(), 10), wrong);
  const FoundSnapshot found = find_newest(run.path());
  ASSERT_TRUE(found.newest);
  EXPECT_EQ(found.newest->folder, folder_of(run.path(), 5));
  ASSERT_EQ(found.refused.size(), 1u);
  EXPECT_THAT(found.refused[0],
              HasSubstr((wrong / "state.json").string() +
                        ": is the state behind step 10, its folder is named after step 12"));
  EXPECT_EQ(engine::train::glance_at_newest(run.path())->state.step, 5);
  EXPECT_THROW(engine::train::read_snapshot(wrong), Error);
  // Nor is it kept in place of the next one.
  save(run.path(), 6);
  engine::train::prune_snapshots(run.path(), 1);
  EXPECT_THAT(names_in(run.path() / "checkpoints"),
              testing::UnorderedElementsAre("step_00006", "step_00012.damaged"));
  fs::remove_all(folder_of(run.path(), 6));
  fs::rename(wrong.string() + ".damaged", wrong);
  // The number counts, not its digits; and a name that is none of a step says nothing.
  for (const char* name : {"step_0000010", "a copy"}) {
    const fs::path renamed = run.path() / "checkpoints" / name;
    fs::copy(wrong, renamed);
    EXPECT_EQ(engine::train::read_snapshot(renamed).step, 10) << name;
  }
  EXPECT_EQ(newest_step(run.path()), 10);
}

TEST(Snapshot, KeepsTheNewest) {
  const ScratchFolder run;
  for (const int step : {5, 10, 15, 20, 25}) {
    save(run.path(), step);
    engine::train::prune_snapshots(run.path(), 3);
  }
  fs::create_directories(run.path() / "checkpoints" / "step_00003.removed");
  fs::create_directories(run.path() / "checkpoints" / "notes");
  engine::train::prune_snapshots(run.path(), 3);
  EXPECT_THAT(names_in(run.path() / "checkpoints"),
              testing::UnorderedElementsAre("step_00015", "step_00020", "step_00025", "notes"));
}

TEST(Snapshot, OtherShapesOrTensorsAreRefused) {
  const ScratchFolder run;
  save(run.path(), 5);
  const fs::path folder = folder_of(run.path(), 5);
  RamBudget budget(1 << 20);
  const AdapterSet ranks(checks::toy_config(), {4, 6.0, {"q", "expert_gate"}}, budget);
  EXPECT_THROW(engine::train::load_tensors(folder, ranks, Moments(ranks, budget)), Error);
  const AdapterSet more(checks::toy_config(), {3, 6.0, {"q", "v", "expert_gate"}}, budget);
  EXPECT_THROW(engine::train::load_tensors(folder, more, Moments(more, budget)), Error);
  const AdapterSet fewer(checks::toy_config(), {3, 6.0, {"q"}}, budget);
  EXPECT_THROW(engine::train::load_tensors(folder, fewer, Moments(fewer, budget)), Error);
}

// A disk that is full at byte k, for k from nothing to almost all: here a limit on the size of
// files, which gives the same failure of write(2).
TEST(Snapshot, G8_DiskFullLeavesTheCheckpointBefore) {
  const ScratchFolder run;
  save(run.path(), 5);
  const std::uintmax_t largest = fs::file_size(folder_of(run.path(), 5) / "moments.safetensors");
  const std::vector<std::string> before = names_in(run.path() / "checkpoints");
  for (std::uintmax_t bytes = 0; bytes < largest; bytes += 1 + largest / 37) {
    std::string why;
    {
      const checks::FileSizeLimit full(bytes);
      why = checks::why_refused([&] { save(run.path(), 10); });
    }
    EXPECT_THAT(why, HasSubstr(".safetensors")) << "limit " << bytes;
    EXPECT_EQ(names_in(run.path() / "checkpoints"), before) << "limit " << bytes;
    EXPECT_EQ(newest_step(run.path()), 5);
  }
}

// state.json with one field left out and a digest of itself that holds: written by another program.
std::string without(const std::string& text, const std::string& object, const std::string& field) {
  auto json = nlohmann::ordered_json::parse(text);
  (object.empty() ? json : json.at(object)).erase(field);
  json.erase("sha256");
  json["sha256"] = engine::base::sha256_hex(json.dump());
  return json.dump();
}

TEST(Snapshot, G6_MissingFieldIsRefused) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {"data", "cursor"}, {"data", "sha256"}, {"", "step"},        {"", "settings"},
      {"log", "head"},    {"log", "bytes"},   {"", "run"},         {"model", "config_sha256"},
      {"", "files"},      {"", "format"},     {"data", "skipped"},
  };
  for (const auto& [object, field] : fields) {
    const ScratchFolder run;
    save(run.path(), 5);
    const fs::path file = folder_of(run.path(), 5) / "state.json";
    write_bytes(file, without(read_bytes(file), object, field));
    const FoundSnapshot found = find_newest(run.path());
    EXPECT_FALSE(found.newest) << field;
    ASSERT_EQ(found.refused.size(), 1u);
    EXPECT_THAT(found.refused[0], HasSubstr(field));
  }
}

TEST(Snapshot, PlantedFaults) {
  const ScratchFolder run;
  save(run.path(), 5);
  const fs::path file = folder_of(run.path(), 5) / "state.json";
  const std::string good = read_bytes(file);
  write_bytes(file, without(good, "", "nothing of that name"));
  EXPECT_EQ(newest_step(run.path()), 5) << "the refusals above must come from the field alone";
  // One step on, as a resume that forgot the cursor's place would have it.
  std::string bad = good;
  bad.replace(bad.find("\"cursor\": 10"), 12, "\"cursor\": 11");
  write_bytes(file, bad);
  EXPECT_EQ(newest_step(run.path()), -1);
  write_bytes(file, good);
  // Moments of another checkpoint: whole in themselves, not those of this one.
  save(run.path(), 10);
  fs::copy_file(folder_of(run.path(), 10) / "moments.safetensors",
                folder_of(run.path(), 5) / "moments.safetensors",
                fs::copy_options::overwrite_existing);
  fs::remove_all(folder_of(run.path(), 10));
  EXPECT_EQ(newest_step(run.path()), -1);
}

}  // namespace
