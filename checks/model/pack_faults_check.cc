// What a packed copy is compared with, and that one which differs is never used.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "checks/model/pack_case.h"

namespace {

namespace fs = std::filesystem;
using checks::error_of;
using checks::kPackedNorm;
using checks::read_bytes;
using checks::tiny_copy;
using checks::verify_copy;
using checks::with_copy;
using checks::write_bytes;
using engine::base::RamBudget;
using engine::model::Model;
using engine::store::PackedCopy;
using engine::store::ShardReader;
using engine::store::TensorEntry;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kAmple = std::uint64_t{1} << 40;

// Any bytes of the copy, before and after it was lost.
TEST(Pack, B10_EveryRangeHasItsSourceInTheCheckpoint) {
  checks::ScratchFolder folder;
  fs::copy(tiny_copy(), folder / "pack");
  const std::string bytes = read_bytes(folder / "pack" / engine::store::kPackFile);
  ShardReader reader(checks::tiny_checkpoint());
  std::vector<std::string> told;
  auto copy = std::make_unique<PackedCopy>(
      folder / "pack", reader, engine::model::load_config(checks::tiny_checkpoint()).sha256);
  const PackedCopy& packed = *copy;
  reader.use(std::move(copy), [&](const std::string& why) { told.push_back(why); });
  const auto shard = static_cast<std::int32_t>(reader.files().size());
  const auto check = [&](std::uint64_t offset, std::size_t count) {
    checks::PieceRoom room;
    std::string plain(count, '\x7F');
    reader.read(shard, offset, std::as_writable_bytes(std::span(plain)));
    EXPECT_TRUE(plain == bytes.substr(offset, count)) << offset;
    const auto within = reader.read_within(shard, offset, count, room.room.span());
    EXPECT_EQ(std::memcmp(within.data(), bytes.data() + offset, count), 0) << offset;
  };
  const auto check_all = [&] {
    const auto entries = packed.reader().entries();
    for (std::size_t i = 0; i + 1 < entries.size(); i += 7) {
      if (entries[i].name.starts_with(engine::store::kPadding)) continue;
      check(entries[i].offset, entries[i].bytes);
      check(entries[i].offset + entries[i].bytes / 2, entries[i].bytes / 3);
      if (entries[i + 1].name.starts_with(engine::store::kPadding)) continue;
      check(entries[i].offset + 2, entries[i].bytes + entries[i + 1].bytes - 4);
    }
  };
  check_all();
  EXPECT_EQ(told.size(), 0u);
  const std::uint64_t from_copy = reader.bytes_from_copy();
  EXPECT_EQ(from_copy, reader.bytes_read());
  fs::resize_file(folder / "pack" / engine::store::kPackFile, 0);
  check_all();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], AllOf(HasSubstr(engine::store::kPackFile), HasSubstr("short read")));
  EXPECT_EQ(reader.bytes_from_copy(), from_copy);
  EXPECT_EQ(reader.bytes_read(), 2 * from_copy);
  // A device that comes back, with something else on it, is not asked again.
  fs::resize_file(folder / "pack" / engine::store::kPackFile, bytes.size());
  check_all();
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(reader.bytes_from_copy(), from_copy);
}

