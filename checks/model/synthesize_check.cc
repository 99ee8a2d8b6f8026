#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/base/sha256.h"
#include "engine/cli/make_model.h"
#include "engine/model/checkpoint_layout.h"
#include "engine/model/synthesize.h"
#include "engine/store/shard_reader.h"

namespace {

using checks::read_bytes;
using checks::ScratchFolder;
using engine::base::Error;
using engine::base::RamBudget;
using engine::model::CheckpointShape;
using engine::store::ShardReader;
using engine::store::TensorEntry;
using testing::HasSubstr;
using Digests = std::map<std::string, std::string>;

// make-model --shape tiny --seed 1. Dumps of the C reference were made of these bytes: they do not
// change any more.
const Digests kTinySeedOne = {
    {"config.json", "f99df1d3242235a0d8214d722221f82cd9a72ff67387078a35083d525c75a465"},
    {"model-00001-of-00004.safetensors",
     "4ed3a5096b738e4de07eb5d8e7973669ad190891e9ef9fae397d2e81e332761f"},
    {"model-00002-of-00004.safetensors",
     "e7f459677a12b39154b36b9c63b4b569f14516682158271506e80631329d9fa6"},
    {"model-00003-of-00004.safetensors",
     "87b31f55aaa3a76b2ce4dc0292b35e12017000de3ae14348f5a0917d431bed23"},
    {"model-00004-of-00004.safetensors",
     "7f0f2df23c7cb51a9240d39d0df585e3e7a8730ccef0540191d3ca47b9265b0c"},
    {"model.safetensors.index.json",
     "62886924aa2872d5db1cd5aa7123767f2a62ab9769541762f8eaff0c21c8f1b1"},
    {"tiktoken.model", "e66088df4cdb28fbad3c55ac5a7ae741bc402e732ed948eb096a8ed6f852768f"},
    {"tokenizer_config.json", "580831c4d2a6ce5c659d6f703e4bd69b7c6c668cd049d09fea557085ecca3fd2"}};

void make(const std::filesystem::path& out, const std::string& shape, std::uint64_t seed) {
  RamBudget budget(std::uint64_t{1} << 30);
  engine::model::synthesize(out, engine::model::checkpoint_shape(shape), seed, budget);
}

Digests digests(const std::filesystem::path& folder) {
  Digests result;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    result[entry.path().filename().string()] = engine::base::sha256_hex_of_file(entry.path());
  }
  return result;
}

Digests digests_of_tiny(std::uint64_t seed, int threads) {
  const int before = engine::base::threads();
  engine::base::set_threads(threads);
  const ScratchFolder scratch;
  make(scratch / "tiny", "tiny", seed);
  engine::base::set_threads(before);
  return digests(scratch / "tiny");
}

