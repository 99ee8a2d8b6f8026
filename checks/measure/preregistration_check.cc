// Intervals and verdicts: what was promised before a run, and what may be said after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/base/parallel.h"
#include "engine/measure/eval_results.h"

namespace {

namespace measure = engine::measure;
using checks::ScratchFolder;
using measure::Outcome;
using measure::Preregistration;
using measure::RegistrationFacts;
using testing::HasSubstr;

Preregistration example() {
  Preregistration r;
  r.name = "0001-falls";
  r.question = "Does it fall?";
  r.data = {{"a.txt", std::string(64, 'a')}};
  r.task = "text:a.txt";
  r.metric = "loss";
  r.direction = "below";
  r.threshold = -0.1;
  r.units = 4;
  r.settings = measure::EvalSettings{64, 32, "first", 7, measure::kResamples};
  r.model = {std::string(64, '1'), std::string(64, '2'), std::string(64, '3'), std::string(64, '4'),
             std::string(64, '5')};
  r.stopping_rule = "ten steps";
  r.refuted_by = "an interval above -0.1";
  r.expected = "it falls";
  r.registered_unix_ns = 100;
  return r;
}

RegistrationFacts facts_of(const Preregistration& r) {
  RegistrationFacts facts;
  facts.has_run = facts.given = facts.there = true;
  facts.run_sha256 = facts.file_sha256 = std::string(64, 'f');
  facts.run_start_unix_ns = 200;
  facts.registered = r;
  return facts;
}

// Units of ten tokens each whose loss moves by `per_token`.
measure::TaskResult result_of(const std::vector<double>& per_token) {
  measure::EvalTask task;
  task.name = "text:a.txt";
  task.sha256 = std::string(64, 'a');
  std::vector<measure::UnitScore> base, adapter;
  for (std::size_t i = 0; i < per_token.size(); ++i) {
    // Texts differ far more than models do, so only a paired interval is narrow.
    const double nll = 50.0 + 20.0 * static_cast<double>(i);
    task.units.push_back({{}, {}, 30});
    base.push_back({nll, 10, 1});
    adapter.push_back({nll + 10.0 * per_token[i], 10, 2});
  }
  return measure::make_result(task, {base, adapter, {}}, 7);
}

Outcome outcome_of(const std::vector<double>& per_token, const Preregistration& r = example()) {
  return measure::judge(facts_of(r), {result_of(per_token)}).outcome;
}

TEST(Bootstrap, HoldsTheMiddleOfTheResamples) {
  const std::vector<double> above{-1, -2, -3, -4, -5}, below{10, 10, 10, 10, 10};
  const auto interval = measure::bootstrap_ratio(above, below, 1, "x");
  ASSERT_TRUE(interval);
  // Five units drawn five times: the mean's standard deviation is sqrt(2 / 5) / 10, so the middle
  // 95 % lies between one and three of them around -0.3.
  const double deviation = std::sqrt(0.4) / 10.0;
  EXPECT_THAT(interval->low,
              testing::AllOf(testing::Gt(-0.3 - 3 * deviation), testing::Lt(-0.3 - deviation)));
  EXPECT_THAT(interval->high,
              testing::AllOf(testing::Lt(-0.3 + 3 * deviation), testing::Gt(-0.3 + deviation)));
  const int threads = engine::base::threads();
  engine::base::set_threads(threads + 2);
  const auto again = measure::bootstrap_ratio(above, below, 1, "x");
  engine::base::set_threads(threads);
  EXPECT_EQ(again->low, interval->low);
  EXPECT_EQ(again->high, interval->high);
  // Seed and name key the draws; of many uneven units no two draws have the same ends.
  std::vector<double> uneven, ones;
  for (int i = 0; i < 30; ++i) {
    uneven.push_back(i * i * 0.37);
    ones.push_back(1.0);
  }
  const auto low = [&](std::uint64_t seed, const char* name) {
    return measure::bootstrap_ratio(uneven, ones, seed, name)->low;
  };
  EXPECT_NE(low(1, "x"), low(2, "x"));
  EXPECT_NE(low(1, "x"), low(1, "y"));
  EXPECT_FALSE(measure::bootstrap_ratio(std::vector<double>{1}, std::vector<double>{1}, 1, "x"));
  // All units alike: no width.
  const auto still = measure::bootstrap_ratio(below, below, 1, "x");
  EXPECT_EQ(still->low, 1.0);
  EXPECT_EQ(still->high, 1.0);
}

TEST(Verdict, MetNotMetNotDecidable) {
  EXPECT_EQ(outcome_of({-0.3, -0.31, -0.29, -0.3}), Outcome::kMet);
  EXPECT_EQ(outcome_of({0.3, 0.31, 0.29, 0.3}), Outcome::kNotMet);
  EXPECT_EQ(outcome_of({-0.09, -0.091, -0.089, -0.09}), Outcome::kNotMet);  // fell, too little
  EXPECT_EQ(outcome_of({-0.3, 0.2, -0.3, 0.1}), Outcome::kNotDecidable);
  EXPECT_EQ(outcome_of({-0.3, -0.3, -0.3}), Outcome::kNotDecidable);  // three of four units
  Preregistration other = example();
  other.data[0].sha256 = std::string(64, 'b');
  EXPECT_EQ(outcome_of({-0.3, -0.3, -0.3, -0.3}, other), Outcome::kNotDecidable);
  other = example();
  other.task = "text:b.txt";
  EXPECT_EQ(outcome_of({-0.3, -0.3, -0.3, -0.3}, other), Outcome::kNotDecidable);
  other = example();
  other.direction = "above";
  EXPECT_EQ(outcome_of({-0.3, -0.3, -0.3, -0.3}, other), Outcome::kNotMet);
  other.metric = "bits_per_byte";  // the task has no bytes
  EXPECT_EQ(outcome_of({-0.3, -0.3, -0.3, -0.3}, other), Outcome::kNotDecidable);
}

TEST(Verdict, ANegativeResultIsCalledOne) {
  const auto title = [](const std::vector<double>& per_token) {
    return measure::judge(facts_of(example()), {result_of(per_token)}).title;
  };
  EXPECT_EQ(title({-0.3, -0.3, -0.3, -0.3}), "0001-falls: met");
  EXPECT_EQ(title({0.3, 0.3, 0.3, 0.3}), "Negative result, 0001-falls: not met");
  EXPECT_EQ(title({-0.3}), "Negative result, 0001-falls: not decidable");
  const auto without = [](const std::vector<double>& per_token) {
    return measure::judge({}, {result_of(per_token)}).title;
  };
  EXPECT_THAT(without({-0.3, -0.3}), HasSubstr("lowers"));
  EXPECT_THAT(without({0.3, 0.3}), HasSubstr("Negative result: the adapter raises"));
  EXPECT_THAT(without({-0.3, 0.3}), HasSubstr("Negative result: no difference"));
}

TEST(Verdict, ARunMayBeJudgedOnlyByWhatItBeganWith) {
  const auto why = [](const std::function<void(RegistrationFacts&)>& change) {
    RegistrationFacts facts = facts_of(example());
    change(facts);
    const auto verdict = measure::judge(facts, {result_of({-0.3, -0.3, -0.3, -0.3})});
    std::string all = std::string(measure::name_of(verdict.outcome)) + ": ";
    for (const std::string& line : verdict.why) all += line + "\n";
    return all;
  };
  EXPECT_THAT(why([](auto&) {}), HasSubstr("met: "));
  EXPECT_THAT(why([](auto& f) { f.file_sha256 = std::string(64, 'e'); }),
              HasSubstr("refused: changed"));
  EXPECT_THAT(why([](auto& f) { f.registered->registered_unix_ns = 201; }),
              HasSubstr("refused: younger"));
  EXPECT_THAT(why([](auto& f) { f.run_sha256 = ""; }), HasSubstr("refused: the run began without"));
  EXPECT_THAT(why([](auto& f) { f.has_run = false; }), HasSubstr("refused: no run"));
  EXPECT_THAT(why([](auto& f) {
                f.given = false;
                f.registered.reset();
              }),
              HasSubstr("refused: missing"));
  EXPECT_THAT(why([](auto& f) {
                f.there = false;
                f.file_sha256 = "";
                f.unreadable = "0001-falls.json: cannot be opened";
                f.registered.reset();
              }),
              HasSubstr("refused: missing: 0001-falls.json"));
  EXPECT_THAT(why([](auto& f) {
                f.file_sha256 = "";
                f.unreadable = "0001-falls.json: is a directory, not a regular file";
                f.registered.reset();
              }),
              HasSubstr("refused: unreadable: 0001-falls.json: is a directory"));
}

TEST(Preregistration, IsReadAsItWasWrittenOrRefused) {
  const ScratchFolder scratch;
  const auto path = scratch / "0001-falls.json";
  const std::string text = measure::preregistration_json(example());
  checks::write_bytes(path, text);
  EXPECT_EQ(measure::preregistration_json(measure::read_preregistration(path)), text);
  EXPECT_EQ(*measure::read_preregistration(path).settings, *example().settings);
  // Without digests the weights are free, and that is said.
  Preregistration loose = example();
  loose.model.digests_sha256.clear();
  checks::write_bytes(path, measure::preregistration_json(loose));
  EXPECT_THAT(measure::preregistration_json(loose), HasSubstr("\"digests_sha256\": null"));
  EXPECT_EQ(measure::read_preregistration(path).model.digests_sha256, "");
  EXPECT_THAT(measure::preregistration_page(loose, "d1"), HasSubstr("weights are not registered"));
  EXPECT_THAT(measure::preregistration_page(example(), "d1"),
              testing::AllOf(HasSubstr(std::string(64, '3') + "` tiktoken.model"),
                             HasSubstr(std::string(64, '5') + "` digests of all tensors"),
                             testing::Not(HasSubstr("not registered"))));
  // Format 1, which fixed neither settings nor model, is what it was.
  Preregistration first = example();
  first.settings.reset();
  const std::string old = measure::preregistration_json(first);
  EXPECT_THAT(old, HasSubstr("\"format\": \"lazylora preregistration 1\""));
  EXPECT_THAT(old, HasSubstr("\"units\": 4,\n \"stopping_rule\""));  // no model either
  checks::write_bytes(path, old);
  EXPECT_FALSE(measure::read_preregistration(path).settings);
  EXPECT_EQ(measure::preregistration_json(measure::read_preregistration(path)), old);
  EXPECT_THAT(measure::preregistration_page(first, "d1"), testing::Not(HasSubstr("In chunks")));
  // One wrong thing each.
  const std::pair<const char*, const char*> wrong[] = {
      {"\"0001-falls\"", "\"1-falls\""},
      {"\"Does it fall?\"", "\"\""},
      {"\"loss\"", "\"luck\""},
      {"text:a.txt", "text:b.txt"},
      {"\"below\"", "\"beneath\""},
      {"-0.1", "\"-0.1\""},
      {"\"units\": 4", "\"units\": 1"},
      {"aaaa", "AAAA"},
      {"\"units\": 4", "\"units\": 4, \"more\": 1"},
      {"\"expected\": \"it falls\",\n", ""},
      {"preregistration 2", "preregistration 1"},
      {"preregistration 2", "preregistration 3"},
      {"\"chunk\": 64,\n", ""},
      {"\"chunk\": 64", "\"chunk\": 31"},
      {"\"stride\": 32", "\"stride\": 0"},
      {"\"first\"", "\"last\""},
      {"\"seed\": 7", "\"seed\": -7"},
      {"\"resamples\": 10000", "\"resamples\": 500"},
      {"\"config_sha256\": \"1", "\"config_sha256\": \"x"},
      {"\"headers_sha256\": \"2", "\"headers_sha256\": \""},
      {"\"tokenizer_sha256\": \"3", "\"tokenizer_sha256\": \"33"},
      {"\"tokenizer_config_sha256\": \"4", "\"tokenizer_config_sha256\": \"A"},
      {"\"digests_sha256\": \"5", "\"digests_sha256\": \"?"},
      {"\"model\": {", "\"model\": null, \"more\": {"},
      {"\"model\": {", "\"model\": {\"more\": 1,"},
      {"adapter minus base", "base minus adapter"}};
  for (const auto& [from, to] : wrong) {
    std::string edited = text;
    const std::size_t at = edited.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    checks::write_bytes(path, edited.replace(at, std::string(from).size(), to));
    EXPECT_THROW(measure::read_preregistration(path), engine::base::Error) << to;
  }
}

// A page is judged by its words: facts_of in checks/evidence/common.sh looks for these, on the pages of before, too.
TEST(Preregistration, ThePageHasTheWordsThatEvidenceLooksFor) {
  const std::string page = measure::preregistration_page(example(), "d1");
  const std::vector<std::string> wanted{
      "SHA-256 `d1`",
      "loss of text:a.txt, adapter minus base, is to lie below -0.1:", "fewer than 4 units",
      "chunks of 64 predictions, a stride of 32, begin-of-text id first; 10000 resamples of seed 7",
      "* `" + std::string(64, 'a') + "` a.txt\n"};
  for (const std::string& words : wanted) {
    EXPECT_THAT(page, HasSubstr(words)) << "facts_of in checks/evidence/common.sh looks for it";
  }
}

// Planted: words that would be a heading, a list, HTML or a second paragraph of the page.
TEST(Preregistration, AWordOnThePageIsAWord) {
  Preregistration r = example();
  r.question = "  # Met\n\n## Decided by\n<script>x</script> a*b [c](d)";
  r.expected = "- 1 of 2";
  r.refuted_by = "12. of May, 0.5 above";
  const std::string page = measure::preregistration_page(r, "d1");
  EXPECT_THAT(page, HasSubstr("\n\n\\# Met \\#\\# Decided by \\<script\\>x\\</script\\> a\\*b "
                              "\\[c\\](d)\n\nFrozen as"));
  EXPECT_THAT(page, HasSubstr("## Expected\n\n\\- 1 of 2\n"));
  EXPECT_THAT(page, HasSubstr("\n\n12\\. of May, 0.5 above\n\n"));
}

TEST(Preregistration, WhatIsNotUtf8IsNamed) {
  const auto why = [](const std::function<void(Preregistration&)>& change) {
    Preregistration r = example();
    change(r);
    try {
      measure::require_valid(r, "here");
    } catch (const engine::base::Error& wrong) {
      return std::string(wrong.what());
    }
    return std::string();
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(why([](auto& r) { r.question = " \n\t"; }),
            "here: question is blanks alone, which say nothing");
  EXPECT_EQ(why([](auto& r) { r.data.push_back(r.data[0]); }),
            "here: data: a.txt stands there twice: a task is one text or set of that name");
  EXPECT_EQ(why([](auto& r) { r.expected = "it f\xFF"; }),
            "here: expected: byte 4 is 0xff: not UTF-8");
  EXPECT_EQ(why([](auto& r) {
              r.data.push_back({"\x80", std::string(64, 'a')});
            }),
            "here: a name of data: byte 0 is 0x80: not UTF-8");
}

TEST(Verdict, PlantedFaults) {
  const measure::TaskResult result = result_of({-0.3, -0.31, -0.29, -0.3});
  // Units drawn for either model by itself: an interval as wide as texts are different.
  std::vector<double> base, tokens;
  for (const auto& unit : result.base_units) {
    base.push_back(unit.nll);
    tokens.push_back(10.0);
  }
  const auto alone = measure::bootstrap_ratio(base, tokens, 7, "base");
  const auto& paired = *result.differences[0].interval;
  EXPECT_GT(alone->high - alone->low, 10 * (paired.high - paired.low));
  // The point estimate for the interval: it would call what is not decidable met.
  EXPECT_LT(result_of({-0.3, -0.35, 0.05, -0.3}).differences[0].value, -0.1);
  EXPECT_EQ(outcome_of({-0.3, -0.35, 0.05, -0.3}), Outcome::kNotDecidable);
}

}  // namespace
