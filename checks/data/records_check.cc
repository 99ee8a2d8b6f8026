#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checks/data/tokenizer_folder.h"
#include "engine/base/sha256.h"
#include "engine/data/filters.h"
#include "engine/data/line_reader.h"
#include "engine/data/records.h"
#include "engine/data/selection.h"

namespace {

using checks::refusal;
using checks::ScratchFolder;
using engine::data::Candidate;
using engine::data::FieldNames;
using engine::data::Filters;
using engine::data::first_reason;
using engine::data::kReasons;
using engine::data::LineReader;
using engine::data::parse_record;
using engine::data::Reason;
using engine::data::Record;
using engine::data::RecordReader;
using testing::AllOf;
using testing::HasSubstr;

std::string why_not(const std::string& line) {
  return refusal([&] { parse_record(line, {}, "FILE: line 3 at byte 90"); });
}

TEST(Lines, ComeWithNumberAndOffsetWhateverTheirLength) {
  const ScratchFolder scratch;
  std::string text = "a\n\n";
  text += std::string(3'000'000, 'b') + "\n" + std::string(1 << 20, 'c') + "\nend";
  checks::write_bytes(scratch / "file", text);
  LineReader lines(scratch / "file");
  std::string again;
  for (int number = 1; const auto line = lines.next(); ++number) {
    EXPECT_EQ(line->number, number);
    EXPECT_EQ(line->offset, again.size());
    again += std::string(line->text) + '\n';
  }
  again.pop_back();
  EXPECT_EQ(again, text);
  EXPECT_EQ(lines.sha256(), engine::base::sha256_hex(text));
  LineReader limited(scratch / "file", 1'000'000);
  limited.next();
  limited.next();
  EXPECT_THAT(refusal([&] { limited.next(); }),
              AllOf(HasSubstr("line 3 at byte 3"), HasSubstr("1000000")));
}

TEST(Records, ReadTheirFieldsAndPassOverOthers) {
  const Record record = parse_record(
      R"({"id": 5, "instruction": "Wh\u00e4t?", "tags": ["a", {"response": 1}], "context": null,)"
      R"( "response": "Th\"at.", "more": {"instruction": [1.5, true]}, "category": "qa"})",
      {}, "FILE");
  EXPECT_EQ(record.instruction, "Wh\u00E4t?");
  EXPECT_EQ(record.context, "");
  EXPECT_EQ(record.response, "Th\"at.");
  EXPECT_EQ(record.category, "qa");
  FieldNames names;
  names.instruction = "q", names.response = "a";
  EXPECT_EQ(parse_record(R"({"q": "x", "a": "y"})", names, "FILE").response, "y");
  EXPECT_EQ(record.question(), "Wh\u00E4t?");
  EXPECT_EQ((Record{"a", "b", "c", ""}).question(), "a\n\nb");
}

