#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checks/data/tokenizer_folder.h"
#include "engine/data/ranks.h"

namespace {

using checks::refusal;
using engine::data::Ranks;
using testing::AllOf;
using testing::HasSubstr;

// The 256 bytes and "ab": 257 lines.
std::vector<std::string> good_lines() {
  std::vector<std::string> lines;
  std::string text = checks::ranks_text(512);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  lines.push_back("YWI= 256");
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::string why_not(const std::vector<std::string>& lines) {
  return refusal([&] { Ranks(joined(lines), "FILE"); });
}

TEST(Ranks, ReadsTokensByRankInAnyOrderOfLines) {
  std::vector<std::string> lines = good_lines();
  ASSERT_EQ(lines.size(), 257u);
  std::swap(lines[3], lines[200]);
  std::swap(lines[256], lines[0]);
  std::string text = joined(lines);
  text.pop_back();  // no newline at the end
  const Ranks ranks(text, "FILE");
  EXPECT_EQ(ranks.size(), 257);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(ranks.find(one), byte);
    EXPECT_EQ(ranks.bytes(byte), one);
  }
  EXPECT_EQ(ranks.find("ab"), 256);
  EXPECT_EQ(ranks.find("ba"), -1);
  EXPECT_EQ(ranks.find("abc"), -1);
  EXPECT_EQ(ranks.find(""), -1);
}

TEST(Ranks, I10_BlankLinesArePassedOver) {
  std::vector<std::string> lines = good_lines();
  lines.insert(lines.begin() + 7, {"", " ", "\t", ""});
  lines.push_back("");
  EXPECT_EQ(why_not(lines), "");
  EXPECT_EQ(Ranks(joined(lines), "FILE").find("ab"), 256);
}

TEST(Ranks, I10_OthersAreRefusedWithTheirLine) {
  const auto with = [](std::size_t line, const std::string& text) {
    std::vector<std::string> lines = good_lines();
    lines[line - 1] = text;
    return why_not(lines);
  };
  EXPECT_EQ(why_not(good_lines()), "");
  // Line 11 holds byte 10: Cg== 10.
  EXPECT_EQ(with(11, "Cg== 10"), "");
  EXPECT_THAT(with(11, "Cg== 10\r"), AllOf(HasSubstr("FILE: line 11"), HasSubstr("CRLF")));
  EXPECT_THAT(with(11, "\r"), AllOf(HasSubstr("line 11"), HasSubstr("CRLF")));
  EXPECT_THAT(with(11, "Cg== 9"),
              AllOf(HasSubstr("line 11"), HasSubstr("rank 9"), HasSubstr("line 10 as well")));
  EXPECT_THAT(with(257, "Cg== 256"), AllOf(HasSubstr("line 257"), HasSubstr("line 11")))
      << "a token twice";
  EXPECT_THAT(with(11, "YWM= 10"), AllOf(HasSubstr("line 257"), HasSubstr("byte 0x0a")))
      << "a byte without a token";
  EXPECT_THAT(with(257, "YWI= 300"), AllOf(HasSubstr("line 257"), HasSubstr("rank 300")));
  EXPECT_THAT(with(257, "YWI= 257"),
              AllOf(HasSubstr("line 257"), HasSubstr("no line has rank 256")));
  EXPECT_THAT(with(11, "Cg=* 10"), AllOf(HasSubstr("line 11"), HasSubstr("not base64")));
  for (const char* token : {"Cg=", "Cg", "C===", "====", "Ch==", "Cg==Cg==", "=g==", "Q g=", "_w==",
                            "\xC3\xA4==", ""}) {
    EXPECT_THAT(with(11, std::string(token) + " 10"), HasSubstr("line 11")) << token;
  }
  for (const char* rank : {"", "-1", "+10", "010", "1e1", "10.0", " 10", "10 ", "0x0a", "ten",
                           "99999999999999999999", "10 10"}) {
    EXPECT_THAT(with(11, std::string("Cg== ") + rank), HasSubstr("line 11")) << rank;
  }
  EXPECT_THAT(with(11, "Cg==10"), HasSubstr("line 11"));
  EXPECT_THAT(with(11, "Cg==\t10"), HasSubstr("line 11"));
  EXPECT_THAT(refusal([] { Ranks("", "FILE"); }), HasSubstr("byte 0x00"));
  EXPECT_THAT(refusal([] { Ranks(std::string(3'000'000, '\n'), "FILE"); }), HasSubstr("lines"));
}

TEST(Ranks, PlantedFaults) {
  // One line less, one more, two exchanged ranks: each is another vocabulary or none.
  std::vector<std::string> lines = good_lines();
  lines.erase(lines.begin() + 97);
  EXPECT_NE(why_not(lines), "");
  lines = good_lines();
  lines.push_back("YWI= 257");
  EXPECT_NE(why_not(lines), "");
  lines = good_lines();
  lines[97] = "Yg== 97", lines[98] = "YQ== 98";
  EXPECT_EQ(why_not(lines), "");
  EXPECT_EQ(Ranks(joined(lines), "FILE").find("b"), 97);
}

}  // namespace
