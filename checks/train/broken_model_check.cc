#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checks/compare.h"
#include "checks/engine_run.h"
#include "checks/train/toy.h"
#include "engine/base/error.h"
#include "engine/model/model.h"
#include "engine/train/trainer.h"

// Training on a whole model whose files or disks fail under it.
namespace {

namespace fs = std::filesystem;
using checks::FileSizeLimit;
using checks::read_bytes;
using checks::ScratchFolder;
using checks::why_refused;
using engine::store::ShardReader;
using engine::store::TensorEntry;
using testing::AllOf;
using testing::HasSubstr;

// Called when a layer is done.
using Moment = std::function<void(std::int64_t step, std::string_view direction, std::int64_t)>;

class BrokenModel : public testing::Test {
 protected:
  BrokenModel() : model_(folder_ / "model") {
    fs::copy(checks::tiny_checkpoint(), model_, fs::copy_options::recursive);
    for (const auto& file : fs::directory_iterator(model_)) {
      fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
    }
    fs::create_directory(folder_ / "scratch");
  }

  // Three steps over one sequence, a checkpoint behind each.
  void train(const std::string& run, bool resume, const Moment& moved = {}) {
    engine::base::RamBudget budget(std::uint64_t{1} << 30);
    engine::model::Model model(model_, budget, {folder_ / "scratch", false});
    engine::train::Job job;
    job.run = folder_ / run;
    job.resume = resume;
    job.settings.schedule = {1e-2, 1e-4, 1, 3};
    job.settings.adapter = {2, 4.0, {"q", "expert_down"}};
    job.settings.checkpoint_every = 1;
    job.sequence_names = {"ids"};
    job.sequences = {checks::random_ids(40, model.config().vocabulary, 1)};
    engine::train::OpenRun open = engine::train::open_run(std::move(job));
    engine::model::AdapterSet adapters(model.config(), open.job.settings.adapter, budget);
    const engine::train::SweepFunctions sweep{
        [&](const engine::model::Batch& batch, engine::model::AdapterSet& set,
            const engine::model::SweepHooks& hooks) {
          return model.forward_backward(batch, set, hooks);
        },
        {}};
    engine::train::Observer observer;
    if (moved) {
      observer.moved = [&](const engine::train::Movement& m) {
        moved(m.step, m.direction, m.layer);
      };
    }
    engine::train::Trainer(std::move(open), adapters, budget, sweep, observer).run();
  }

  // What a run leaves that broke in step 3, and that it goes on to the bytes of one that did not.
  void expect_whole_behind_step_2(const std::string& run) {
    const auto found = engine::train::find_newest(folder_ / run);
    ASSERT_TRUE(found.newest);
    EXPECT_EQ(found.newest->state.step, 2);
    EXPECT_TRUE(found.refused.empty());
    EXPECT_FALSE(fs::exists(folder_ / run / "adapter.safetensors"));
    const auto lines = checks::log_of(folder_ / run);
    EXPECT_LE(checks::phase(lines, "checkpoint").size(), 2u);
  }
  void expect_resumes_to(const std::string& run, const std::string& straight) {
    train(run, true);
    EXPECT_EQ(checks::reproducible(folder_ / run), checks::reproducible(folder_ / straight));
  }

  ScratchFolder folder_;
  fs::path model_;
};

// A14 (JustVugg/colibri#331): a shard cut after it was opened, before layer 8 is read from it.
TEST_F(BrokenModel, A14_ShardCutUnderARunStopsItWithTheNumbers) {
  train("straight", false);
  const ShardReader reader(model_);
  const TensorEntry& entry = reader.find("language_model.model.layers.8.input_layernorm.weight");
  const fs::path shard = reader.file_of(entry).path();
  const std::string whole = read_bytes(shard);
  const auto cut = [&](std::int64_t step, std::string_view direction, std::int64_t layer) {
    if (step == 3 && direction == "forward" && layer == 6) {
      fs::resize_file(shard, entry.offset + entry.bytes / 2);
    }
  };
  EXPECT_THAT(why_refused([&] { train("cut", false, cut); }),
              AllOf(HasSubstr("step 3, forward, after layer "), HasSubstr(shard.string()),
                    testing::ContainsRegex("short read at offset [0-9]+, got [0-9]+ of [0-9]+")));
  expect_whole_behind_step_2("cut");
  checks::write_bytes(shard, whole);
  expect_resumes_to("cut", "straight");
}

// The first shard that ends with an expert.
const TensorEntry& last_expert_of_a_shard(const ShardReader& reader) {
  const auto entries = reader.entries();
  for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
    const bool last = entries[i + 1].shard != entries[i].shard;
    if (last && entries[i].name.find(".experts.") != std::string_view::npos) return entries[i];
  }
  throw std::runtime_error("no shard ends with an expert");
}