// What the release promises about the order of bytes, by names alone; empty if all of it holds: an
// expert's six tensors in their order, one behind the other in one shard; a layer's other tensors
// one run; the experts of a layer not in the order of their ids.
struct Place {
  std::string name;
  std::int32_t shard = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::string run_of(const std::string& name) {
  const std::size_t layer = name.find("layers.");
  if (layer == std::string::npos) return "model";
  const std::size_t expert = name.find("experts.");
  if (expert != std::string::npos && name.find("shared_") == std::string::npos) {
    return name.substr(layer, name.find('.', expert + 8) - layer);
  }
  return name.substr(layer, name.find('.', layer + 7) - layer);
}

std::string fault_in_order(const std::vector<Place>& places) {
  const std::vector<std::string> parts = {"w1.weight_packed", "w1.weight_scale",
                                          "w2.weight_packed", "w2.weight_scale",
                                          "w3.weight_packed", "w3.weight_scale"};
  std::set<std::string> done;
  std::map<std::string, std::vector<int>> experts;
  for (std::size_t i = 0; i < places.size();) {
    const std::string run = run_of(places[i].name);
    if (!done.insert(run).second) return run + " is no single run";
    std::size_t n = 1;
    for (; i + n < places.size() && run_of(places[i + n].name) == run; ++n) {
      if (places[i + n].shard != places[i].shard) return run + " is torn between shards";
      if (places[i + n].begin != places[i + n - 1].end) return run + " has a gap";
    }
    if (const std::size_t at = run.find(".block_sparse_moe.experts."); at != std::string::npos) {
      experts[run.substr(0, at)].push_back(std::stoi(run.substr(at + 26)));
      for (std::size_t j = 0; j < n; ++j) {
        if (n != 6 || !places[i + j].name.ends_with(parts[j])) return run + " is out of order";
      }
    }
    i += n;
  }
  for (const auto& [layer, ids] : experts) {
    if (std::ranges::is_sorted(ids)) return layer + " has its experts in order of their ids";
  }
  return experts.empty() ? "no experts" : "";
}

std::vector<Place> places_in(const ShardReader& reader) {
  std::vector<Place> places;
  for (const TensorEntry& entry : reader.entries()) {
    places.push_back(
        {std::string(entry.name), entry.shard, entry.offset, entry.offset + entry.bytes});
  }
  return places;
}

TEST(Synthesize, TinyKeepsItsBytesAtAnyNumberOfThreads) {
  EXPECT_EQ(digests_of_tiny(1, 1), kTinySeedOne);
  EXPECT_EQ(digests_of_tiny(1, 4), kTinySeedOne);
  EXPECT_EQ(digests_of_tiny(1, 4), kTinySeedOne) << "second run";
}

TEST(Synthesize, IsACheckpointOfTheReleasedLayout) {
  const ScratchFolder scratch;
  make(scratch / "tiny", "tiny", 1);
  EXPECT_TRUE(engine::store::inspect_shards(scratch / "tiny").empty());
  const ShardReader reader(scratch / "tiny");
  EXPECT_EQ(reader.files().size(), 4u);
  const auto config = engine::model::load_config(scratch / "tiny");
  EXPECT_TRUE(engine::model::check_layout(config, reader).empty());
  EXPECT_EQ(std::ssize(reader.entries()), engine::model::tensor_count(config));
  EXPECT_EQ(fault_in_order(places_in(reader)), "");
  for (const TensorEntry& entry : reader.entries()) {
    EXPECT_TRUE(entry.name.starts_with("language_model.")) << entry.name;
  }
}

// docs/model.md section 2: conv1d, dt_bias, A_log, o_norm and e_score_correction_bias are F32, the
// halves of experts U8, everything else BF16.
TEST(Synthesize, Dtypes) {
  const ScratchFolder scratch;
  make(scratch / "tiny", "tiny", 1);
  const ShardReader reader(scratch / "tiny");
  for (const TensorEntry& entry : reader.entries()) {
    const std::string name(entry.name);
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    std::string want = "BF16";
    if (is("weight_packed") || is("weight_scale")) want = "U8";
    if (is("conv1d") || is("dt_bias") || is("A_log") || is("o_norm") || is("correction_bias")) {
      want = "F32";
    }
    EXPECT_EQ(engine::base::name_of(entry.dtype), want) << name;
  }
}

// One decay strength a head; what is behind them is padding.
TEST(Synthesize, TailOfALogIsZero) {
  const ScratchFolder scratch;
  make(scratch / "tiny", "tiny", 1);
  const ShardReader reader(scratch / "tiny");
  std::vector<float> a_log(32);
  reader.read(reader.find("language_model.model.layers.0.self_attn.A_log"),
              std::as_writable_bytes(std::span(a_log)));
  for (std::size_t i = 0; i < a_log.size(); ++i) EXPECT_EQ(a_log[i] == 0.0f, i >= 4) << i;
}

TEST(Synthesize, IndexListsEveryTensorAndTheirBytes) {
  const ScratchFolder scratch;
  make(scratch / "tiny", "tiny", 1);
  const ShardReader reader(scratch / "tiny");
  const auto index =
      nlohmann::json::parse(read_bytes(scratch / "tiny" / "model.safetensors.index.json"));
  std::uint64_t total = 0;
  for (const TensorEntry& entry : reader.entries()) {
    total += entry.bytes;
    EXPECT_EQ(index.at("weight_map").at(std::string(entry.name)),
              reader.file_of(entry).path().filename().string());
  }
  EXPECT_EQ(index.at("weight_map").size(), reader.entries().size());
  EXPECT_EQ(index.at("metadata").at("total_size"), total);
}

// The configuration that is written reads back as the one that was meant.
TEST(Synthesize, ConfigOfEveryShapeReadsBack) {
  for (const char* name : {"tiny", "small", "medium"}) {
    const CheckpointShape shape = engine::model::checkpoint_shape(name);
    const std::string text = engine::model::config_json(shape.config);
    const engine::model::Config read = engine::model::parse_config(text, name);
    EXPECT_EQ(engine::model::config_json(read), text);
    EXPECT_EQ(read.rms_norm_eps, 1e-5f);
    EXPECT_TRUE(read.is_mla.back() && read.is_mla[3] && !read.is_mla[0]);
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json.at("model_type"), "kimi_k3");
    const auto& linear = json.at("text_config").at("linear_attn_config");
    EXPECT_EQ(linear.at("full_attn_layers").front(), 4) << "one-based";
    EXPECT_EQ(linear.at("full_attn_layers").size() + linear.at("kda_layers").size(),
              read.is_mla.size());
  }
  EXPECT_THROW(engine::model::checkpoint_shape("huge"), Error);
}

