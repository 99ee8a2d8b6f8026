#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "checks/data/tokenizer_folder.h"
#include "checks/reference.h"
#include "engine/cli/data.h"
#include "engine/cli/tokenize.h"
#include "engine/data/records.h"

namespace {

using checks::refusal;
using checks::TokenizerFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What a command line prints.
std::string run(const std::vector<std::string>& arguments) {
  CLI::App app;
  engine::cli::add_tokenize_command(app);
  engine::cli::add_data_command(app);
  testing::internal::CaptureStdout();
  try {
    // CLI11 takes a vector from its end.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

class DataCommand : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) {
    checks::write_bytes(scratch_ / name, bytes);
    return (scratch_ / name).string();
  }
  std::string path(const std::string& name) const { return (scratch_ / name).string(); }
  std::vector<std::string> build(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> all{"data",   "build",    "--model", model_,  "--records",
                                 records_, "--length", length_,   "--out", path(out)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TokenizerFolder folder_;
  checks::ScratchFolder scratch_;
  std::string length_ = "256";
  std::string model_ = folder_.path().string();
  std::string records_ =
      (checks::source_root() / "docs" / "examples" / "instructions.jsonl").string();
};

TEST_F(DataCommand, TokenizeThereAndBack) {
  const std::string text = "What is it?\n\u4F60\u597D\u3002 <|end_of_msg|>";
  const std::string ids = run({"tokenize", file("text", text), "--model", model_});
  EXPECT_EQ(ids.find_first_not_of("0123456789,\n"), std::string::npos) << ids;
  EXPECT_THAT(ids, Not(HasSubstr("7938")));
  EXPECT_EQ(run({"tokenize", "--decode", file("ids", ids), "--model", model_}), text);
  const std::string markup = run({"tokenize", path("text"), "--model", model_, "--markup"});
  EXPECT_TRUE(markup.ends_with(",7938\n")) << markup;
  EXPECT_EQ(run({"tokenize", "--decode", file("ids", markup), "--model", model_}), text);
  EXPECT_EQ(run({"tokenize", file("text", ""), "--model", model_}), "\n");
  EXPECT_THAT(refusal([&] {
                run({"tokenize", file("text", "ab\xFF"), "--model", model_});
              }),
              AllOf(HasSubstr(path("text")), HasSubstr("byte 2 is 0xff")));
  EXPECT_THAT(refusal([&] {
                run({"tokenize", "--decode", file("ids", "5,8192"), "--model", model_});
              }),
              AllOf(HasSubstr("id 1"), HasSubstr("8192"), HasSubstr("8191")));
  EXPECT_THAT(refusal([&] {
                run({"tokenize", path("nothing"), "--model", model_});
              }),
              HasSubstr(path("nothing")));
  EXPECT_THROW(run({"tokenize", "--decode", "--markup", path("ids"), "--model", model_}),
               CLI::ParseError);
}

TEST_F(DataCommand, BuildHeldOutAndShow) {
  const std::string said = run(build("train", {"--count", "50", "--shuffle"}));
  EXPECT_THAT(said, AllOf(HasSubstr("67 records read, 67 left"), HasSubstr("turkish"),
                          HasSubstr("50 documents"), HasSubstr("manifest ")));
  EXPECT_THAT(run({"data", "held-out", "--model", model_, "--records", records_, "--length", "256",
                   "--out", path("held"), "--not-in", path("train")}),
              AllOf(HasSubstr("50 out by in_another_set"), HasSubstr("17 documents")));
  const std::string shown = run({"data", "show", path("train"), "2", "--model", model_});
  EXPECT_THAT(shown, AllOf(HasSubstr("== sequence 0: "), HasSubstr("== sequence 1: "),
                           Not(HasSubstr("== sequence 2: ")), HasSubstr("-- document 1: "),
                           HasSubstr("<|open|>\u27EBresponse\u27EA<|sep|>\u27EB\u27E6"),
                           HasSubstr("<|close|>\u27EBmessage\u27EA<|sep|><|end_of_msg|>"
                                     "\u27EB\u27E7\n")));
  EXPECT_THAT(shown, Not(HasSubstr("\u27E6\u27EA<|open|>")));
  EXPECT_THAT(run({"data", "show", path("train"), "--from", "1"}), HasSubstr("7939 "));
  EXPECT_THAT(refusal([&] {
                run({"data", "show", path("train"), "--from", "999"});
              }),
              HasSubstr("999"));
}

TEST_F(DataCommand, ShowIsOfTheSetsTokenizerAndHarmless) {
  records_ = file("records", R"({"instruction": "\u001b[2J\u009b!", "response": "It\u0007."})"
                             "\n");
  length_ = "66";  // exactly the record
  run(build("set"));
  const std::string shown = run({"data", "show", path("set"), "--model", model_});
  EXPECT_THAT(shown, AllOf(HasSubstr(R"(\x1B[2J)"), HasSubstr(R"(It\x07.)"), HasSubstr(R"(\xC2)")));
  EXPECT_EQ(shown.find('\x1B'), std::string::npos);
  TokenizerFolder other;
  other.edit("tokenizer_config.json", "[UNK]", "[NIL]");
  const auto show_with = [&](const TokenizerFolder& model) {
    return refusal([&] { run({"data", "show", path("set"), "--model", model.path().string()}); });
  };
  EXPECT_THAT(show_with(other),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr(folder_.open().config_sha256()),
                    HasSubstr(other.open().config_sha256())));
  // Nothing is wrong with this one's files, though the set's vocabulary is not theirs.
  const TokenizerFolder smaller(600);
  EXPECT_THAT(show_with(smaller),
              AllOf(HasSubstr("tiktoken.model"), HasSubstr(folder_.open().ranks_sha256()),
                    HasSubstr(smaller.open().ranks_sha256())));
}

TEST_F(DataCommand, ShowTellsAControlTokenFromItsNameSpelled) {
  records_ = file("records", R"({"instruction": "What is <|end_of_msg|>?", "response": "<|sep|>"})"
                             "\n");
  length_ = "75";  // exactly the record
  run(build("set"));
  EXPECT_THAT(run({"data", "show", path("set"), "--model", model_}),
              AllOf(HasSubstr("control tokens in \u27EA \u27EB; manifest"),
                    HasSubstr("\u27EBWhat is <|end_of_msg|>?\u27EA"),
                    HasSubstr("\u27E6<|sep|>\u27EA<|close|>\u27EB"),
                    HasSubstr("<|end_of_msg|>\u27EB\u27E7\n")));
}

TEST_F(DataCommand, BadUsageIsRefusedBeforeAnythingIsRead) {
  EXPECT_THROW(run({"data"}), CLI::ParseError);
  EXPECT_THROW(run(build("set", {"--packing", "tight"})), CLI::ParseError);
  EXPECT_THROW(run(build("set", {"--too-long", "1"})), CLI::ParseError);
  EXPECT_THROW(run(build("set", {"--count", "0"})), CLI::ParseError);
  EXPECT_THROW(run(build("set", {"--count", "-3"})), CLI::ParseError);
  EXPECT_THROW(run(build("set", {"--min-response", "-1"})), CLI::ParseError);
  EXPECT_THROW(run(build("set", {"--require", ""})), CLI::ParseError);
  EXPECT_THROW(run({"data", "held-out", "--model", model_, "--records", records_, "--length", "256",
                    "--out", path("held")}),
               CLI::ParseError)
      << "without --not-in";
  EXPECT_THAT(refusal([&] { run(build("set", {"--require", "\xFF"})); }), HasSubstr("--require"));
  EXPECT_FALSE(std::filesystem::exists(path("set")));
}

// What the page about it says: at least sixty, in three languages, none twice.
TEST_F(DataCommand, TheExampleSetIsWhatItsPageSays) {
  engine::data::RecordReader reader(records_, {});
  std::map<std::string, int> categories;
  std::set<std::string> digests;
  while (const auto entry = reader.next()) {
    ++categories[entry->record.category];
    digests.insert(entry->record.digest());
  }
  EXPECT_EQ(digests.size(), 67u);
  EXPECT_EQ(categories["turkish"], 6);
  EXPECT_EQ(categories["chinese"], 6);
  EXPECT_EQ(categories.size(), 9u);
}

TEST_F(DataCommand, PlantedFaults) {
  // A mask that is off by one document would show brackets around a question.
  run(build("set"));
  const std::string path_of_set = path("set");
  std::string bytes = checks::read_bytes(scratch_ / "set" / "sequences.bin");
  const std::string before = run({"data", "show", path_of_set, "--model", model_});
  bytes[bytes.size() - 1] = 0;  // the last <|end_of_msg|> is not trained any more
  checks::write_bytes(scratch_ / "set" / "sequences.bin", bytes);
  EXPECT_THAT(refusal([&] {
                run({"data", "show", path_of_set, "--model", model_});
              }),
              HasSubstr("SHA-256"));
  EXPECT_FALSE(before.empty());
}

}  // namespace