TEST(Records, HostileLinesAreRefusedWithTheirPlace) {
  EXPECT_EQ(why_not(R"({"instruction": "a", "response": "b"})"), "");
  const auto refuses = [](const std::string& line, const char* what) {
    EXPECT_THAT(why_not(line), AllOf(HasSubstr("FILE: line 3 at byte 90"), HasSubstr(what)))
        << line;
  };
  refuses("", "not valid JSON");
  refuses("nonsense", "at byte 1 of the line");
  refuses(R"({"instruction": "a", "response": "b"}x)", "not valid JSON");
  refuses(R"({"instruction": "a", "response": "b"} {})", "not valid JSON");
  refuses(R"({"instruction": "a", "response": "b",})", "not valid JSON");
  refuses(R"({'instruction': "a"})", "not valid JSON");
  refuses(R"([])", "not a JSON object");
  refuses(R"("text")", "not a JSON object");
  refuses(R"(null)", "has no \"instruction\"");
  refuses(R"({"instruction": "a"})", "has no \"response\"");
  refuses(R"({"instruction": 5, "response": "b"})", "\"instruction\" is 5");
  refuses(R"({"instruction": null, "response": "b"})", "\"instruction\" is null");
  refuses(R"({"instruction": ["a"], "response": "b"})", "\"instruction\" is an array");
  refuses(R"({"instruction": {"a": 1}, "response": "b"})", "\"instruction\" is an object");
  refuses(R"({"instruction": "a", "context": false, "response": "b"})", "\"context\" is false");
  refuses(R"({"instruction": "a", "instruction": "c", "response": "b"})", "twice");
  refuses(R"({"instruction": "a", "response": "b", "x": {"y": 1, "y": 2}})", "twice");
  refuses("\xEF\xBB\xBF{\"instruction\": \"a\", \"response\": \"b\"}", "byte order mark");
  refuses("{\"instruction\": \"\xFF\", \"response\": \"b\"}", "not valid JSON");
  refuses(R"({"instruction": "\ud800", "response": "b"})", "not valid JSON");
  refuses("{\"instruction\": \"a\nb\", \"response\": \"b\"}", "not valid JSON");
  refuses(R"({"instruction": NaN, "response": "b"})", "not valid JSON");
  refuses("{\"x\": " + std::string(100'000, '[') + "}", "deeper than 16");
}

TEST(Records, ReaderNamesLineAndOffset) {
  const ScratchFolder scratch;
  const std::string good = R"({"instruction": "a", "response": "b"})";
  checks::write_bytes(scratch / "file", good + "\n\n  \r\n" + good + "\r\n{\"instruction\": 1}\n");
  RecordReader reader(scratch / "file", {});
  EXPECT_EQ(reader.next()->line, 1);
  const auto second = reader.next();
  EXPECT_EQ(second->line, 4);
  EXPECT_EQ(second->offset, good.size() + 1 + 1 + 4);
  EXPECT_EQ(reader.blank_lines(), 2);
  EXPECT_THAT(refusal([&] { reader.next(); }),
              AllOf(HasSubstr((scratch / "file").string()), HasSubstr("line 5 at byte 82")));
  FieldNames names;
  names.context = "response";
  EXPECT_THAT(refusal([&] { RecordReader(scratch / "file", names); }), HasSubstr("response"));
}

TEST(Records, DigestIsOfTheThreeTextsAndTheirBorders) {
  const Record record{"ab", "c", "d", "qa"};
  EXPECT_EQ(record.digest(), (Record{"ab", "c", "d", "other"}).digest());
  EXPECT_NE(record.digest(), (Record{"a", "bc", "d", "qa"}).digest());
  EXPECT_NE(record.digest(), (Record{"ab", "cd", "", "qa"}).digest());
  EXPECT_NE(record.digest(), (Record{"abc", "", "d", "qa"}).digest());
}

TEST(Filters, CountCharactersAndNameTheFirstReason) {
  const auto reason = [](const Filters& filters, const Record& record) {
    return first_reason(filters, record);
  };
  const Record record{"W\u00E4r", "", "\u4F60\u597D\u3002", "qa"};
  Filters filters;
  EXPECT_EQ(reason(filters, record), kReasons);
  EXPECT_EQ(reason(filters, {"", "", "b", ""}), static_cast<int>(Reason::kQuestion));
  EXPECT_EQ(reason(filters, {"a", "", "", ""}), static_cast<int>(Reason::kResponse));
  filters.question = {3, 3};
  filters.response = {3, 3};
  EXPECT_EQ(reason(filters, record), kReasons) << "characters, not bytes";
  filters.response.most = 2;
  EXPECT_EQ(reason(filters, record), static_cast<int>(Reason::kResponse));
  filters.question.least = 4;
  EXPECT_EQ(reason(filters, record), static_cast<int>(Reason::kQuestion));
  filters.categories = {"other", "third"};
  EXPECT_EQ(reason(filters, record), static_cast<int>(Reason::kCategory));
  filters = {};
  filters.required = "x\u00E4";
  EXPECT_EQ(reason(filters, record), kReasons);
  filters.required = "xyz\u00F6";  // shares its first byte with what is there
  EXPECT_EQ(reason(filters, record), static_cast<int>(Reason::kRequired));
}

std::vector<Candidate> candidates(const std::vector<int>& sizes) {
  std::vector<Candidate> all;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    for (int i = 0; i < sizes[s]; ++i) {
      all.push_back({static_cast<std::int32_t>(s),
                     engine::data::selection_key(1, std::to_string(1000 * s + i))});
    }
  }
  return all;
}

std::vector<int> shares(const std::vector<int>& sizes, std::int64_t count) {
  const auto all = candidates(sizes);
  std::vector<int> got(sizes.size());
  for (const std::int64_t i :
       engine::data::select(all, static_cast<std::int32_t>(sizes.size()), count)) {
    ++got[all[i].stratum];
  }
  return got;
}

TEST(Selection, IsInProportionAndExactlySoMany) {
  EXPECT_EQ(shares({60, 30, 10}, 10), (std::vector<int>{6, 3, 1}));
  EXPECT_EQ(shares({60, 30, 10}, 100), (std::vector<int>{60, 30, 10}));
  EXPECT_EQ(shares({1, 1, 1}, 2), (std::vector<int>{1, 1, 0})) << "equal remainders: in order";
  EXPECT_EQ(shares({50, 33, 17}, 9), (std::vector<int>{4, 3, 2})) << "4.5, 2.97, 1.53";
  EXPECT_EQ(shares({5}, 0), (std::vector<int>{0}));
  EXPECT_THAT(refusal([] { shares({3, 4}, 8); }), AllOf(HasSubstr("8"), HasSubstr("7")));
}

// Another seed is another choice; the same record has the same key in any file.
TEST(Selection, IsAFunctionOfSeedAndRecord) {
  EXPECT_EQ(engine::data::selection_key(1, "x"), engine::data::selection_key(1, "x"));
  EXPECT_NE(engine::data::selection_key(1, "x"), engine::data::selection_key(2, "x"));
  EXPECT_NE(engine::data::selection_key(1, "x"), engine::data::selection_key(1, "y"));
  auto all = candidates({40});
  const auto chosen = engine::data::select(all, 1, 10);
  std::vector<std::uint64_t> keys;
  for (const std::int64_t i : chosen) keys.push_back(all[i].key);
  std::reverse(all.begin(), all.end());
  std::vector<std::uint64_t> reversed;
  for (const std::int64_t i : engine::data::select(all, 1, 10)) reversed.push_back(all[i].key);
  EXPECT_THAT(reversed, testing::UnorderedElementsAreArray(keys));
}

TEST(Records, PlantedFaults) {
  // What a parser that keeps the last of two keys, or takes any value as text, would let through.
  EXPECT_NE(why_not(R"({"response": "x", "instruction": "a", "response": "b"})"), "");
  EXPECT_NE(why_not(R"({"instruction": "a", "response": 7})"), "");
  // Rounding every share by itself would give 5 + 3 + 2 of 9.
  EXPECT_NE(shares({50, 33, 17}, 9), (std::vector<int>{5, 3, 2}));
  // Taking the first of each stratum is no choice by seed.
  const auto all = candidates({40});
  EXPECT_NE(engine::data::select(all, 1, 5), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

}  // namespace
