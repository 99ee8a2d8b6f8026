#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>

#include "checks/store/shard_files.h"
#include "engine/base/sha256.h"
#include "engine/store/digests.h"
#include "engine/store/scale_scan.h"

namespace {

using checks::described;
using checks::error_of;
using checks::read_bytes;
using checks::replaced;
using checks::safetensors;
using checks::write_bytes;
using engine::store::scan_scales;
using engine::store::ShardReader;
using engine::store::verification_is_cached;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kHeader =
    R"({"e.0.weight_packed":{"dtype":"U8","shape":[2,32],"data_offsets":[0,64]},)"
    R"("e.0.weight_scale":{"dtype":"U8","shape":[2,2],"data_offsets":[64,68]},)"
    R"("e.1.weight_packed":{"dtype":"U8","shape":[2,32],"data_offsets":[68,132]},)"
    R"("e.1.weight_scale":{"dtype":"U8","shape":[2,2],"data_offsets":[132,136]}})";
const std::string kConfig(64, 'c');

class DigestsCheck : public testing::Test {
 protected:
  DigestsCheck() : shard_(folder_ / "model.safetensors"), manifest_(folder_ / "digests.json") {
    write_bytes(shard_, safetensors(kHeader, 136));
    engine::store::write_digests(manifest_, ShardReader(folder_.path()), kConfig);
  }
  std::string differences(const std::string& config = kConfig) const {
    return described(verify_digests(manifest_, ShardReader(folder_.path()), config));
  }
  std::size_t data_start() const { return 8 + kHeader.size(); }