TEST(Synthesize, RefusesAFolderThatHoldsSomething) {
  const ScratchFolder scratch;
  std::filesystem::create_directory(scratch / "out");
  make(scratch / "out", "tiny", 1);  // an empty one is taken
  const Digests before = digests(scratch / "out");
  try {
    make(scratch / "out", "tiny", 2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr((scratch / "out").string()));
  }
  EXPECT_EQ(digests(scratch / "out"), before);
  checks::write_bytes(scratch / "file", "kept");
  EXPECT_THROW(make(scratch / "file", "tiny", 1), Error);
  EXPECT_EQ(read_bytes(scratch / "file"), "kept");
}

TEST(Synthesize, LeavesNothingAfterAnError) {
  const ScratchFolder scratch;
  {
    const checks::FileSizeLimit limit(1'000'000);
    EXPECT_THROW(make(scratch / "out", "tiny", 1), Error);
  }
  RamBudget budget(1000);
  EXPECT_THROW(engine::model::synthesize(scratch / "out", engine::model::checkpoint_shape("tiny"),
                                         1, budget),
               Error);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

// What is wrong with `sparse` as the sparse version of `whole`; empty if nothing is.
std::string fault_in_sparse(const ShardReader& sparse, const ShardReader& whole,
                            const std::string& real_layer) {
  if (sparse.entries().size() != whole.entries().size()) return "number of tensors";
  for (const TensorEntry& entry : whole.entries()) {
    const TensorEntry* other = sparse.find_if_any(entry.name);
    if (other == nullptr || other->shape != entry.shape) return std::string(entry.name);
    std::vector<std::byte> want(entry.bytes), got(entry.bytes);
    whole.read(entry, want);
    sparse.read(*other, got);
    const std::string name(entry.name);
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool real = !is("layers.") || is(real_layer.c_str()) || is("norm.weight") ||
                      is("_res_proj") || is("moe.gate.");
    const bool zero = std::ranges::all_of(got, [](std::byte b) { return b == std::byte{0}; });
    if (real ? got != want || zero : !zero) return name;
  }
  return "";
}

std::uint64_t bytes_on_disk(const std::filesystem::path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    struct stat status {};
    EXPECT_EQ(::stat(entry.path().c_str(), &status), 0);
    bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  return bytes;
}

TEST(Synthesize, ASparseCheckpointIsTheSameWithHoles) {
  const ScratchFolder scratch;
  RamBudget budget(std::uint64_t{1} << 30);
  CheckpointShape shape = engine::model::checkpoint_shape("tiny");
  engine::model::synthesize(scratch / "whole", shape, 1, budget);
  shape.sparse = true;
  shape.real_layers = {3};
  engine::model::synthesize(scratch / "sparse", shape, 1, budget);
  const ShardReader whole(scratch / "whole"), sparse(scratch / "sparse");
  EXPECT_TRUE(engine::store::inspect_shards(scratch / "sparse").empty());
  EXPECT_EQ(fault_in_sparse(sparse, whole, "layers.3."), "");
  for (std::size_t i = 0; i < whole.files().size(); ++i) {
    EXPECT_EQ(sparse.files()[i].size(), whole.files()[i].size());
  }
  // Three layers of four need no space, here at the grain of a file system's blocks.
  EXPECT_LT(bytes_on_disk(scratch / "sparse"), bytes_on_disk(scratch / "whole") / 2);
  // Planted: a layer that should have been real; one that should not; a file without holes.
  EXPECT_NE(fault_in_sparse(sparse, whole, "layers.4."), "");
  EXPECT_NE(fault_in_sparse(whole, whole, "layers.3."), "");
  EXPECT_GT(bytes_on_disk(scratch / "whole"), 6'000'000u);
}

TEST(Synthesize, FullSparseHasTheReleasesNumbers) {
  const CheckpointShape shape = engine::model::checkpoint_shape("full-sparse");
  EXPECT_EQ(shape.shards, 96);
  EXPECT_EQ(engine::model::tensor_count(shape.config), 497'052);  // docs/model.md section 13
  EXPECT_EQ(std::ranges::count(shape.config.is_mla, true), 24);
  EXPECT_TRUE(shape.config.is_mla[3] && shape.config.is_mla[91] && shape.config.is_mla[92]);
  const ScratchFolder scratch;
  RamBudget budget(std::uint64_t{1} << 30);
  CheckpointShape other = engine::model::checkpoint_shape("tiny");
  other.sparse = true;
  other.real_layers = {13};
  EXPECT_THROW(engine::model::synthesize(scratch / "out", other, 1, budget), Error);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Synthesize, CommandWritesAndSaysWhatItWrote) {
  const ScratchFolder scratch;
  CLI::App app;
  engine::cli::add_make_model_command(app);
  const auto run = [&](const std::string& arguments) { app.parse("make-model " + arguments); };
  testing::internal::CaptureStdout();
  run((scratch / "out").string() + " --shape tiny --seed 1 --threads 2 --ram 4GB");
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(digests(scratch / "out"), kTinySeedOne);
  EXPECT_THAT(said, HasSubstr("model-00004-of-00004.safetensors"));
  EXPECT_THAT(said, HasSubstr("8 files"));
  EXPECT_THAT(said, HasSubstr("1492 tensors"));
  EXPECT_THROW(run((scratch / "other").string() + " --ram 1MB"), Error);
  EXPECT_THROW(run((scratch / "other").string() + " --shape huge"), CLI::ParseError);
  EXPECT_THROW(run((scratch / "other").string() + " --seed minus"), CLI::ParseError);
  EXPECT_THROW(run((scratch / "other").string() + " --real-layers 1,3"), CLI::ParseError);
  EXPECT_THROW(run(""), CLI::ParseError);
}

TEST(Synthesize, PlantedFaults) {
  // Another seed is another checkpoint in everything but configuration and tokenizer (experts come in another
  // order, so the index differs as well).
  for (const auto& [name, digest] : digests_of_tiny(2, 1)) {
    const bool of_the_shape =
        name == "config.json" || name.starts_with("tok") || name == "tiktoken.model";
    EXPECT_EQ(digest == kTinySeedOne.at(name), of_the_shape) << name;
  }

  const ScratchFolder scratch;
  make(scratch / "tiny", "tiny", 1);
  const std::vector<Place> good = places_in(ShardReader(scratch / "tiny"));
  ASSERT_EQ(fault_in_order(good), "");
  const auto first = std::ranges::find_if(
      good, [](const Place& place) { return place.name.ends_with("w1.weight_packed"); });
  const std::size_t at = static_cast<std::size_t>(first - good.begin());
  const auto with = [&](auto change) {
    std::vector<Place> places = good;
    change(places);
    return fault_in_order(places);
  };
  EXPECT_NE(with([&](auto& p) { std::swap(p[at].name, p[at + 1].name); }), "");
  EXPECT_NE(with([&](auto& p) { p[at + 3].shard += 1; }), "");
  EXPECT_NE(with([&](auto& p) { p[at + 3].begin += 1; }), "");
  EXPECT_NE(with([&](auto& p) { std::swap(p[0], p[at + 1]); }), "");  // a layer's run broken
  EXPECT_NE(with([&](auto& p) {
              std::ranges::stable_sort(p, [](const Place& a, const Place& b) {
                const auto id = [](const std::string& run) {
                  const std::size_t dot = run.find("experts.");
                  return dot == std::string::npos ? -1 : std::stoi(run.substr(dot + 8));
                };
                const std::string x = run_of(a.name), y = run_of(b.name);
                const std::string lx = x.substr(0, x.find('.', 7)),
                                  ly = y.substr(0, y.find('.', 7));
                return lx != ly ? lx < ly : id(x) < id(y);
              });
              std::uint64_t next = 0;
              for (Place& place : p) {
                place = {place.name, 0, next, next + place.end - place.begin};
                next = place.end;
              }
            }),
            "");
}

}  // namespace