// B8: one expert that cannot be read any more, everything else can. No zero stands in for it.
TEST_F(BrokenModel, B8_ExpertThatCannotBeReadStopsTheStep) {
  train("straight", false);
  const ShardReader reader(model_);
  const TensorEntry& entry = last_expert_of_a_shard(reader);
  const fs::path shard = reader.file_of(entry).path();
  const std::string whole = read_bytes(shard);
  const auto cut = [&](std::int64_t step, std::string_view direction, std::int64_t layer) {
    if (step == 3 && direction == "forward" && layer == 0) fs::resize_file(shard, whole.size() - 1);
  };
  EXPECT_THAT(why_refused([&] { train("unreadable", false, cut); }),
              AllOf(HasSubstr("step 3"), HasSubstr(shard.string()), HasSubstr("short read")));
  expect_whole_behind_step_2("unreadable");
  EXPECT_EQ(checks::phase(checks::log_of(folder_ / "unreadable"), "step_end").size(), 2u);
  checks::write_bytes(shard, whole);
  expect_resumes_to("unreadable", "straight");
}

// C6 (deepspeedai/DeepSpeed#2006, #1627, #3506): one token behind 128 through the same model.
TEST_F(BrokenModel, C6_RaggedSequencesThroughTheActivationStore) {
  const auto gradient = [&](bool after_a_long_one) {
    checks::Engine engine(model_);
    const auto adapters = checks::random_adapter_set(engine, 2, 4.0, 1);
    const auto ids = checks::random_ids(129, engine.config().vocabulary, 1);
    if (after_a_long_one) {
      engine.model.forward_backward(
          {{ids.begin(), ids.end() - 1}, {ids.begin() + 1, ids.end()}, {0, 128}}, *adapters);
      adapters->clear_gradients();
    }
    engine.model.forward_backward({{ids[5]}, {ids[6]}, {0, 1}}, *adapters);
    std::vector<float> all;
    for (const auto& tensor : adapters->tensors()) {
      all.insert(all.end(), tensor.gradient.begin(), tensor.gradient.end());
    }
    return all;
  };
  const auto result = checks::same_bits(gradient(true), gradient(false));
  EXPECT_TRUE(result) << result.why;
}

// Empties what is open below `folder`; it has no name any more.
int empty_scratch_files(const fs::path& folder) {
  int emptied = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = fs::read_symlink(entry.path(), ignored).string();
    if (!target.starts_with(folder.string()) || !target.ends_with(" (deleted)")) continue;
    if (::ftruncate(std::stoi(entry.path().filename().string()), 0) == 0) ++emptied;
  }
  return emptied;
}

TEST_F(BrokenModel, C6_EmptyActivationStoreIsAnErrorThatNamesLayerAndStep) {
  train("straight", false);
  int emptied = 0;
  const auto empty = [&](std::int64_t step, std::string_view direction, std::int64_t layer) {
    if (step == 3 && direction == "backward" && layer == 9) {
      emptied = empty_scratch_files(folder_ / "scratch");
    }
  };
  EXPECT_THAT(why_refused([&] { train("empty", false, empty); }),
              AllOf(HasSubstr("step 3, backward, after layer 9"), HasSubstr("scratch file"),
                    HasSubstr("read 0 of ")));
  EXPECT_EQ(emptied, 1);
  expect_whole_behind_step_2("empty");
  expect_resumes_to("empty", "straight");
}

// G8 (mlfoundations/open_lm#154, awslabs/awsome-distributed-ai#1225): a disk that is full under the
// activation store, and under a checkpoint; here a limit on the size of files, which gives the same
// failure of write(2). The log, a few kilobytes by then, is below both limits.
TEST_F(BrokenModel, G8_DiskFullInTheThirdStepLeavesTheSecondCheckpoint) {
  train("straight", false);
  struct Case {
    const char* run;
    const char* direction;
    std::int64_t layer;
    rlim_t bytes;
    const char* says;
  };
  for (const Case& c : {Case{"store", "forward", 0, 40'000, "scratch file: wrote"},
                        Case{"checkpoint", "backward", 0, 40'000, "safetensors"}}) {
    std::optional<FileSizeLimit> full;
    const auto fill = [&](std::int64_t step, std::string_view direction, std::int64_t layer) {
      if (step == 3 && direction == c.direction && layer == c.layer) full.emplace(c.bytes);
    };
    const std::string why = why_refused([&] { train(c.run, false, fill); });
    EXPECT_TRUE(full) << "nothing was full: the test did not test";
    full.reset();
    EXPECT_THAT(why, AllOf(HasSubstr(c.says), HasSubstr("File too large"))) << c.run;
    expect_whole_behind_step_2(c.run);
    expect_resumes_to(c.run, "straight");
  }
}

// What the tests above must tell from a run that stops: with zeros in place of that expert it trains
// to the end, with other bytes and without a word.
TEST_F(BrokenModel, PlantedFaults) {
  train("straight", false);
  const ShardReader reader(model_);
  const TensorEntry& entry = last_expert_of_a_shard(reader);
  const fs::path shard = reader.file_of(entry).path();
  std::string bytes = read_bytes(shard);
  // "...experts.7."
  const std::size_t number = entry.name.find(".experts.") + 9;
  const std::string_view expert = entry.name.substr(0, entry.name.find('.', number) + 1);
  for (const TensorEntry& other : reader.entries()) {
    if (other.name.starts_with(expert)) {
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(other.offset), other.bytes, '\0');
    }
  }
  checks::write_bytes(shard, bytes);
  train("zero", false);
  EXPECT_NE(read_bytes(folder_ / "zero/adapter.safetensors"),
            read_bytes(folder_ / "straight/adapter.safetensors"));
}

}  // namespace
