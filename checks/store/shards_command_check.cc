#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checks/engine_run.h"
#include "checks/store/shard_files.h"
#include "engine/cli/shards.h"
#include "engine/store/shard_reader.h"

namespace {

using engine::store::ShardReader;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

struct Outcome {
  std::string out;    // what was printed
  std::string error;  // empty: it holds
};

// `lazylora shards ARGUMENTS`
Outcome shards(std::vector<std::string> arguments) {
  CLI::App app;
  engine::cli::add_shards_command(app);
  arguments.insert(arguments.begin(), "shards");
  std::ranges::reverse(arguments);  // as the library wants it
  testing::internal::CaptureStdout();
  Outcome outcome;
  outcome.error = checks::error_of([&] { app.parse(arguments); });
  std::fflush(stdout);
  outcome.out = testing::internal::GetCapturedStdout();
  return outcome;
}

class ShardsCommand : public testing::Test {
 protected:
  ShardsCommand() : model_((folder_ / "a \"model\" für alle").string()) {
    fs::copy(checks::tiny_checkpoint(), model_, fs::copy_options::recursive);
    for (const auto& file : fs::directory_iterator(model_)) {
      fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
    }
  }
  // XORs `bits` into a byte of a tensor and returns the tensor's place as findings print it.
  std::string damage(const std::string& name, std::uint64_t at, char bits) const {
    const ShardReader reader(model_);
    const auto& entry = reader.find(name);
    const fs::path path = reader.file_of(entry).path();
    std::string bytes = checks::read_bytes(path);
    bytes[entry.offset + at] = static_cast<char>(bytes[entry.offset + at] ^ bits);
    checks::write_bytes(path, bytes);
    return path.string() + ": tensor " + name + ": at byte " + std::to_string(entry.offset);
  }

  const std::string expert_ = "language_model.model.layers.5.block_sparse_moe.experts.7.w2.";
  checks::ScratchFolder folder_;
  std::string model_;
};

TEST_F(ShardsCommand, J6_Holds) {
  const Outcome outcome = shards({model_});
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("1492"), HasSubstr("13: 9 KDA, 4 MLA; 1 dense, 12 with experts"),
                    HasSubstr("16 a layer, 4 chosen"), HasSubstr("content   not verified"),
                    HasSubstr(": holds\n"), Not(HasSubstr("error: ")), Not(HasSubstr("scales"))));
}

TEST_F(ShardsCommand, A10_DigestsTellWhatHeadersCannot) {
  const std::string manifest = (folder_ / "digests.json").string();
  EXPECT_EQ(shards({model_, "--write-digests", manifest}).error, "");
  EXPECT_THAT(shards({model_, "--digests", manifest}).out,
              AllOf(HasSubstr("content   verified against"), HasSubstr("0 with scale byte 255")));
  const std::string place = damage(expert_ + "weight_packed", 77, 0x04);
  EXPECT_THAT(shards({model_}).out, AllOf(HasSubstr("not verified"), HasSubstr(": holds\n")));
  const Outcome outcome = shards({model_, "--digests", manifest});
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("error: " + place), HasSubstr("content   differs from"),
                                 HasSubstr(": does not hold\n")));
  EXPECT_THAT(outcome.error, HasSubstr(": 1 error"));
}

TEST_F(ShardsCommand, A8_CacheOfAVerification) {
  const std::string manifest = (folder_ / "digests.json").string();
  const std::string cache = (folder_ / "verified").string();
  EXPECT_EQ(shards({model_, "--write-digests", manifest}).error, "");
  const std::vector<std::string> verify = {model_, "--digests", manifest, "--cache", cache};
  EXPECT_THAT(shards(verify).out, HasSubstr("verified against"));
  EXPECT_THAT(shards(verify).out, HasSubstr("verified before against"));
  damage(expert_ + "weight_packed", 0, 1);
  EXPECT_THAT(shards(verify).out, HasSubstr("differs from")) << "the file has another time now";
  damage(expert_ + "weight_packed", 0, 1);
  EXPECT_THAT(shards(verify).out, HasSubstr("content   verified against"));
  const fs::path shard = ShardReader(model_).files()[0].path();
  fs::resize_file(shard, fs::file_size(shard) - 1);
  const Outcome outcome = shards(verify);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("error: " + shard.string()), Not(HasSubstr("verified before"))));
  EXPECT_NE(outcome.error, "");
}

