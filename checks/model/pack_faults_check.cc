// What a packed copy is compared with, and that one which differs is never used.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "checks/model/pack_case.h"
#include "engine/store/digests.h"

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

// A safetensors file whose header was changed; what follows it is as it was.
std::string with_header(const std::string& file,
                        const std::function<void(nlohmann::ordered_json&)>& change) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const std::string data = file.substr(sizeof length + length);
  auto json = nlohmann::ordered_json::parse(file.substr(sizeof length, length));
  change(json);
  std::string header = json.dump();
  const std::size_t block = engine::store::kBlock;
  const std::size_t bytes = (sizeof length + header.size() + block - 1) / block * block;
  header.resize(bytes - sizeof length, ' ');
  length = header.size();
  std::string changed(sizeof length, '\0');
  std::memcpy(changed.data(), &length, sizeof length);
  return changed + header + data;
}

// A block of padding behind all else.
void add_padding(std::string& file) {
  file = with_header(file, [](nlohmann::ordered_json& header) {
    const std::uint64_t end = std::prev(header.end()).value().at("data_offsets").at(1);
    header["padding.more"] = {{"dtype", "U8"},
                              {"shape", {engine::store::kBlock}},
                              {"data_offsets", {end, end + engine::store::kBlock}}};
  });
  file.append(engine::store::kBlock, '\0');
}

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
  // What comes of telling is no matter of the read.
  reader.use(std::move(copy), [&](const std::string& why) {
    told.push_back(why);
    throw std::runtime_error("cannot be told");
  });
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
      {"the last byte", pack, [](std::string& text) { text.back() ^= 1; }, "modified_ns"},
      {"a block of padding", pack, add_padding, "padding has less than 4096"},
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
      {"more than any index has", index,
       [](std::string& text) { text.append(std::size_t{8} << 20, ' '); },
       "more than the 8388608 expected"},
      {"a key twice", index, replace("{\"format\"", "{\"copy\": {}, \"format\""), "copy"},
      {"no digest", index, in_row("\"sha256\"", "\"sha512\""), "sha256"},
      {"a number for a name", index, replace(row.c_str(), "7"), "name is number"},
      {"a negative offset", index, in_row("\"offset\":", "\"offset\":-"), "not a whole number"},
      {"another name of the copy", index, replace("\"file\":\"pack.", "\"file\":\"pact."),
       "name of the file is pack.safetensors, "},
      {"a name of a shard", index, in_row("\"shard\":\"model", "\"shard\":\"modem"),
       "lies in model-"},
      {"a line more in the verification", engine::store::kPackVerified,
       [](std::string& text) { text += "more\n"; }, "was compared as more, but is (no more) now"},
      {"a line less in the verification", engine::store::kPackVerified,
       [](std::string& text) { text.erase(text.rfind('\n', text.size() - 2) + 1); },
       "was compared as (no more), but is "},
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

TEST(Pack, PaddingIsZeroAndMayBeEmpty) {
  checks::ScratchFolder folder;
  const fs::path pack = folder / "pack", file = pack / engine::store::kPackFile;
  fs::copy(tiny_copy(), pack);
  const std::string right = read_bytes(file);
  std::uint64_t place = 0;
  const ShardReader packed(pack);
  for (const TensorEntry& entry : packed.entries()) {
    if (entry.name.starts_with(engine::store::kPadding)) place = entry.offset + entry.bytes - 1;
  }
  ASSERT_GT(place, 0u);
  std::string bytes = right;
  bytes[place] ^= 0x40;
  write_bytes(file, bytes);
  EXPECT_THAT(verify_copy(pack, checks::tiny_checkpoint()),
              AllOf(HasSubstr("tensor padding."), HasSubstr("is 0x40, padding is 0x00"),
                    HasSubstr(fmt::format("at byte {}:", place))));
  // Before every tensor one more that has no bytes.
  write_bytes(file, with_header(right, [](nlohmann::ordered_json& header) {
                std::vector<std::uint64_t> begins;
                for (const auto& [name, tensor] : header.items()) {
                  if (name != "__metadata__") begins.push_back(tensor.at("data_offsets").at(0));
                }
                for (const std::uint64_t begin : begins) {
                  header[fmt::format("padding.none{}", begin)] = {
                      {"dtype", "U8"}, {"shape", {0}}, {"data_offsets", {begin, begin}}};
                }
              }));
  auto index = engine::store::read_pack_index(pack / engine::store::kPackIndex);
  index.copy = engine::store::shards_of(ShardReader(pack)).front();
  engine::store::write_pack_index(pack / engine::store::kPackIndex, index);
  ASSERT_EQ(verify_copy(pack, checks::tiny_checkpoint()), "");
  const ShardReader reader(checks::tiny_checkpoint());
  const PackedCopy copy(pack, reader, engine::model::load_config(checks::tiny_checkpoint()).sha256);
  const auto entries = copy.reader().entries();
  for (std::size_t i = 0; i + 2 < entries.size(); ++i) {
    const TensorEntry &one = entries[i], &empty = entries[i + 1], &two = entries[i + 2];
    const auto padding = [](const TensorEntry& entry) {
      return entry.name.starts_with(engine::store::kPadding);
    };
    if (padding(one) || padding(two)) continue;
    ASSERT_EQ(empty.bytes, 0u);
    const auto pieces = copy.sources(one.offset + 1, one.bytes + two.bytes - 1);
    ASSERT_EQ(pieces.size(), 2u);
    EXPECT_EQ(pieces[0].tensor->name, one.name);
    EXPECT_EQ(pieces[1].tensor->name, two.name);
    EXPECT_EQ(pieces[1].skip, 0u);
  }
}

// The index against a digest manifest of the same checkpoint, and of one in which a row differs.
TEST(Pack, DigestsOfTheIndexAreThoseOfTheManifest) {
  checks::ScratchFolder folder;
  const ShardReader reader(checks::tiny_checkpoint());
  const std::string config = engine::model::load_config(checks::tiny_checkpoint()).sha256;
  const PackedCopy copy(tiny_copy(), reader, config);
  const fs::path manifest = folder / "digests";
  engine::store::write_digests(manifest, reader, config);
  EXPECT_EQ(checks::described(engine::store::compare_digests(copy, manifest)), "");
  const std::string right = read_bytes(manifest);
  const std::size_t row = right.find(fmt::format("{{\"name\": \"{}\"", kPackedNorm));
  ASSERT_NE(row, std::string::npos);
  const std::size_t end = right.find('\n', row), digest = right.find("\"sha256\": \"", row) + 11;
  const std::string was = right.substr(digest, 64), now(64, 'a');
  write_bytes(manifest, right.substr(0, digest) + now + right.substr(digest + 64));
  EXPECT_THAT(checks::described(engine::store::compare_digests(copy, manifest)),
              AllOf(HasSubstr(engine::store::kPackIndex), HasSubstr(kPackedNorm), HasSubstr(was),
                    HasSubstr(now)));
  write_bytes(manifest, right.substr(0, row) + right.substr(end + 1));
  EXPECT_THAT(checks::described(engine::store::compare_digests(copy, manifest)),
              AllOf(HasSubstr(kPackedNorm), HasSubstr(was), HasSubstr("no such tensor")));
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