  checks::ScratchFolder folder_;
  fs::path shard_;
  fs::path manifest_;
};

TEST_F(DigestsCheck, ManifestSaysWhatIsThere) {
  const std::string text = read_bytes(manifest_);
  const std::string bytes = read_bytes(shard_);
  EXPECT_THAT(text, HasSubstr("\"lazylora digests 1\""));
  EXPECT_THAT(text, HasSubstr("\"config_sha256\": \"" + kConfig));
  EXPECT_THAT(text, HasSubstr("\"header_sha256\": \"" +
                              engine::base::sha256_hex(bytes.substr(0, data_start()))));
  EXPECT_THAT(
      text,
      HasSubstr("{\"name\": \"e.1.weight_packed\", \"shard\": \"model.safetensors\", \"offset\": " +
                std::to_string(data_start() + 68) + ", \"bytes\": 64, \"sha256\": \"" +
                engine::base::sha256_hex(bytes.substr(data_start() + 68, 64))));
  EXPECT_EQ(differences(), "");
}

// A10: one bit of one expert's codes. The header cannot tell; the manifest names tensor and offset.
TEST_F(DigestsCheck, A10_OneBit) {
  std::string bytes = read_bytes(shard_);
  bytes[data_start() + 68 + 40] ^= 0x10;
  write_bytes(shard_, bytes);
  EXPECT_EQ(described(engine::store::inspect_shards(folder_.path())), "");
  const std::string text = differences();
  EXPECT_THAT(text,
              AllOf(HasSubstr(shard_.string()), HasSubstr("tensor e.1.weight_packed"),
                    HasSubstr("at byte " + std::to_string(data_start() + 68)),
                    HasSubstr(engine::base::sha256_hex(bytes.substr(data_start() + 68, 64)))));
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << "nothing else differs";
}

// A10: two tensors of one shape have changed places in the header.
TEST_F(DigestsCheck, A10_SwappedOffsets) {
  std::string header = replaced(kHeader, "[0,64]", "[X]");
  header = replaced(replaced(header, "[68,132]", "[0,64]"), "[X]", "[68,132]");
  write_bytes(shard_, safetensors(header, 136));
  EXPECT_EQ(described(engine::store::inspect_shards(folder_.path())), "");
  EXPECT_THAT(differences(),
              AllOf(HasSubstr("header SHA-256"), HasSubstr("tensor e.0.weight_packed"),
                    HasSubstr("tensor e.1.weight_packed"),
                    HasSubstr("at byte " + std::to_string(data_start() + 68)),
                    HasSubstr("says 64 bytes in model.safetensors at byte " +
                              std::to_string(data_start()))));
}

TEST_F(DigestsCheck, EverythingElseThatMayDiffer) {
  EXPECT_THAT(differences(std::string(64, 'd')),
              AllOf(HasSubstr("config.json"), HasSubstr(kConfig), HasSubstr(std::string(64, 'd'))));
  const std::string text = read_bytes(manifest_);
  const auto with = [&](const std::string& from, const std::string& to) {
    write_bytes(manifest_, replaced(text, from, to));
    std::string found;
    const std::string error = error_of([&] { found = differences(); });
    return found + error;
  };
  EXPECT_THAT(with("e.1.weight_scale", "e.2.weight_scale"),
              AllOf(HasSubstr("tensor e.2.weight_scale"), HasSubstr("in no header"),
                    HasSubstr("tensor e.1.weight_scale"), HasSubstr("not in the manifest")));
  EXPECT_THAT(with("e.1.weight_scale", "e.0.weight_scale"),
              HasSubstr("stands in the manifest twice"));
  EXPECT_THAT(with("\"file\": \"model.safetensors\"", "\"file\": \"other.safetensors\""),
              HasSubstr("other.safetensors is not there"));
  EXPECT_THAT(with("digests 1", "digests 2"), HasSubstr("lazylora digests 2"));
  EXPECT_THAT(with("\"format\": \"lazylora digests 1\",", ""), HasSubstr("has no format"));
  EXPECT_THAT(with("\"config_sha256\"", "\"format\""), HasSubstr("twice"));
  EXPECT_THAT(
      with("\"bytes\": 4, \"sha256\": \"" +
               engine::base::sha256_hex(read_bytes(shard_).substr(data_start() + 64, 4)) + "\"",
           "\"bytes\": 4"),
      HasSubstr("4 fields, not 5"));
  EXPECT_THAT(with("]}\n", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(with("{\"format\"", "{\"more\": 1, \"format\""), HasSubstr("does not belong"));
  EXPECT_THAT(
      with("{\"format\"", "{" + std::string(2 << 20, ' ') + "\"format\""),
      HasSubstr("digests.json: at byte 1048576: more than 1048576 bytes without a quotation"));
  write_bytes(manifest_, "[]");
  EXPECT_THAT(error_of([&] { differences(); }), HasSubstr("does not belong"));
}

// A8: verified once and remembered; whatever changes after that is looked at again.
TEST_F(DigestsCheck, A8_CachedVerification) {
  const fs::path cache = folder_ / "verified";
  const auto key = [&] {
    return verification_key(manifest_, ShardReader(folder_.path()), kConfig);
  };
  EXPECT_FALSE(verification_is_cached(cache, key()));
  write_bytes(cache, "a log, or a shard");
  EXPECT_THAT(error_of([&] { verification_is_cached(cache, key()); }),
              HasSubstr("is not written over"));
  write_bytes(cache, key());
  EXPECT_TRUE(verification_is_cached(cache, key()));

  // By whatever path the folder is named, the files are the same.
  const checks::ScratchFolder elsewhere;
  fs::create_directory_symlink(fs::canonical(folder_.path()), elsewhere / "link");
  EXPECT_EQ(verification_key(manifest_, ShardReader(elsewhere / "link"), kConfig), key());

  // Other content under an old modification time is beyond this cache, as its header says. Any
  // write sets another time.
  const auto time = fs::last_write_time(shard_);
  fs::last_write_time(shard_, time + std::chrono::nanoseconds(1000));
  EXPECT_FALSE(verification_is_cached(cache, key()));
  fs::last_write_time(shard_, time);
  EXPECT_TRUE(verification_is_cached(cache, key()));

  // Same size, same time, another header.
  std::string header = replaced(kHeader, "e.1.weight_scale", "e.1.weight_other");
  write_bytes(shard_, safetensors(header, 136));
  fs::last_write_time(shard_, time);
  EXPECT_FALSE(verification_is_cached(cache, key()));
  write_bytes(shard_, safetensors(kHeader, 136));
  fs::last_write_time(shard_, time);
  EXPECT_TRUE(verification_is_cached(cache, key()));

  // Another manifest, another configuration.
  EXPECT_FALSE(verification_is_cached(
      cache, verification_key(manifest_, ShardReader(folder_.path()), std::string(64, 'd'))));
  write_bytes(manifest_, read_bytes(manifest_) + "\n");
  EXPECT_FALSE(verification_is_cached(cache, key()));

  // Shortened: the file is refused before any cache is asked.
  ASSERT_EQ(::truncate(shard_.c_str(), static_cast<off_t>(data_start() + 100)), 0);
  fs::last_write_time(shard_, time);
  EXPECT_THAT(error_of([&] { key(); }), AllOf(HasSubstr("100 bytes of data"), HasSubstr("132")));
}

TEST_F(DigestsCheck, A14_CutWhileHashing) {
  const ShardReader reader(folder_.path());
  ASSERT_EQ(::truncate(shard_.c_str(), static_cast<off_t>(data_start() + 100)), 0);
  EXPECT_THAT(error_of([&] { write_digests(folder_ / "new.json", reader, kConfig); }),
              HasSubstr("short read"));
  EXPECT_FALSE(fs::exists(folder_ / "new.json"));
  EXPECT_FALSE(error_of([&] { verify_digests(manifest_, reader, kConfig); }).empty());
}

// Groups 0 ... 3 of e.1: scales 255, 255, 253, 254.
TEST_F(DigestsCheck, ScaleBytes) {
  std::string bytes = read_bytes(shard_);
  const std::size_t codes = data_start() + 68;
  const std::size_t scales = data_start() + 132;
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(data_start()), 136, '\0');
  const auto scan = [&](bool strict) {
    write_bytes(shard_, bytes);
    std::vector<engine::store::Finding> findings;
    const auto result = scan_scales(ShardReader(folder_.path()), strict, findings);
    EXPECT_EQ(result.tensors, 2u);
    EXPECT_EQ(result.groups, 8u);
    return std::pair(result, described(findings) +
                                 (count(findings, engine::store::Severity::kError) > 0 ? "!" : ""));
  };
  EXPECT_EQ(scan(true).second, "");

  bytes.replace(scales, 4, "\xFF\xFF\xFD\xFE");
  bytes[codes + 3] = '\x80';        // minus zero: no code
  bytes[codes + 16 + 15] = '\x10';  // 0.5 in the second group's last odd column
  auto [found, text] = scan(false);
  EXPECT_EQ(found.nan_groups, 2u);
  EXPECT_EQ(found.nan_groups_with_codes, 1u);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("tensor e.1.weight_scale"), HasSubstr("at byte " + std::to_string(scales)),
            HasSubstr("2 of 4 groups"), HasSubstr("1 of them"), testing::Not(HasSubstr("!"))));
  EXPECT_THAT(scan(true).second, HasSubstr("!"));