TEST_F(ShardsCommand, StrictRefusesScaleBytesOf255) {
  EXPECT_EQ(shards({model_, "--strict"}).error, "");
  const ShardReader reader(model_);
  const auto& scale = reader.find(expert_ + "weight_scale");
  std::string bytes = checks::read_bytes(reader.file_of(scale).path());
  bytes[scale.offset + 3] = '\xFF';
  checks::write_bytes(reader.file_of(scale).path(), bytes);
  EXPECT_EQ(shards({model_}).error, "");
  const Outcome scanned = shards({model_, "--scan"});
  EXPECT_EQ(scanned.error, "");
  EXPECT_THAT(scanned.out,
              AllOf(HasSubstr("warning: "), HasSubstr(expert_ + "weight_scale"),
                    HasSubstr("1 with scale byte 255, 1 of these with non-zero codes")));
  EXPECT_NE(shards({model_, "--strict"}).error, "");
}

// Everything that is wrong in one run: a shard, the configuration.
TEST_F(ShardsCommand, PrintsAllFindings) {
  checks::write_bytes(model_ + "/model-00009-of-00009.safetensors",
                      "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n");
  const std::string config = checks::read_bytes(model_ + "/config.json");
  checks::write_bytes(model_ + "/config.json",
                      checks::replaced(config, "\"vocab_size\"", "\"vocab\""));
  const Outcome outcome = shards({model_});
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("oid sha256:abc, size 12"), HasSubstr("vocab_size is missing"),
                    HasSubstr(": does not hold\n")));
  EXPECT_THAT(outcome.error, HasSubstr("2 errors"));
}

std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

// A shard that cannot be read, a wrong configuration and a tensor of another shape, all in one run;
// the hundreds of tensors of the shard are one line.
TEST_F(ShardsCommand, LayoutIsJudgedAsFarAsCanBeRead) {
  checks::write_bytes(model_ + "/model-00003-of-00004.safetensors", "<!DOCTYPE html><html></html>");
  const std::string config = checks::read_bytes(model_ + "/config.json");
  checks::write_bytes(model_ + "/config.json",
                      checks::replaced(config, "\"vocab_size\": 512", "\"vocab_size\": 500"));
  const Outcome outcome = shards({model_});
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("00003-of-00004.safetensors: at byte 0: this is an HTML page"),
            HasSubstr("of the tensors that the index places in it cannot be judged"),
            HasSubstr("embed_tokens.weight"), HasSubstr("lm_head.weight"),
            HasSubstr("shape is [512,128], the configuration wants [500,128]"),
            HasSubstr("other tensors of the configuration neither"), Not(HasSubstr("is missing"))));
  EXPECT_THAT(outcome.error, HasSubstr(": 3 errors"));
  EXPECT_LT(lines(outcome.out), 14) << outcome.out;
}

TEST_F(ShardsCommand, MissingShardIsNamedFirst) {
  fs::remove(model_ + "/model-00003-of-00004.safetensors");
  const Outcome outcome = shards({model_});
  EXPECT_TRUE(outcome.out.starts_with("error: " + model_ +
                                      "/model-00003-of-00004.safetensors: the shard is missing: "
                                      "the index places "))
      << outcome.out;
  EXPECT_THAT(outcome.error, HasSubstr(": 1 error"));
  EXPECT_THAT(outcome.error, Not(HasSubstr("errors")));
  EXPECT_LT(lines(outcome.out), 10) << outcome.out;
  // Without an index, its neighbours' names tell.
  fs::remove(model_ + "/model.safetensors.index.json");
  const Outcome without = shards({model_});
  EXPECT_THAT(without.out,
              HasSubstr("model-00003-of-00004.safetensors: the shard is missing: there "
                        "is no index"));
  EXPECT_THAT(without.error, HasSubstr(": 1 error"));
  EXPECT_LT(lines(without.out), 10) << without.out;
}

