#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checks/reference.h"
#include "checks/train/toy.h"
#include "engine/base/error.h"
#include "engine/data/batching.h"
#include "engine/data/feed.h"
#include "engine/data/ids.h"

namespace {

using engine::base::Error;
using engine::data::feed_of;
using engine::data::make_sequence;
using engine::data::Order;
using engine::data::parse_ids;
using engine::data::read_ids;
using engine::data::Sequence;
using engine::data::take;
using Ids = std::vector<std::int32_t>;

std::string refusal(const std::string& text) {
  try {
    parse_ids(text, 100, "FILE");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Ids, AnySeparatorsGiveTheSameIds) {
  const Ids want{0, 5, 99, 7};
  for (const char* text :
       {"0,5,99,7", "0 5 99 7", "0\n5\n99\n7\n", " 0, 5,\t99 ,7\r\n", "0 ,5 99 , 7"}) {
    EXPECT_EQ(parse_ids(text, 100, "FILE"), want) << text;
  }
  EXPECT_TRUE(parse_ids(" \n", 100, "FILE").empty());
}

TEST(Ids, ErrorsNameFilePositionValueAndVocabulary) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(refusal("1 2 100"), AllOf(HasSubstr("FILE"), HasSubstr("id 2"), HasSubstr("byte 4"),
                                        HasSubstr("is 100"), HasSubstr("0 ... 99")));
  EXPECT_THAT(refusal("1,-1"), AllOf(HasSubstr("id 1"), HasSubstr("is -1")));
  EXPECT_THAT(refusal("1 two 3"), AllOf(HasSubstr("id 1"), HasSubstr("\"two\"")));
  EXPECT_THAT(refusal("1.5"), HasSubstr("not an integer"));
  EXPECT_THAT(refusal("1e1"), HasSubstr("not an integer"));
  EXPECT_THAT(refusal("0x10"), HasSubstr("not an integer"));
  EXPECT_THAT(refusal("99999999999999999999999"), HasSubstr("not an integer"));
  EXPECT_THAT(refusal("1;2"), HasSubstr("not an integer"));
  // A field without an id is an id that was lost.
  EXPECT_THAT(refusal("1,2,,3"),
              AllOf(HasSubstr("no id before the comma at byte 4"), HasSubstr("after 2 ids")));
  EXPECT_THAT(refusal("1, \n,2"), HasSubstr("no id before the comma at byte 4"));
  EXPECT_THAT(refusal(",1"), HasSubstr("no id before the comma at byte 0"));
  EXPECT_THAT(refusal("1,2,\n"), AllOf(HasSubstr("behind the last comma"), HasSubstr("2 ids")));
  EXPECT_THROW(read_ids("/no/such/file", 100), Error);
}

std::string file_refusal(const std::filesystem::path& path, std::uint64_t budget_bytes) {
  engine::base::RamBudget budget(budget_bytes);
  return checks::why_refused([&] { read_ids(path, 100, &budget); });
}

// Words that a block's end cuts, at every place in the word.
TEST(Ids, AFileIsReadInBlocksAsIfInOne) {
  const checks::ScratchFolder folder;
  for (const std::size_t shift : {0u, 1u, 2u, 3u}) {
    std::string text(shift, ' ');
    while (text.size() < 3 * 65536 / 2) text += "12, 7\n";
    text += "99";
    checks::write_bytes(folder / "ids", text);
    const Ids got = read_ids(folder / "ids", 100);
    EXPECT_EQ(got, parse_ids(text, 100, "x")) << shift;
    EXPECT_EQ(got.back(), 99);
    checks::write_bytes(folder / "ids", text + ",100");
    const std::string where = "byte " + std::to_string(text.size() + 1) + " is 100";
    EXPECT_THAT(file_refusal(folder / "ids", 1 << 30), testing::HasSubstr(where));
  }
}

TEST(Ids, MoreThanTheBudgetHoldsAreNotRead) {
  using testing::AllOf;
  using testing::HasSubstr;
  const checks::ScratchFolder folder;
  std::string text;
  while (text.size() < 1'000'000) text += "1 ";
  checks::write_bytes(folder / "ids", text);
  EXPECT_THAT(file_refusal(folder / "ids", 200'000),
              AllOf(HasSubstr("memory budget"), HasSubstr("(131072 of 1000000 bytes read)")));
  EXPECT_EQ(file_refusal(folder / "ids", 500'000 * engine::data::kBytesAnId), "");
  engine::base::RamBudget budget(1 << 30);
  EXPECT_EQ(read_ids(folder / "ids", 100, &budget).size(), 500'000u);
  EXPECT_EQ(budget.used_bytes(), 500'000u * engine::data::kBytesAnId);
  // A word without end, and what is no file.
  checks::write_bytes(folder / "word", std::string(1'000'000, '1'));
  EXPECT_THAT(file_refusal(folder / "word", 1 << 30),
              AllOf(HasSubstr("id 0 at byte 0"), HasSubstr("not an integer")));
  EXPECT_THAT(file_refusal(folder.path(), 1 << 30), HasSubstr("directory"));
}

// The rule, position by position: t is fed id t and predicts id t + 1, unless that id is one of the
// first `mask_first`.
bool obeys(const Sequence& s, const Ids& ids, std::int64_t mask_first) {
  if (s.tokens.size() + 1 != ids.size() || s.targets.size() != s.tokens.size()) return false;
  for (std::size_t t = 0; t < s.tokens.size(); ++t) {
    const bool prompt = static_cast<std::int64_t>(t) + 1 < mask_first;
    if (s.tokens[t] != ids[t] || s.targets[t] != (prompt ? -1 : ids[t + 1])) return false;
  }
  return true;
}

TEST(Sequence, FeedsAllButTheLastAndPredictsAllButTheFirst) {
  const Ids ids{4, 5, 6, 7, 8};
  for (const std::int64_t mask_first : {0, 1, 2, 3, 5, 50}) {
    EXPECT_TRUE(obeys(make_sequence("x", ids, mask_first), ids, mask_first)) << mask_first;
  }
  EXPECT_EQ(make_sequence("x", ids, 3).targets, (Ids{-1, -1, 7, 8}));
  EXPECT_EQ(make_sequence("x", ids, 50).trained(), 0);
}

TEST(Sequence, MaskFirstIsTheReferences) {
  CHECKS_NEED(folder, checks::reference_data("grad"));
  for (const char* name : {"tiny_traj/batch_A", "tiny_traj/batch_B", "tiny_g1/batch"}) {
    const auto batch = checks::read_safetensors(folder / (std::string(name) + ".safetensors"));
    const Sequence s = make_sequence(name, checks::at(batch, "tokens").i32(), 8);
    EXPECT_EQ(s.tokens, checks::at(batch, "input_ids").i32());
    EXPECT_EQ(s.targets, checks::at(batch, "targets").i32());
  }
}

TEST(Batching, G4_NoLabelCrossesADocumentsEnd) {
  const std::vector<Sequence> all{make_sequence("a", Ids{1, 2, 3}, 0),
                                  make_sequence("b", Ids{10, 11}, 0)};
  Order order(2);
  const auto joined = take(feed_of("two", all), order, 0, 3).joined;
  EXPECT_EQ(joined.tokens, (Ids{1, 2, 10, 1, 2}));
  EXPECT_EQ(joined.targets, (Ids{2, 3, 11, 2, 3}));
  EXPECT_EQ(joined.borders, (std::vector<std::int64_t>{0, 2, 3, 5}));
}

TEST(Batching, TakesCyclicallyAndPassesOverTheUntrained) {
  const std::vector<Sequence> all{make_sequence("a", Ids{1, 2, 3}, 0),
                                  make_sequence("b", Ids{4, 5}, 9),
                                  make_sequence("c", Ids{6, 7}, 0)};
  const auto from = [&](std::int64_t cursor, std::int64_t count) {
    Order order(3);
    return take(feed_of("three", all), order, cursor, count);
  };
  EXPECT_EQ(from(0, 2).joined.tokens, (Ids{1, 2}));
  EXPECT_EQ(from(0, 2).skipped, 1);
  EXPECT_EQ(from(2, 2).joined.tokens, (Ids{6, 1, 2}));
  EXPECT_EQ(from(2, 2).sequences, 2);
  EXPECT_EQ(from(1, 1).sequences, 0);
  EXPECT_EQ(from(3 * 1000 + 2, 3).joined.tokens, (Ids{6, 1, 2}));
}

TEST(Batching, G10_TextShorterThanASequenceIsRefused) {
  using testing::HasSubstr;
  for (const Ids& ids : {Ids{}, Ids{7}}) {
    try {
      make_sequence("short.txt", ids, 0);
      FAIL() << "accepted " << ids.size() << " ids";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("0 samples: "));
      EXPECT_THAT(error.what(), HasSubstr("short.txt"));
    }
  }
  // Long enough, but the mask leaves nothing: not zero iterations either.
  engine::train::Job job = checks::toy_job("/nowhere/run");
  job.settings.mask_first = 50;
  try {
    engine::train::open_run(job);
    FAIL() << "nothing to train was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("0 samples: "));
  }
}

// A hundred million copies are refused before one is made, from the numbers alone.
TEST(Batching, AStepOfTooManySequencesIsRefusedBeforeItIsPutTogether) {
  engine::train::Job job = checks::toy_job("/nowhere/run");
  job.settings.sequences = 1'000'000;
  const engine::train::OpenRun run = engine::train::open_run(job);
  const auto never = [](engine::ops::Documents) { FAIL() << "a step was put together"; };
  engine::base::RamBudget budget(1 << 20);
  EXPECT_THAT(
      checks::why_refused([&] { engine::train::require_memory(run, budget, 2'666'000, never); }),
      testing::AllOf(testing::HasSubstr("1000000 sequences"),
                     testing::HasSubstr("2666664 tokens")));
}

TEST(Batching, PlantedFaults) {
  const Ids ids{1, 2, 3, 4, 5};
  const Sequence right = make_sequence("x", ids, 3);
  ASSERT_TRUE(obeys(right, ids, 3));
  // Masking p positions instead of p - 1 would not train the first token of the answer.
  EXPECT_FALSE(obeys(make_sequence("x", ids, 4), ids, 3));
  EXPECT_FALSE(obeys(make_sequence("x", ids, 2), ids, 3));
  EXPECT_FALSE(obeys({"x", right.tokens, right.tokens}, ids, 3)) << "labels that are not shifted";
  EXPECT_FALSE(obeys({"x", ids, {-1, -1, 4, 5, -1}}, ids, 3)) << "the last id is fed";
  EXPECT_FALSE(obeys({"x", {2, 3, 4, 5}, right.targets}, ids, 3)) << "the first id is not fed";
}

}  // namespace