  // 3 (code 5) * 2^126 and 1.5 (code 3) * 2^127 are the largest that float32 holds; 4 (6) and 2 (4)
  // with these scales are not.
  bytes[codes + 32] = '\x05';
  bytes[codes + 48] = '\x30';
  EXPECT_THAT(scan(false).second, testing::Not(HasSubstr("!")));
  bytes[codes + 32] = '\x06';
  EXPECT_THAT(scan(false).second, AllOf(HasSubstr("!"), HasSubstr("scale byte 253 overflows"),
                                        HasSubstr("at byte " + std::to_string(scales + 2))));
  bytes[codes + 32] = '\x00';
  bytes[codes + 48] = '\xC0';  // -2 in an odd column
  EXPECT_THAT(scan(false).second, AllOf(HasSubstr("!"), HasSubstr("scale byte 254 overflows"),
                                        HasSubstr("at byte " + std::to_string(scales + 3))));
}

// A check by size and header alone, or one that only compares lengths, accepts every damage of A10.
TEST_F(DigestsCheck, PlantedFaults) {
  const std::string sound = read_bytes(shard_);
  for (std::size_t at = data_start(); at < sound.size(); ++at) {
    std::string bytes = sound;
    bytes[at] ^= 1;
    write_bytes(shard_, bytes);
    EXPECT_EQ(bytes.substr(0, data_start()), sound.substr(0, data_start()));
    EXPECT_NE(differences(), "") << "byte " << at;
  }
}

}  // namespace