// Nothing hides anything: header, index, configuration and layout, each wrong in its own way.
TEST_F(ShardsCommand, EveryKindOfErrorAtOnce) {
  checks::write_bytes(model_ + "/stray.safetensors", "short");
  const std::string index = checks::read_bytes(model_ + "/model.safetensors.index.json");
  checks::write_bytes(model_ + "/model.safetensors.index.json", index.substr(0, index.size() / 2));
  const std::string config = checks::read_bytes(model_ + "/config.json");
  checks::write_bytes(model_ + "/config.json",
                      checks::replaced(config, "\"vocab_size\": 512", "\"vocab_size\": 511"));
  const Outcome outcome = shards({model_});
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("stray.safetensors"), HasSubstr("the index is not valid JSON"),
                    HasSubstr("the configuration wants [511,128]"), HasSubstr("lm_head.weight"),
                    HasSubstr(": does not hold\n")));
  std::string wrong = checks::replaced(config, "\"vocab_size\": 512", "\"vocab_size\": 0");
  wrong = checks::replaced(wrong, "\"num_experts\": 16", "\"num_experts\": \"16\"");
  wrong = checks::replaced(wrong, "\"q_lora_rank\"", "\"q_rank\"");
  checks::write_bytes(model_ + "/config.json", wrong);
  const Outcome three = shards({model_});
  EXPECT_THAT(three.out, AllOf(HasSubstr("vocab_size is 0"), HasSubstr("num_experts is \"16\""),
                               HasSubstr("q_lora_rank is missing"), HasSubstr("stray.safetensors"),
                               HasSubstr("the index is not valid JSON"),
                               HasSubstr("are not judged: the configuration does not hold")));
  EXPECT_THAT(three.error, HasSubstr(": 5 errors"));
}

TEST_F(ShardsCommand, Json) {
  const auto sound = nlohmann::json::parse(shards({model_, "--json", "--scan"}).out);
  EXPECT_EQ(sound.at("holds"), true);
  EXPECT_EQ(sound.at("content"), "not verified");
  EXPECT_EQ(sound.at("tensors"), 1492);
  EXPECT_EQ(sound.at("mla_layers"), 4);
  EXPECT_EQ(sound.at("nan_groups"), 0);
  EXPECT_TRUE(sound.at("findings").empty());
  checks::write_bytes(model_ + "/a\xFF.safetensors", "short");  // a name that is not UTF-8
  const Outcome outcome = shards({model_, "--json"});
  const auto report = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(report.at("holds"), false);
  EXPECT_EQ(report.at("findings").at(0).at("severity"), "error");
  EXPECT_THAT(report.at("findings").at(0).at("message"), HasSubstr("5 bytes are too few"));
  EXPECT_NE(outcome.error, "");
}

TEST_F(ShardsCommand, ReferenceCheckpoints) {
  CHECKS_NEED(tiny, checks::reference_data("ckpt_tiny"));
  EXPECT_EQ(shards({tiny.string(), "--scan"}).error, "");
  CHECKS_NEED(tool, checks::reference_data("ckpt_tool"));
  const Outcome outcome = shards({tool.string(), "--scan"});
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.out, HasSubstr("note: " + tool.string() + ": no quantization_config"));
}

// Least of all over the model's own configuration.
TEST_F(ShardsCommand, DigestsAreNotWrittenOverAnything) {
  const std::string config = (std::filesystem::path(model_) / "config.json").string();
  const std::string before = checks::read_bytes(config);
  EXPECT_THAT(shards({model_, "--write-digests", config}).error,
              AllOf(HasSubstr(config), HasSubstr("there already")));
  EXPECT_EQ(checks::read_bytes(config), before);
}

// One byte of each kind of tensor changed: the manifest knows every one of them by name.
TEST_F(ShardsCommand, PlantedFaults) {
  const std::string manifest = (folder_ / "digests.json").string();
  EXPECT_EQ(shards({model_, "--write-digests", manifest}).error, "");
  std::vector<std::string> places;
  for (const char* name :
       {"language_model.lm_head.weight", "language_model.model.layers.0.self_attn.A_log",
        "language_model.model.layers.3.self_attn.kv_b_proj.weight",
        "language_model.model.layers.12.block_sparse_moe.experts.15.w3.weight_scale"}) {
    places.push_back(damage(name, 1, 1));
  }
  const Outcome outcome = shards({model_, "--digests", manifest});
  for (const std::string& place : places) EXPECT_THAT(outcome.out, HasSubstr("error: " + place));
  EXPECT_THAT(outcome.error, HasSubstr("4 errors"));
}

}  // namespace
