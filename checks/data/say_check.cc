#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "engine/cli/say.h"

namespace {

using engine::cli::harmless;
using engine::cli::say;
using engine::cli::say_json;

template <class Print>
std::string printed(const Print& print) {
  testing::internal::CaptureStdout();
  print();
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

// Whether a terminal would print all of it and obey nothing: UTF-8 without C0 but line end and tab, DEL, C1.
bool is_tame(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) return false;
    const bool c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c1) return false;
  }
  return true;
}

TEST(Say, EveryByteAloneAndEveryControl) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    const bool plain = (byte >= 0x20 && byte < 0x7F) || byte == '\n' || byte == '\t';
    EXPECT_EQ(harmless(one), plain ? one : fmt::format("\\x{:02X}", byte));
  }
  for (int code = 0x80; code < 0xA0; ++code) {
    const std::string control = std::string("\xC2") + static_cast<char>(code);
    EXPECT_EQ(harmless(control), fmt::format("\\xC2\\x{:02X}", code));
  }
}

TEST(Say, OtherTextIsUnchanged) {
  for (const std::string text :
       {"", "plain \\x1B", "ü ß 漢字 \u00A0 \u2028 \U0001F600 e\u0301 ⟦a⟧", "a\tb\nc"}) {
    EXPECT_EQ(harmless(text), text);
  }
  EXPECT_EQ(harmless("a\xE6\xBC"), "a\\xE6\\xBC") << "a character that was cut";
  EXPECT_EQ(harmless("\xED\xA0\x80"), "\\xED\\xA0\\x80") << "a surrogate";
}

TEST(Say, ValuesAreText) {
  const std::string hostile =
      "\x1B[2J\x1B]0;title\x07 \xC2\x9B"
      "31m\x7F\r";
  const std::string out = printed([&] { say("{:>4} {}: {}\n", 7, hostile, "ü"); });
  EXPECT_TRUE(is_tame(out)) << out;
  EXPECT_EQ(out, "   7 \\x1B[2J\\x1B]0;title\\x07 \\xC2\\x9B31m\\x7F\\x0D: ü\n");
}

TEST(Say, JsonStaysTheSameJson) {
  const nlohmann::json json = {{"name", "\x1B[2J\x7F \xC2\x85\xC2\x9B ü \\x7F \" 漢"}, {"n", 1.5}};
  const std::string out = printed([&] { say_json(json.dump(1) + "\n"); });
  EXPECT_TRUE(is_tame(out)) << out;
  EXPECT_EQ(nlohmann::json::parse(out), json);
  EXPECT_THAT(out, testing::AllOf(testing::HasSubstr("\\u007f"), testing::HasSubstr("\\u009b")));
}

TEST(Say, PlantedFaults) {
  EXPECT_FALSE(is_tame("\x1B[2J"));
  EXPECT_FALSE(
      is_tame("\xC2\x9B"
              "2J"))
      << "C1 in UTF-8";
  EXPECT_FALSE(is_tame("\x7F"));
  EXPECT_FALSE(is_tame(nlohmann::json("\x7F").dump())) << "JSON as the library writes it";
}

}  // namespace