// One difference each; what refuses it, and what the message names besides the two values.
TEST(Pack, B10_CopyThatDiffersIsNeverUsed) {
  struct Fault {
    const char* what;
    const char* file;
    std::function<void(std::string&)> plant;
    const char* named;
  };
  const auto replace = [](const char* from, const char* to) {
    return [=](std::string& text) {
      const std::size_t at = text.find(from);
      ASSERT_NE(at, std::string::npos) << from;
      text.replace(at, std::strlen(from), to);
    };
  };
  const std::string row = fmt::format("\"{}\"", kPackedNorm);
  const auto in_row = [&row](const char* from, const char* to) {
    return [=, &row](std::string& text) {
      const std::size_t at = text.find(from, text.find(row));
      ASSERT_NE(at, std::string::npos) << from;
      text.replace(at, std::strlen(from), to);
    };
  };
  const char* pack = engine::store::kPackFile;
  const char* index = engine::store::kPackIndex;
  const std::vector<Fault> faults = {
      {"a name in the header", pack, replace("input_layernorm", "input_layernorn"), "layernorm"},
      {"a dtype in the header", pack, in_row("\"BF16\"", "\"F16\" "), kPackedNorm},
      {"a space in the header", pack, replace("}} ", "}}\n"), "header SHA-256"},
      {"a byte of a tensor", pack, [](std::string& text) { text[text.size() / 2] ^= 1; },
       "modified_ns"},
      {"a byte of the padding", pack, [](std::string& text) { text.back() ^= 1; }, "modified_ns"},
      {"a byte more", pack, [](std::string& text) { text += '\0'; }, "after the last tensor"},
      {"a byte less", pack, [](std::string& text) { text.pop_back(); }, "data_offsets"},
      {"a row less in the index", index,
       [&row](std::string& text) {
         const std::size_t at = text.rfind('\n', text.find(row));
         text.erase(at, text.find('\n', at + 1) - at);
       },
       kPackedNorm},
      {"a dtype in the index", index, in_row("BF16", "F32"), kPackedNorm},
      {"an extent in the index", index, in_row("\"shape\":[", "\"shape\":[1"), kPackedNorm},
      {"a place in the index", index, in_row("\"offset\":", "\"offset\":1"), kPackedNorm},
      {"a digest in the index", index, in_row("\"sha256\":\"", "\"sha256\":\"0"), "manifest"},
      {"another configuration", index, replace("\"config_sha256\": \"", "\"config_sha256\": \"0"),
       "config.json"},
      {"another header of a shard", index, replace("\"header_sha256\":\"", "\"header_sha256\":\"0"),
       "header SHA-256"},
      {"a field more", index, replace("{\"format\"", "{\"more\": 1, \"format\""), "6 fields"},
      {"another format", index, replace("pack 1", "pack 2"), "lazylora pack 2"},
      {"a key twice", index, replace("{\"format\"", "{\"copy\": {}, \"format\""), "copy"},
      {"no digest", index, in_row("\"sha256\"", "\"sha512\""), "sha256"},
      {"a number for a name", index, replace(row.c_str(), "7"), "name is number"},
      {"a negative offset", index, in_row("\"offset\":", "\"offset\":-"), "not a whole number"},
      {"another verification", engine::store::kPackVerified, replace("bytes ", "bytes 1"),
       "was compared as"},
  };
  for (const Fault& fault : faults) {
    checks::ScratchFolder folder;
    fs::copy(tiny_copy(), folder / "pack");
    ASSERT_EQ(verify_copy(folder / "pack", checks::tiny_checkpoint()), "");
    std::string bytes = read_bytes(folder / "pack" / fault.file);
    const std::string before = bytes;
    fault.plant(bytes);
    ASSERT_NE(bytes, before) << fault.what;
    write_bytes(folder / "pack" / fault.file, bytes);
    RamBudget budget(kAmple);
    const std::string why =
        error_of([&] { Model(checks::tiny_checkpoint(), budget, with_copy(folder / "pack")); });
    EXPECT_THAT(why, AllOf(HasSubstr((folder / "pack").string()), HasSubstr(fault.named)))
        << fault.what;
    fs::remove(folder / "pack" / fault.file);
    EXPECT_THAT(
        error_of([&] { Model(checks::tiny_checkpoint(), budget, with_copy(folder / "pack")); }),
        HasSubstr((folder / "pack").string()))
        << fault.what << ": the file is gone";
  }
}

// Names, types and places of the other checkpoint are the same, config.json too: its bytes are not.
TEST(Pack, B10_CopyOfAnotherCheckpointIsNeverUsed) {
  checks::ScratchFolder folder;
  fs::copy(checks::tiny_checkpoint(), folder / "other");
  fs::copy(tiny_copy(), folder / "pack");
  EXPECT_THAT(error_of([&] {
                RamBudget budget(kAmple);
                Model(folder / "other", budget, with_copy(folder / "pack"));
              }),
              HasSubstr("was compared as"));
  EXPECT_EQ(verify_copy(folder / "pack", folder / "other"), "");
  RamBudget budget(kAmple);
  const ShardReader reader(folder / "other");
  const TensorEntry& norm = reader.find(kPackedNorm);
  const fs::path file = reader.file_of(norm).path();
  std::string bytes = read_bytes(file);
  bytes[norm.offset] ^= 0x01;
  write_bytes(file, bytes);
  EXPECT_THAT(error_of([&] { Model(folder / "other", budget, with_copy(folder / "pack")); }),
              AllOf(HasSubstr("was compared as"), HasSubstr(file.filename().string())));
  EXPECT_THAT(verify_copy(folder / "pack", folder / "other"),
              AllOf(HasSubstr(file.string()), HasSubstr(kPackedNorm)));
}

}  // namespace
