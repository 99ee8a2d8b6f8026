#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checks/store/shard_files.h"
#include "engine/store/index_file.h"
#include "engine/store/json_text.h"

namespace {

using checks::described;
using checks::replaced;
using checks::safetensors;
using checks::write_bytes;
using engine::store::inspect_shards;
using engine::store::ShardReader;
using testing::AllOf;
using testing::HasSubstr;

const std::string kIndex =
    R"({"metadata":{"total_size":12},"weight_map":{)"
    R"("first":"1.safetensors","second":"2.safetensors","third":"2.safetensors"}})";

class IndexFileCheck : public testing::Test {
 protected:
  IndexFileCheck() {
    write_bytes(folder_ / "1.safetensors",
                safetensors(R"({"first":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
    write_bytes(folder_ / "2.safetensors",
                safetensors(R"({"second":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                            R"("third":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                            8));
  }
  std::string findings(const std::string& index) {
    write_bytes(folder_ / "model.safetensors.index.json", index);
    return described(inspect_shards(folder_.path()));
  }
  checks::ScratchFolder folder_;
};

// In a string: each is escaped, so none ends it.
std::string quotes(std::size_t count) {
  std::string text;
  while (text.size() < 2 * count) text += "\\\"";
  return text;
}

TEST_F(IndexFileCheck, AgreesOrIsAbsent) {
  EXPECT_EQ(described(inspect_shards(folder_.path())), "") << "no index: the headers are read";
  EXPECT_EQ(findings(kIndex), "");
  EXPECT_EQ(findings(replaced(kIndex, "\"metadata\":{\"total_size\":12},", "")), "");
}

struct Fault {
  const char* name;
  const char* from;
  const char* to;
  std::vector<const char*> says;
};

// A12 is about the paths.
const std::vector<Fault> kFaults = {
    {"WrongShard",
     "\"second\":\"2.",
     "\"second\":\"1.",
     {"tensor second", "1.safetensors", "2.safetensors"}},
    {"NoSuchShard",
     "\"second\":\"2.",
     "\"second\":\"3.",
     {"tensor second", "3.safetensors", "2.safetensors"}},
    {"NoSuchTensor",
     "\"first\"",
     "\"fourth\"",
     {"tensor fourth", "no header has it", "tensor first", "not in the index"}},
    {"TensorLeftOut",
     ",\"third\":\"2.safetensors\"",
     "",
     {"tensor third", "2.safetensors", "not in the index"}},
    {"NameTwice",
     "\"third\"",
     "\"first\"",
     {"tensor first", "stands in the index twice", "tensor third"}},
    {"A12_Parent", "\"1.safe", "\"../1.safe", {"tensor first", "../1.safetensors", "a path"}},
    {"A12_Absolute", "\"1.safe", "\"/etc/1.safe", {"tensor first", "/etc/1.safetensors", "a path"}},
    {"A12_Below", "\"1.safe", "\"a/1.safe", {"tensor first", "a/1.safetensors", "a path"}},
    {"A12_Backslash", "\"1.safe", "\"..\\\\1.safe", {"tensor first", "a path"}},
    {"A12_Dots", "\"1.safetensors\"", "\"..\"", {"tensor first", "a path"}},
    {"FileIsNumber", "\"1.safetensors\"", "1", {"tensor first", "its file is 1"}},
    {"FileIsObject",
     "\"1.safetensors\"",
     "{\"x\":\"1.safetensors\"}",
     {"tensor first", "its file is an object"}},
    {"MapIsArray",
     "{\"first\":\"1.safetensors\",\"second\":\"2.safetensors\",\"third\":\"2.safetensors\"}",
     "[]",
     {"weight_map is an array"}},
    {"NoMap", "\"weight_map\"", "\"weights\"", {"has no weight_map"}},
    {"NotJson", "}}", "}", {"not valid JSON", "at byte"}},
};

TEST_F(IndexFileCheck, OneWrongEntry) {
  for (const Fault& fault : kFaults) {
    SCOPED_TRACE(fault.name);
    ASSERT_EQ(findings(kIndex), "") << "the control";
    const std::string text = findings(replaced(kIndex, fault.from, fault.to));
    EXPECT_THAT(text, HasSubstr("model.safetensors.index.json: "));
    for (const char* part : fault.says) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_FALSE(checks::error_of([&] { ShardReader reader(folder_.path()); }).empty());
  }
}

TEST_F(IndexFileCheck, TotalSizeIsAWarning) {
  EXPECT_THAT(findings(replaced(kIndex, "12", "13")),
              AllOf(HasSubstr("13"), HasSubstr("12 bytes")));
  EXPECT_EQ(ShardReader(folder_.path()).entries().size(), 3u);
}

// It is read once, a piece at a time, so what stands at the border of two pieces is as anywhere else; and what
// a parser would have to keep whole is refused.
TEST_F(IndexFileCheck, LargeInPieces) {
  const std::size_t at = kIndex.find("\"metadata\"");
  const auto padded = [&](std::size_t bytes, const std::string& padding) {
    std::string text = kIndex;
    text.insert(at, "\"padding\":\"" + std::string(bytes, 'x') + "\"," + padding);
    return text;
  };
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  for (std::size_t bytes = kPiece - 300; bytes < kPiece - 20; bytes += 7) {
    ASSERT_EQ(findings(padded(bytes, "")), "") << bytes;
  }
  const std::string wrong = padded(kPiece - 200, "");
  EXPECT_THAT(findings(replaced(wrong, "\"second\":\"2.", "\"second\":\"3.")),
              HasSubstr("tensor second"));
  for (const std::string& text : {padded(2 * kPiece, ""), padded(1, std::string(2 * kPiece, ' ')),
                                  padded(1, "\"n\":" + std::string(2 * kPiece, '1') + ","),
                                  padded(1, "\"quotes\":\"" + quotes(kPiece) + "\",")}) {
    EXPECT_THAT(findings(text),
                AllOf(HasSubstr("model.safetensors.index.json: at byte "),
                      HasSubstr("more than 1048576 bytes without a quotation mark")));
  }
}

// What a power failure may leave behind the last byte that was written.
TEST_F(IndexFileCheck, ANulIsNoEnd) {
  const std::string said = fmt::format("at byte {}: not valid JSON: a NUL", kIndex.size());
  EXPECT_THAT(findings(kIndex + std::string(5, '\0')), HasSubstr(said));
  EXPECT_THAT(checks::error_of([&] {
                engine::store::require_strict_json(kIndex + std::string(1, '\0') + "more", "it");
              }),
              HasSubstr("it: " + said));
}

TEST_F(IndexFileCheck, A12_KindOfFile) {
  const auto path = folder_ / "model.safetensors.index.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(described(inspect_shards(folder_.path())), HasSubstr("index.json: is a FIFO"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("nowhere", path);
  EXPECT_THAT(described(inspect_shards(folder_.path())), HasSubstr("link to nowhere"));
  std::filesystem::remove(path);
  write_bytes(folder_ / "elsewhere", kIndex);
  std::filesystem::create_symlink("elsewhere", path);
  EXPECT_EQ(described(inspect_shards(folder_.path())), "");
}

// What most readers do: take the index as it is, and open what it names.
bool hasty_reader_accepts(const std::string& index) {
  try {
    const auto json = nlohmann::json::parse(index);
    for (const auto& file : json.at("weight_map")) static_cast<void>(file.get<std::string>());
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

// It accepts most of the faults above; here every one has findings of its own.
TEST_F(IndexFileCheck, PlantedFaults) {
  std::size_t missed = 0;
  std::vector<std::string> texts;
  for (const Fault& fault : kFaults) {
    const std::string index = replaced(kIndex, fault.from, fault.to);
    texts.push_back(findings(index));
    missed += hasty_reader_accepts(index) ? 1 : 0;
  }
  EXPECT_GE(missed, 10u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(std::ranges::count(texts, texts[i]), 1) << kFaults[i].name;
  }
}

}  // namespace
