#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checks/reference.h"
#include "checks/store/header_faults.h"
#include "checks/store/shard_files.h"
#include "engine/base/rng.h"
#include "engine/store/safetensors_header.h"
#include "engine/store/shard_reader.h"

namespace {

using checks::described;
using checks::error_of;
using checks::HeaderFault;
using checks::kHeader;
using checks::kHeaderFaults;
using checks::replaced;
using checks::safetensors;
using checks::write_bytes;
using engine::base::Dtype;
using engine::store::Finding;
using engine::store::inspect_shards;
using engine::store::Severity;
using engine::store::ShardReader;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class ShardReaderCheck : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    write_bytes(folder_ / name, bytes);
  }
  std::string findings() const { return described(inspect_shards(folder_.path())); }
  std::string opened() const {
    return error_of([&] { ShardReader reader(folder_.path()); });
  }
  checks::ScratchFolder folder_;
};

TEST_F(ShardReaderCheck, FindsAndReads) {
  put("b.safetensors", safetensors(kHeader, 32));
  put("a.safetensors",
      safetensors(R"({"third":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}  )", 2));
  put("notes.txt", "not a shard");
  const ShardReader reader(folder_.path());
  ASSERT_EQ(reader.files().size(), 2u);
  EXPECT_EQ(reader.files()[0].path(), folder_ / "a.safetensors");
  ASSERT_EQ(reader.entries().size(), 3u);
  EXPECT_EQ(reader.entries()[0].name, "third");
  EXPECT_TRUE(reader.entries()[0].shape.empty());
  const auto& first = reader.find("first");
  EXPECT_EQ(first.dtype, Dtype::kF32);
  EXPECT_EQ(first.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(first.offset, 8 + kHeader.size());
  EXPECT_EQ(first.bytes, 24u);
  EXPECT_EQ(reader.file_of(first).path(), folder_ / "b.safetensors");
  const auto& second = reader.find("second");
  std::string bytes(8, '\0');
  reader.read(second, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, safetensors(kHeader, 32).substr(8 + kHeader.size() + 24));
  EXPECT_EQ(reader.bytes_read(), 8u);
  EXPECT_EQ(reader.find_if_any("fourth"), nullptr);
  EXPECT_THAT(error_of([&] { reader.find("fourth"); }),
              AllOf(HasSubstr(folder_.path().string()), HasSubstr("fourth")));
}

TEST_F(ShardReaderCheck, OneWrongField) {
  for (const HeaderFault& fault : kHeaderFaults) {
    SCOPED_TRACE(fault.name);
    put("model.safetensors", safetensors(kHeader, 32));
    ASSERT_EQ(opened(), "") << "the control, which differs in that field only";
    put("model.safetensors", safetensors(replaced(kHeader, fault.from, fault.to), 32));
    const std::string message = opened();
    EXPECT_THAT(message, HasSubstr((folder_ / "model.safetensors").string()));
    EXPECT_THAT(message, HasSubstr(fault.has_tensor ? "tensor second" : "model.safetensors: "));
    for (const char* part : fault.says) EXPECT_THAT(message, HasSubstr(part));
  }
}

// A4: numbers at the edge of 64 bits are refused before anything is allocated for them.
TEST_F(ShardReaderCheck, A4_HugeNumbers) {
  const auto message = [&](const char* from, const char* to) {
    put("model.safetensors", safetensors(replaced(kHeader, from, to), 32));
    return opened();
  };
  EXPECT_THAT(message("[24,32]", "[9223372036854775800,9223372036854775807]"),
              AllOf(HasSubstr("tensor second"), HasSubstr("9223372036854775807"),
                    HasSubstr("32 bytes of data")));
  EXPECT_THAT(message("[24,32]", "[18446744073709551608,18446744073709551615]"),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(message("[24,32]", "[24,18446744073709551616]"),
              HasSubstr("data_offsets[1] is 18446744073709551616"));
  EXPECT_THAT(message("[24,32]", "[24,1e3]"), HasSubstr("data_offsets[1] is 1e3"));
  EXPECT_THAT(message("[24,32]", "[24,1e999]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(message("[24,32]", "[24,\"12\"]"), HasSubstr("data_offsets[1] is \"12\""));
  // 2^32 * 2^32 is 0 in 64 bits, and 0 bytes would fit.
  EXPECT_THAT(message("[8]", "[4294967296,4294967296]"),
              AllOf(HasSubstr("tensor second"), HasSubstr("4294967296,4294967296")));
  EXPECT_THAT(message("[8]", "[9223372036854775808]"), HasSubstr("9223372036854775808"));
  EXPECT_THAT(message("[8]", "[2305843009213693953]"), HasSubstr("2305843009213693953"));
  std::string many = "[8";
  for (int i = 0; i < 100'000; ++i) many += ",1";
  EXPECT_THAT(message("[8]", (many + "]").c_str()), HasSubstr("more than 64"));
}

// A6: both tensors are named, and where they lie.
TEST_F(ShardReaderCheck, A6_OverlapsAndGaps) {
  const std::string begin = std::to_string(8 + kHeader.size() + 24);
  put("model.safetensors", safetensors(replaced(kHeader, "[24,32]", "[20,28]"), 28));
  EXPECT_THAT(opened(), AllOf(HasSubstr("tensor second"), HasSubstr("overlap"),
                              HasSubstr("tensor first"), HasSubstr(begin)));
  put("model.safetensors", safetensors(replaced(kHeader, "[24,32]", "[27,35]"), 35));
  EXPECT_THAT(opened(), AllOf(HasSubstr("tensor second"), HasSubstr("a gap of 3 bytes"),
                              HasSubstr("tensor first"), HasSubstr(begin)));
  put("model.safetensors",
      safetensors(replaced(replaced(kHeader, "[24,32]", "[25,33]"), "[0,24]", "[1,25]"), 33));
  EXPECT_THAT(opened(), AllOf(HasSubstr("tensor first"), HasSubstr("the data begins at"),
                              HasSubstr(std::to_string(8 + kHeader.size()))));
  put("model.safetensors", safetensors(kHeader, 37));
  EXPECT_THAT(opened(), AllOf(HasSubstr("5 bytes after the last tensor"),
                              HasSubstr(std::to_string(8 + kHeader.size() + 32)),
                              HasSubstr(std::to_string(8 + kHeader.size() + 37))));
  // One inside the other, with a third behind: the gap before the third is none.
  put("model.safetensors",
      safetensors(R"({"outer":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                  R"("inner":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
                  R"("behind":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})",
                  10));
  EXPECT_EQ(inspect_shards(folder_.path()).size(), 1u) << findings();
  EXPECT_THAT(findings(), AllOf(HasSubstr("tensor inner"), HasSubstr("tensor outer")));
}

TEST_F(ShardReaderCheck, A2_PointerInPlaceOfTheFile) {
  const std::string oid(64, 'a');
  put("model.safetensors",
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + oid + "\nsize 16106127360\n");
  EXPECT_THAT(opened(), AllOf(HasSubstr("model.safetensors"), HasSubstr("Git LFS pointer"),
                              HasSubstr("sha256:" + oid), HasSubstr("size 16106127360"),
                              testing::Not(HasSubstr("2336927755350992246"))));
  put("model.safetensors", "<!DOCTYPE html>\n<html><body>403 Forbidden</body></html>\n");
  EXPECT_THAT(opened(), HasSubstr("HTML page"));
  put("model.safetensors", "Entry not found, entry not found");
  EXPECT_THAT(opened(), AllOf(HasSubstr("text, not data"), HasSubstr("Entry not found")));
  // A header of 0x3C = '<' bytes is no HTML page.
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(0x3C, ' ');
  put("model.safetensors", safetensors(header, 1));
  EXPECT_EQ(opened(), "");
}

TEST_F(ShardReaderCheck, LengthField) {
  const std::string data(32, 'x');
  const auto message = [&](std::uint64_t length, const std::string& header) {
    put("model.safetensors", checks::length_field(length) + header + data);
    return opened();
  };
  ASSERT_EQ(message(kHeader.size(), kHeader), "");
  const std::string follow = std::to_string(kHeader.size() + 32);
  for (const std::uint64_t length :
       {std::uint64_t{kHeader.size() + 33}, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    EXPECT_THAT(message(length, kHeader),
                AllOf(HasSubstr(std::to_string(length)), HasSubstr("only " + follow)));
  }
  EXPECT_THAT(message(kHeader.size() - 1, kHeader), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(kHeader.size() + 1, kHeader), HasSubstr("not valid JSON"));
  EXPECT_THAT(message(0, kHeader), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(message(kHeader.size() + 1, " " + kHeader), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(message(2, "[]"), HasSubstr("does not begin with '{'"));
  put("model.safetensors", "abc");
  EXPECT_THAT(opened(), HasSubstr("3 bytes are too few"));
  put("model.safetensors", "");
  EXPECT_THAT(opened(), HasSubstr("0 bytes are too few"));
  // A header above the format's cap is refused before it is read: the file is sparse.
  put("model.safetensors", checks::length_field(200'000'000) + "{");
  ASSERT_EQ(::truncate((folder_ / "model.safetensors").c_str(), 300'000'000), 0);
  EXPECT_THAT(opened(), AllOf(HasSubstr("200000000"), HasSubstr("100000000")));
}

TEST_F(ShardReaderCheck, LegalOddities) {
  // Rank 0, no elements (also in the middle, and at the end), foreign dtypes, names that need
  // escapes, entries in another order than their bytes, nothing aligned, spaces behind the header.
  put("model.safetensors",
      safetensors(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[3,7]},)"
                  R"("none":{"dtype":"F32","shape":[0,8],"data_offsets":[3,3]},)"
                  R"("last":{"dtype":"U8","shape":[0],"data_offsets":[23,23]},)"
                  R"("wide":{"data_offsets":[7,23],"shape":[2],"dtype":"I64"},)"
                  R"("a\"b\\c\u00e9\n":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}   )",
                  23));
  EXPECT_EQ(findings(), "");
  const ShardReader reader(folder_.path());
  EXPECT_EQ(reader.entries().size(), 5u);
  EXPECT_EQ(reader.find("a\"b\\c\u00e9\n").bytes, 3u);
  EXPECT_EQ(reader.find("none").bytes, 0u);
  EXPECT_STREQ(reader.find_if_any("wide")->foreign_dtype, "I64");
  EXPECT_THAT(error_of([&] { reader.find("wide"); }),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("wide"), HasSubstr("I64")));
}

TEST_F(ShardReaderCheck, AllFindingsAndTheFirstIsThrown) {
  put("1.safetensors", safetensors(replaced(kHeader, "[8]", "[9]"), 32));
  put("2.safetensors", safetensors(kHeader, 40));
  put("3.safetensors", safetensors(kHeader, 32));
  put("4.safetensors", "short");
  const std::string text = findings();
  EXPECT_THAT(text, HasSubstr("1.safetensors: tensor second: data_offsets"));
  EXPECT_THAT(text, HasSubstr("2.safetensors: at byte"));
  EXPECT_THAT(text, HasSubstr("4.safetensors: at byte 0: 5 bytes are too few"));
  // The name stands in three files; each later one is named with an earlier one.
  EXPECT_THAT(text, HasSubstr("2.safetensors: tensor first: at byte"));
  EXPECT_THAT(text, HasSubstr("the same name stands in 2.safetensors at byte"));
  EXPECT_EQ(inspect_shards(folder_.path()).size(), 6u) << text;
  EXPECT_THAT(opened(), AllOf(HasSubstr("1.safetensors: tensor second"), HasSubstr("5 more")));
}

// Refused from its length alone: read, it would take more than there is before anybody could say so.
TEST_F(ShardReaderCheck, AHeaderThatMemoryDoesNotHoldIsNotRead) {
  put("model.safetensors", safetensors(kHeader, 32));
  const std::uint64_t needed = engine::store::kHeaderTimes * kHeader.size();
  EXPECT_EQ(ShardReader(folder_.path(), {.header_memory = needed}).entries().size(), 2u);
  const auto with_less = [&] { ShardReader(folder_.path(), {.header_memory = needed - 1}); };
  EXPECT_THAT(error_of(with_less),
              AllOf(HasSubstr("model.safetensors: at byte 0: the header takes"),
                    HasSubstr(fmt::format("{} times as much", engine::store::kHeaderTimes)),
                    HasSubstr(fmt::format("{} bytes are free", needed - 1))));
  std::vector<Finding> found;
  ShardReader(folder_.path(), found, {.header_memory = needed - 1});
  EXPECT_EQ(found.size(), 1u) << described(found);
  // Not read: what stands in it is not judged.
  put("model.safetensors", safetensors(replaced(kHeader, "[8]", "[9]"), 32));
  EXPECT_THAT(error_of(with_less), HasSubstr("the header takes"));
}

// Three findings an entry of five bytes: all of them would take a hundred times the file.
TEST_F(ShardReaderCheck, SoManyFindingsAreHeldAndNoMore) {
  std::string header = "{";
  for (int i = 0; i < 5'000; ++i) header += fmt::format("{}\"{}\":{{}}", i == 0 ? "" : ",", i);
  put("model.safetensors", safetensors(header + "}", 0));
  const std::vector<Finding> found = inspect_shards(folder_.path());
  ASSERT_EQ(found.size(), engine::store::kMostFindings + 1);
  EXPECT_THAT(describe(found.front()), HasSubstr("tensor 0: has no dtype"));
  EXPECT_THAT(describe(found.back()), HasSubstr("more than 10000 findings; those behind are not"));
  EXPECT_THAT(opened(), HasSubstr("and 10000 more; `lazylora shards` lists them)"));
  // An error behind so many notes is one all the same.
  std::vector<Finding> notes;
  for (std::size_t i = 0; i < engine::store::kMostFindings + 2; ++i) {
    add(notes, {Severity::kNote, "a.safetensors", "", std::nullopt, "odd"});
  }
  EXPECT_EQ(error_of([&] { engine::store::throw_first_error(notes); }), "");
  add(notes, {Severity::kError, "b.safetensors", "", std::nullopt, "wrong"});
  EXPECT_EQ(notes.size(), engine::store::kMostFindings + 1);
  EXPECT_NE(error_of([&] { engine::store::throw_first_error(notes); }), "");
}

TEST_F(ShardReaderCheck, NamesThatWouldDriveATerminal) {
  put("model.safetensors",
      safetensors(replaced(kHeader, "second\":{\"dtype\":\"U8\"", "\\u001b[2J\":{\"dtype\":\"U7\""),
                  32));
  EXPECT_THAT(findings(), AllOf(HasSubstr("\\x1b[2J"), testing::Not(HasSubstr("\x1b"))));
}

TEST_F(ShardReaderCheck, A12_FilesOfAllKinds) {
  EXPECT_THAT(opened(), HasSubstr("holds no *.safetensors"));
  const fs::path blobs = folder_ / "blobs";
  fs::create_directory(blobs);
  const fs::path snapshot = folder_ / "snapshot";
  fs::create_directory(snapshot);
  // The Hugging Face cache: links named like shards to files that are not.
  write_bytes(blobs / "0123abcd", safetensors(kHeader, 32));
  fs::create_symlink("../blobs/0123abcd", snapshot / "model.safetensors");
  EXPECT_EQ(ShardReader(snapshot).entries().size(), 2u);
  ASSERT_EQ(::mkfifo((snapshot / "pipe.safetensors").c_str(), 0600), 0);
  fs::create_symlink("../blobs/4567", snapshot / "gone.safetensors");
  fs::create_directory(snapshot / "folder.safetensors");
  const std::string text = described(inspect_shards(snapshot));
  EXPECT_THAT(text, HasSubstr("pipe.safetensors: is a FIFO"));
  EXPECT_THAT(text, HasSubstr("gone.safetensors: is a link to ../blobs/4567, which is not there"));
  EXPECT_THAT(text, HasSubstr("folder.safetensors: is a directory"));
  EXPECT_THAT(error_of([&] { inspect_shards(folder_ / "absent"); }), HasSubstr("cannot be listed"));
}

TEST_F(ShardReaderCheck, J6_AnyFolder) {
  const fs::path folder = folder_ / "a \"b\" it's 模型 {}";
  fs::create_directory(folder);
  write_bytes(folder / "model 1.safetensors", safetensors(kHeader, 32));
  EXPECT_EQ(ShardReader(folder).find("second").bytes, 8u);
}

// A14: cut after the headers were read; what is still whole can be read, the rest is named.
TEST_F(ShardReaderCheck, A14_FileCutWhileOpen) {
  put("model.safetensors", safetensors(kHeader, 32));
  const ShardReader reader(folder_.path());
  const auto& first = reader.find("first");
  ASSERT_EQ(
      ::truncate((folder_ / "model.safetensors").c_str(), static_cast<off_t>(first.offset + 20)),
      0);
  std::string bytes(24, '\0');
  EXPECT_THAT(error_of([&] { reader.read(first, std::as_writable_bytes(std::span(bytes))); }),
              AllOf(HasSubstr((folder_ / "model.safetensors").string()), HasSubstr("tensor first"),
                    HasSubstr("short read at offset " + std::to_string(first.offset)),
                    HasSubstr("got 20 of 24")));
  EXPECT_EQ(reader.bytes_read(), 0u);
}

TEST_F(ShardReaderCheck, ReferenceFiles) {
  CHECKS_NEED(files, checks::reference_data("upstream/st"));
  const ShardReader reader(files);
  EXPECT_EQ(reader.entries().size(), 13u);
  EXPECT_EQ(reader.find("weird\\name.\"with\"quotes").shape, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(reader.find("empty.f32").bytes, 0u);
  EXPECT_EQ(reader.find("scalar.f32").bytes, 4u);
  CHECKS_NEED(cache, checks::reference_data("upstream/cache"));
  EXPECT_EQ(ShardReader(cache).entries().size(), 144u);
  CHECKS_NEED(tool, checks::reference_data("ckpt_tool"));
  const ShardReader unaligned(tool);
  EXPECT_EQ(unaligned.entries()[0].offset, 131'326u);
  CHECKS_NEED(tiny, checks::reference_data("ckpt_tiny"));
  const ShardReader indexed(tiny);
  EXPECT_EQ(indexed.entries().size(), 1492u);
  EXPECT_EQ(indexed.files().size(), 3u);
}

// Bytes changed, dropped and doubled at random: whatever comes out, it is findings or a table whose
// tensors lie in the file and tile it (and, under the sanitizers, nothing else happens).
TEST_F(ShardReaderCheck, A4_AnyBytes) {
  const engine::base::CounterRng random(7, "mutations");
  const std::string sound = safetensors(kHeader, 32);
  const std::string letters = "0123456789-.eE[]{},:\"\\ntu\x80\xFF";
  std::uint64_t draw = 0;
  const auto below = [&](std::size_t n) { return random.bits(draw++) % n; };
  std::size_t accepted = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = sound;
    for (std::size_t change = 0; change <= below(3); ++change) {
      const std::size_t at = below(4) == 0 ? below(8) : below(bytes.size());
      const std::size_t kind = below(3);
      if (kind == 0) bytes[at] = letters[below(letters.size())];
      if (kind == 1) bytes.erase(at, 1 + below(4));
      if (kind == 2) bytes.insert(at, bytes.substr(at, 1 + below(8)));
    }
    put("model.safetensors", bytes);
    if (!inspect_shards(folder_.path()).empty()) continue;
    ++accepted;
    const ShardReader reader(folder_.path());
    std::uint64_t sum = 0;
    for (const auto& entry : reader.entries()) {
      sum += entry.bytes;
      EXPECT_LE(entry.offset + entry.bytes, bytes.size());
    }
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    EXPECT_EQ(8 + length + sum, bytes.size());
  }
  EXPECT_GT(accepted, 10u);  // a letter of a name, a byte of data
  EXPECT_LT(accepted, 500u);
}

// The reader one writes in ten minutes: it takes the last of two equal keys, 8.0 for 8, -8 for 2^64
// - 8, and asks only that offsets end inside the file.
bool hasty_reader_accepts(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  try {
    const auto header = nlohmann::json::parse(bytes.substr(8, length));
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      for (const auto& extent : tensor.at("shape")) static_cast<void>(extent.get<std::uint64_t>());
      const auto end = tensor.at("data_offsets").at(1).get<std::uint64_t>();
      if (tensor.at("dtype").get<std::string>().empty() || end > bytes.size() - 8 - length)
        return false;
    }
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

// The table would notice such a reader: it accepts a good part of what must be refused. And every
// fault has its own message: a reader that refused everything for one reason would not pass either.
TEST_F(ShardReaderCheck, PlantedFaults) {
  std::size_t missed = 0;
  std::set<std::string> messages;
  for (const HeaderFault& fault : kHeaderFaults) {
    const std::string bytes = safetensors(replaced(kHeader, fault.from, fault.to), 32);
    put("model.safetensors", bytes);
    messages.insert(opened());
    missed += hasty_reader_accepts(bytes) ? 1 : 0;
  }
  EXPECT_TRUE(hasty_reader_accepts(safetensors(kHeader, 32)));
  EXPECT_GE(missed, 15u);
  EXPECT_EQ(messages.size(), kHeaderFaults.size());
  EXPECT_FALSE(messages.contains(""));
}

}  // namespace
