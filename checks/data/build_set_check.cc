#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "checks/data/workshop.h"
#include "engine/base/sha256.h"
#include "engine/data/build_set.h"

namespace {

using checks::read_bytes;
using checks::record;
using checks::refusal;
using checks::twenty_records;
using checks::Workshop;
using engine::base::RamBudget;
using engine::data::BuildReport;
using engine::data::PackedSequence;
using engine::data::PackedSet;
using engine::data::Packing;
using engine::data::Reason;
using engine::data::TooLong;
using testing::AllOf;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

TEST(BuildSet, HoldsEveryRecordOnceWithOnlyItsAnswerTrained) {
  for (const Packing packing : {Packing::kInOrder, Packing::kFirstFit}) {
    Workshop shop;
    shop.settings.packing = packing;
    const BuildReport report = shop.build("set");
    EXPECT_EQ(report.read, 20);
    EXPECT_EQ(report.selected, 20);
    const PackedSet set = shop.open("set");
    EXPECT_EQ(set.count(), report.sequences);
    EXPECT_GT(set.facts().documents, set.count()) << "nothing was packed";
    std::multiset<std::string> got, want;
    for (std::int64_t i = 0; i < set.count(); ++i) {
      const PackedSequence s = set.sequence(i);
      EXPECT_LE(s.size(), 192);
      for (std::size_t d = 0; d + 1 < s.borders.size(); ++d) {
        const std::span<const std::int32_t> ids(s.ids.data() + s.borders[d],
                                                s.borders[d + 1] - s.borders[d]);
        Ids trained;
        for (std::int64_t j = s.borders[d]; j < s.borders[d + 1]; ++j) {
          if (s.trained[j]) trained.push_back(s.ids[j]);
        }
        got.insert(shop.tokenizer().decode(ids) + '|' + shop.tokenizer().decode(trained));
      }
    }
    for (int i = 0; i < 20; ++i) {
      const std::string answer = fmt::format("After it comes {}.", i + 1);
      const auto made =
          shop.chat().exchange(fmt::format("Which number comes after {}?", i), answer, "text");
      want.insert(shop.tokenizer().decode(made.ids) + '|' + answer +
                  "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>");
    }
    EXPECT_EQ(got, want);
  }
}

TEST(BuildSet, TheSameInputGivesTheSameBytes) {
  Workshop shop;
  shop.settings.count = 8;
  shop.settings.shuffle = true;
  shop.build("one");
  shop.build("two");
  for (const char* name : {"manifest.json", "sequences.bin", "records.jsonl"}) {
    EXPECT_EQ(read_bytes(shop.path("one") / name), read_bytes(shop.path("two") / name)) << name;
  }
  shop.settings.seed = 2;
  shop.build("three");
  EXPECT_NE(shop.records_of("one"), shop.records_of("three"));
}

TEST(BuildSet, FiltersAreCountedAndStandInTheManifest) {
  const std::string same = record("Again?", "Again.");
  Workshop shop(twenty_records() + "\n" + same + same + record("", "No question.") +
                record("No answer?", "") + record("Other?", "Other.", "rare") +
                record("Way too long?", std::string(500, 'x')) +
                record("Nothing asked for", "that is wanted"));
  shop.settings.filters.categories = {"qa", "count"};
  shop.settings.filters.required = ".x";
  shop.settings.too_long = TooLong::kDrop;
  shop.settings.count = 10;
  const BuildReport report = shop.build("set");
  EXPECT_EQ(report.read, 27);
  const auto manifest = nlohmann::json::parse(read_bytes(shop.path("set") / "manifest.json"));
  EXPECT_EQ(manifest.at("format"), "lazylora data 1");
  EXPECT_EQ(manifest.at("input").at("blank_lines"), 1);
  EXPECT_EQ(manifest.at("input").at("sha256"),
            engine::base::sha256_hex(read_bytes(shop.path("records.jsonl"))));
  const auto& dropped = manifest.at("records").at("dropped");
  EXPECT_EQ(dropped.at("category"), 1);
  EXPECT_EQ(dropped.at("question_length"), 1);
  EXPECT_EQ(dropped.at("response_length"), 1);
  EXPECT_EQ(dropped.at("required_characters"), 1);
  EXPECT_EQ(dropped.at("duplicate"), 1);
  EXPECT_EQ(dropped.at("too_long"), 1);
  EXPECT_EQ(manifest.at("records").at("left"), 21);
  EXPECT_EQ(manifest.at("records").at("categories").at("count").at("selected"), 2) << "5 of 21";
  EXPECT_EQ(manifest.at("records").at("categories").at("qa").at("selected"), 8);
  EXPECT_EQ(manifest.at("rules").at("too_long"), "drop");
}

TEST(BuildSet, TooLongIsRefusedDroppedOrTruncated) {
  const std::string longer = record("Why?", std::string(400, 'z'));
  Workshop shop(twenty_records() + longer);
  EXPECT_THAT(shop.why_not("set"), AllOf(HasSubstr("1 records have more than 192 ids"),
                                         HasSubstr("line 21"), HasSubstr("truncate")));
  EXPECT_FALSE(std::filesystem::exists(shop.path("set")));
  shop.settings.too_long = TooLong::kTruncate;
  EXPECT_EQ(shop.build("cut").truncated, 1);
  const PackedSet set = shop.open("cut");
  EXPECT_EQ(set.facts().documents, 21);
  // The cut one fills a sequence, and no end of message is taught behind half an answer.
  bool found = false;
  for (std::int64_t i = 0; i < set.count(); ++i) {
    const PackedSequence s = set.sequence(i);
    if (s.size() != 192 || s.borders.size() != 2) continue;
    found = true;
    EXPECT_TRUE(shop.tokenizer().decode(s.ids).ends_with("zzz"));
    EXPECT_EQ(s.trained.back(), 1);
  }
  EXPECT_TRUE(found);
  // A question alone that fills the sequence leaves nothing to train.
  Workshop questions(twenty_records() + record(std::string(400, 'q'), "Short."));
  questions.settings.too_long = TooLong::kTruncate;
  EXPECT_EQ(questions.build("cut").dropped[static_cast<int>(Reason::kTooLong)], 1);
}

TEST(BuildSet, G10_LessThanASequenceIsAnErrorWithCounts) {
  Workshop shop;
  shop.settings.length = 100'000;
  EXPECT_THAT(shop.why_not("set"), AllOf(HasSubstr("0 samples"), HasSubstr("20 documents"),
                                         HasSubstr("100000"), HasSubstr("20 records read")));
  EXPECT_FALSE(std::filesystem::exists(shop.path("set")));
  shop.settings.length = 192;
  shop.settings.filters.categories = {"nothing"};
  EXPECT_THAT(shop.why_not("set"), HasSubstr("no record has the category \"nothing\""));
  shop.settings.filters = {};
  shop.settings.filters.question.most = 1;
  EXPECT_THAT(shop.why_not("set"),
              AllOf(HasSubstr("0 samples"), HasSubstr("20 out by"), HasSubstr("0 left")));
  Workshop empty("\n\n");
  EXPECT_THAT(empty.why_not("set"), AllOf(HasSubstr("0 samples"), HasSubstr("0 records read")));
  shop.settings.filters = {};
  shop.settings.count = 21;
  EXPECT_THAT(shop.why_not("set"), AllOf(HasSubstr("21"), HasSubstr("20 left")));
  // Nothing trained: the reader says the same of a set that somebody made otherwise.
  shop.settings.count.reset();
  shop.build("set");
  std::string manifest = read_bytes(shop.path("set") / "manifest.json");
  const std::size_t at = manifest.find("\"trained\": ", manifest.find("\"set\""));
  manifest.replace(at, manifest.find('\n', at) - at, "\"trained\": 0");
  checks::write_bytes(shop.path("set") / "manifest.json", manifest);
  EXPECT_THAT(refusal([&] { shop.open("set"); }), HasSubstr("0 samples"));
}

TEST(BuildSet, HeldOutHasNoRecordOfTheOther) {
  Workshop shop;
  shop.settings.count = 12;
  shop.build("train");
  shop.settings.count.reset();
  shop.settings.not_in = {shop.path("train")};
  const BuildReport report = shop.build("rest");
  EXPECT_EQ(report.selected, 8);
  EXPECT_EQ(report.dropped[static_cast<int>(Reason::kExcluded)], 12);
  const auto train = shop.records_of("train"), rest = shop.records_of("rest");
  EXPECT_EQ(train.size() + rest.size(), 20u);
  for (const std::string& one : rest) EXPECT_FALSE(train.contains(one));
  const auto manifest = nlohmann::json::parse(read_bytes(shop.path("rest") / "manifest.json"));
  EXPECT_EQ(manifest.at("not_in").at(0),
            engine::base::sha256_hex(read_bytes(shop.path("train") / "manifest.json")));
}

TEST(BuildSet, NothingIsOverwrittenOrHalfWritten) {
  Workshop shop;
  shop.build("set");
  EXPECT_THAT(shop.why_not("set"), HasSubstr("nothing is written over"));
  {
    const checks::FileSizeLimit limit(500);
    EXPECT_NE(shop.why_not("full"), "");
  }
  EXPECT_FALSE(std::filesystem::exists(shop.path("full")));
  EXPECT_FALSE(std::filesystem::exists(shop.path("full.lazylora-tmp")));
  RamBudget small(1000);
  EXPECT_THAT(refusal([&] {
                engine::data::build_set(shop.path("small"), shop.settings, shop.tokenizer(),
                                        shop.chat(), small);
              }),
              HasSubstr("table of records"));
}

// A check of these counts that could not fail would not see a record that is lost or kept too much.
TEST(BuildSet, PlantedFaults) {
  Workshop shop;
  const BuildReport right = shop.build("right");
  Workshop one_less(twenty_records().substr(twenty_records().find('\n') + 1));
  EXPECT_NE(one_less.build("set").manifest_sha256, right.manifest_sha256);
  Workshop other_order(twenty_records());
  other_order.settings.packing = Packing::kInOrder;
  EXPECT_NE(other_order.build("set").manifest_sha256, right.manifest_sha256);
  Workshop doubled(twenty_records() + twenty_records());
  EXPECT_EQ(doubled.build("set").dropped[static_cast<int>(Reason::kDuplicate)], 20);
  doubled.settings.filters.keep_duplicates = true;
  EXPECT_EQ(doubled.build("kept").selected, 40);
}

}  // namespace
