// Texts dated after a day: what is kept, what is left out, and what a list may not say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checks/scratch_folder.h"
#include "engine/base/error.h"
#include "engine/base/sha256.h"
#include "engine/data/corpus.h"

namespace {

namespace data = engine::data;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json entry(const std::string& file, const std::string& date) {
  return {
      {"file", file}, {"date", date}, {"revision", "r-" + file}, {"source", "https://a.example"}};
}

class Corpus : public testing::Test {
 protected:
  Corpus() {
    std::filesystem::create_directory(scratch_ / "in");
    write("old.txt", "what there was before");
    write("day.txt", "what was written on the day itself");
    write("new.txt", "what came after\r\n\xe4\xbd\xa0");
    write("last.txt", "and at last");
  }
  void write(const std::string& name, const std::string& bytes) {
    checks::write_bytes(scratch_ / "in" / name, bytes);
  }
  std::vector<json> four() const {
    return {entry("new.txt", "2025-01-01"), entry("old.txt", "2019-07-04"),
            entry("day.txt", "2024-12-31"), entry("last.txt", "2031-02-28")};
  }
  data::Corpus build(const std::string& list, const std::string& after = "2024-12-31") {
    write("list.jsonl", list);
    std::filesystem::remove_all(scratch_ / "out");
    engine::base::RamBudget budget(std::uint64_t{1} << 24);
    return data::build_corpus(scratch_ / "out", {scratch_ / "in" / "list.jsonl", after}, budget);
  }
  static std::string lines(const std::vector<json>& entries) {
    std::string text;
    for (const json& each : entries) text += each.dump() + "\n";
    return text;
  }
  // What an Error says; empty: there was none.
  static std::string refusal(const std::function<void()>& act) {
    try {
      act();
    } catch (const engine::base::Error& wrong) {
      return wrong.what();
    }
    return "";
  }
  // Why a list whose second entry was changed is not taken; nothing is left behind.
  std::string why_not(const std::function<void(json&)>& change) {
    std::vector<json> entries = four();
    change(entries[1]);
    const std::string said = refusal([&] { build(lines(entries)); });
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "out.lazylora-tmp"));
    return said;
  }
  // Why a folder whose manifest was changed is not read.
  std::string why_unread(const std::function<void(json&)>& change) {
    build(lines(four()));
    const auto path = scratch_ / "out" / "manifest.json";
    json manifest = json::parse(checks::read_bytes(path));
    change(manifest);
    checks::write_bytes(path, manifest.dump());
    return refusal([&] { data::read_corpus(scratch_ / "out"); });
  }
  const checks::ScratchFolder scratch_;
};

TEST_F(Corpus, KeepsWhatIsDatedAfterTheDay) {
  const std::string list = lines(four());
  const data::Corpus built = build(list);
  const data::Corpus read = data::read_corpus(scratch_ / "out");
  for (const data::Corpus& corpus : {built, read}) {
    ASSERT_EQ(corpus.texts.size(), 2U);
    ASSERT_EQ(corpus.left_out.size(), 2U);
    EXPECT_EQ(corpus.texts[0].name, "new.txt");
    EXPECT_EQ(corpus.texts[0].bytes, 20U);
    EXPECT_EQ(corpus.texts[0].date, "2025-01-01");
    EXPECT_EQ(corpus.texts[0].revision, "r-new.txt");
    EXPECT_EQ(corpus.texts[0].source, "https://a.example");
    EXPECT_EQ(corpus.texts[1].name, "last.txt");
    EXPECT_EQ(corpus.left_out[0].name, "old.txt");
    EXPECT_EQ(corpus.left_out[1].name, "day.txt");  // the day itself is not after it
    EXPECT_EQ(corpus.left_out[1].sha256,
              engine::base::sha256_hex("what was written on the day itself"));
    EXPECT_EQ(corpus.after, "2024-12-31");
    EXPECT_EQ(corpus.list_name, "list.jsonl");
    EXPECT_EQ(corpus.list_sha256, engine::base::sha256_hex(list));
  }
  EXPECT_EQ(read.manifest_sha256, built.manifest_sha256);
  EXPECT_EQ(data::read_corpus_text(scratch_ / "out", read.texts[0]),
            checks::read_bytes(scratch_ / "in" / "new.txt"));
  const json manifest = json::parse(checks::read_bytes(scratch_ / "out" / "manifest.json"));
  EXPECT_EQ(manifest.at("left_out")[0].at("why"), "dated 2019-07-04, not after 2024-12-31");
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out" / "texts" / "old.txt"));
  EXPECT_TRUE(data::is_corpus(scratch_ / "out"));
  EXPECT_FALSE(data::is_corpus(scratch_ / "in"));
  // The same list, the same bytes, wherever it lies.
  const std::string first = built.manifest_sha256;
  EXPECT_EQ(build(list).manifest_sha256, first);
}

// A file that is written under a name of its own first takes that from the text that has it.
TEST_F(Corpus, NoTextIsWrittenOverByAnother) {
  write("a.lazylora-tmp", "one text");
  write("a", "another");
  for (const char* first : {"a.lazylora-tmp", "a"}) {
    const char* second = first == std::string("a") ? "a.lazylora-tmp" : "a";
    build(lines({entry(first, "2025-01-01"), entry(second, "2025-01-01")}));
    const data::Corpus corpus = data::read_corpus(scratch_ / "out");
    ASSERT_EQ(corpus.texts.size(), 2U);
    for (const data::CorpusText& text : corpus.texts) {
      EXPECT_EQ(data::read_corpus_text(scratch_ / "out", text),
                checks::read_bytes(scratch_ / "in" / text.name));
    }
  }
}

TEST_F(Corpus, MemoryAndDiskThatDoNotSufficeAreNamed) {
  write("new.txt", std::string(100'000, 'x'));
  write("list.jsonl", lines(four()));
  engine::base::RamBudget budget(50'000);
  EXPECT_THAT(refusal([&] {
                data::build_corpus(scratch_ / "out", {scratch_ / "in" / "list.jsonl", "2024-12-31"},
                                   budget);
              }),
              HasSubstr("a text of a corpus"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
  std::string why;
  {
    const checks::FileSizeLimit limit(50'000);
    why = refusal([&] {
      engine::base::RamBudget ample(std::uint64_t{1} << 24);
      data::build_corpus(scratch_ / "out", {scratch_ / "in" / "list.jsonl", "2024-12-31"}, ample);
    });
  }
  EXPECT_THAT(why, AllOf(HasSubstr("new.txt: cannot be written"), HasSubstr("too large")));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
}

TEST_F(Corpus, ADayIsOneThatThereWas) {
  for (const char* day : {"2024-02-29", "2000-02-29", "2023-12-31", "0001-01-01"}) {
    EXPECT_EQ(refusal([&] { data::require_day(day, "here"); }), "") << day;
  }
  for (const char* day :
       {"2023-02-29", "1900-02-29", "2024-13-01", "2024-00-10", "2024-04-31", "2024-01-00"}) {
    EXPECT_THAT(refusal([&] { data::require_day(day, "here"); }),
                AllOf(HasSubstr("here: "), HasSubstr(day), HasSubstr("no calendar has")));
  }
  for (const char* day : {"", "2024-1-01", "2024/01/01", "24-01-01", "2024-01-01T00", "+024-01-01",
                          "2024-01- 1", "2024-01-1x"}) {
    EXPECT_THAT(refusal([&] { data::require_day(day, "here"); }), HasSubstr("YYYY-MM-DD")) << day;
  }
  EXPECT_THAT(refusal([&] { build(lines(four()), "2024-06-31"); }),
              HasSubstr("--after: 2024-06-31"));
}

TEST_F(Corpus, PlantedFaultsOfAList) {
  const std::string second = "list.jsonl: line 2: ";
  for (const char* field : {"file", "date", "revision", "source"}) {
    EXPECT_THAT(why_not([&](json& e) { e.erase(field); }), HasSubstr(second + "has no " + field));
    EXPECT_THAT(why_not([&](json& e) { e[field] = ""; }), HasSubstr(second + field + " is empty"));
    EXPECT_THAT(why_not([&](json& e) { e[field] = 7; }),
                HasSubstr(second + field + " is 7, not a string"));
  }
  EXPECT_THAT(why_not([](json& e) { e["dated"] = "2019-07-04"; }),
              HasSubstr(second + "\"dated\" is no field"));
  EXPECT_THAT(why_not([](json& e) { e["date"] = "2019-02-30"; }), HasSubstr(second + "2019-02-30"));
  EXPECT_THAT(why_not([](json& e) { e["file"] = "nowhere.txt"; }), HasSubstr("nowhere.txt"));
  EXPECT_THAT(why_not([](json& e) { e["file"] = "a\nb"; }), HasSubstr("is no name of a file"));
  EXPECT_THAT(why_not([](json& e) { e["file"] = "in/.."; }), HasSubstr("is no name of a file"));
  // Twice by name, though another file; twice by bytes, though another name, and though the first was
  // left out: an old text does not come back under a new date.
  std::filesystem::create_directory(scratch_ / "in" / "sub");
  write("sub/new.txt", "other bytes");
  EXPECT_THAT(why_not([](json& e) { e["file"] = "sub/new.txt"; }),
              HasSubstr(second + "new.txt has the name new.txt, as line 1 has"));
  write("copy.txt", "what there was before");
  const auto copied = lines({entry("old.txt", "2019-07-04"), entry("copy.txt", "2026-01-01")});
  EXPECT_THAT(refusal([&] { build(copied); }),
              AllOf(HasSubstr(second + "copy.txt has the bytes of SHA-256"), HasSubstr("line 1")));
  write("old.txt", "ab\xFFz");
  EXPECT_THAT(why_not([](json&) {}), AllOf(HasSubstr("old.txt"), HasSubstr("byte 2 is 0xff")));
  // Nothing, and what is as good as nothing; a word behind the mark is one.
  for (const std::string bytes : {"", "\n", " \t\r\n\v\f", "\xEF\xBB\xBF", "\xEF\xBB\xBF \n"}) {
    write("old.txt", bytes);
    EXPECT_THAT(
        why_not([](json&) {}),
        HasSubstr(fmt::format("old.txt: is empty: all of its {} bytes are blank", bytes.size())));
  }
  write("old.txt", "\xEF\xBB\xBF \nx");
  build(lines(four()));
  write("old.txt", "again");
  EXPECT_THAT(refusal([&] { build(lines({entry("day.txt", "2024-12-31")})); }),
              HasSubstr("of 1 texts none is dated after 2024-12-31"));
  EXPECT_THAT(refusal([&] { build(lines(four()) + "\n"); }), HasSubstr("line 5"));
  EXPECT_THAT(refusal([&] { build("{\"file\": \"\xFF\"}\n"); }), HasSubstr("line 1"));
  build(lines(four()));
  engine::base::RamBudget budget(std::uint64_t{1} << 24);
  EXPECT_THAT(refusal([&] {
                data::build_corpus(scratch_ / "out", {scratch_ / "in" / "list.jsonl", "2024-12-31"},
                                   budget);
              }),
              HasSubstr("is there already"));
}

TEST_F(Corpus, PlantedFaultsOfAFolder) {
  build(lines(four()));
  const auto path = scratch_ / "out" / "texts" / "new.txt";
  const data::CorpusText text = data::read_corpus(scratch_ / "out").texts.at(0);
  const std::string right = checks::read_bytes(path);
  for (std::size_t i = 0; i < right.size(); ++i) {
    std::string changed = right;
    changed[i] ^= 1;
    checks::write_bytes(path, changed);
    EXPECT_THAT(refusal([&] { data::read_corpus_text(scratch_ / "out", text); }),
                AllOf(HasSubstr("new.txt: has SHA-256"), HasSubstr(text.sha256)));
  }
  checks::write_bytes(path, right + "x");
  EXPECT_THAT(refusal([&] { data::read_corpus_text(scratch_ / "out", text); }),
              HasSubstr("has 21 bytes, the manifest says 20"));
  std::filesystem::remove(path);
  EXPECT_THAT(refusal([&] { data::read_corpus_text(scratch_ / "out", text); }),
              HasSubstr("new.txt"));
  // Right by its digest, and nothing all the same.
  checks::write_bytes(path, " \n");
  data::CorpusText blank = text;
  blank.bytes = 2;
  blank.sha256 = engine::base::sha256_hex(" \n");
  EXPECT_THAT(refusal([&] { data::read_corpus_text(scratch_ / "out", blank); }),
              HasSubstr("new.txt: is empty: all of its 2 bytes are blank"));
  EXPECT_THAT(why_unread([](json& m) { m["texts"] = json::array(); }),
              HasSubstr("manifest.json: 0 texts, 2 left out"));
  EXPECT_EQ(why_unread([](json&) {}), "");
  EXPECT_THAT(why_unread([](json& m) { m["format"] = "lazylora data 1"; }),
              HasSubstr("not \"lazylora corpus 1\""));
  EXPECT_THAT(why_unread([](json& m) { m["texts"][0]["date"] = "2024-12-31"; }),
              HasSubstr("new.txt is dated 2024-12-31, not after 2024-12-31"));
  EXPECT_THAT(why_unread([](json& m) { m["texts"][1]["file"] = "../../last.txt"; }),
              HasSubstr("texts 1: \"../../last.txt\" is no name"));
  EXPECT_THAT(why_unread([](json& m) { m["texts"][0].erase("sha256"); }), HasSubstr("no sha256"));
  EXPECT_THAT(why_unread([](json& m) { m["texts"] = 1; }), HasSubstr("not an array"));
  // What a list may not say, a manifest may not either; between texts and left_out as well.
  EXPECT_THAT(why_unread([](json& m) { m["texts"][1]["file"] = "new.txt"; }),
              HasSubstr("texts 1: new.txt has the name new.txt, as texts 0 has"));
  EXPECT_THAT(why_unread([](json& m) { m["texts"][1]["sha256"] = m["texts"][0]["sha256"]; }),
              HasSubstr("texts 1: last.txt has the bytes of SHA-256"));
  EXPECT_THAT(why_unread([](json& m) { m["left_out"][0]["file"] = "last.txt"; }),
              HasSubstr("left_out 0: last.txt has the name last.txt, as texts 1 has"));
  EXPECT_THAT(why_unread([](json& m) { m["texts"][0]["sha256"] = m["left_out"][1]["sha256"]; }),
              HasSubstr("left_out 1: day.txt has the bytes of SHA-256"));
  EXPECT_THAT(why_unread([](json& m) { m["after"] = "soon"; }), HasSubstr("\"soon\" is no day"));
  std::filesystem::remove(scratch_ / "out" / "manifest.json");
  EXPECT_THAT(refusal([&] { data::read_corpus(scratch_ / "out"); }), HasSubstr("manifest.json"));
}

}  // namespace
