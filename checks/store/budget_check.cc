#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/decimal.h"
#include "engine/base/error.h"

namespace {

using engine::base::Error;
using engine::base::parse_bytes;
using engine::base::parse_decimal;
using engine::base::RamBudget;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Whether `parse`, from text to a number or nothing, reads what is a number and nothing else. The
// comparison of the right ones and of the planted wrong ones below.
template <class Number, class Parse>
bool reads(const Parse& parse, const std::vector<std::pair<std::string, Number>>& right,
           const std::vector<std::string>& wrong) {
  const auto gives = [&](const auto& row) { return parse(row.first) == std::optional(row.second); };
  return std::ranges::all_of(right, gives) &&
         std::ranges::none_of(wrong,
                              [&](const std::string& text) { return parse(text).has_value(); });
}

template <class Parse>
bool reads_whole_numbers(const Parse& parse) {
  return reads<std::int64_t>(
      parse,
      {{"010", 10},  // not eight
       {"-3", -3},
       {"9223372036854775807", std::numeric_limits<std::int64_t>::max()}},
      {"", " 1", "1 ", "+1", "0x10", "1e3", "1.0", "one", "9223372036854775808",
       "-9223372036854775809", "99999999999999999999"});
}

template <class Parse>
bool reads_floating_point(const Parse& parse) {
  return reads<double>(
      parse, {{"2e-4", 2e-4}, {"-0.5", -0.5}},
      {"", "nan", "inf", "-inf", "infinity", "0x1p3", "1e999", "1,5", "1.5x", "1e", "2 ", "+2"});
}

TEST(Decimal, WholeNumbersAreDecimalAndFit) {
  EXPECT_TRUE(reads_whole_numbers(parse_decimal<std::int64_t>));
  EXPECT_EQ(parse_decimal<std::uint64_t>("18446744073709551615"),
            std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"-1", "18446744073709551616"}) {
    EXPECT_FALSE(parse_decimal<std::uint64_t>(text)) << text;
  }
}

TEST(Decimal, FloatingPointIsDecimalAndFinite) {
  EXPECT_TRUE(reads_floating_point(parse_decimal<double>));
}

TEST(Bytes, ANumberAndAUnit) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1'610'612'736u);
  EXPECT_EQ(parse_bytes("800MB"), 800'000'000u);
  EXPECT_EQ(parse_bytes("1e3KB"), 1'000'000u);
  for (const char* text :
       {"", "MB", "much", "0x10", "nan", "inf GB", "-5MB", "1e30GB", "5 Mb", "5 MB B", "1_000"}) {
    EXPECT_THAT([&] { parse_bytes(text); },
                ThrowsMessage<Error>(HasSubstr("\"" + std::string(text) + "\"")))
        << text;
  }
}

// What is there already is charged whether it fits or not; then nothing is free, and whoever asks
// for more gets a table in which it stands.
TEST(Budget, WhatIsHeldAlreadyIsNotRefusedButCounted) {
  RamBudget budget(1000);
  budget.reserve("program", 5000);
  EXPECT_EQ(budget.free_bytes(), 0u);
  EXPECT_EQ(budget.used_bytes(), 5000u);
  EXPECT_THAT([&] { budget.take<char>("one more", 1); },
              ThrowsMessage<Error>(AllOf(HasSubstr("one more"), HasSubstr("program"))));
}

TEST(Budget, MoreThanTheMachineHasIsAnErrorAndHoldsNothing) {
  RamBudget budget(std::uint64_t{1} << 62);
  EXPECT_THAT([&] { budget.take<char>("everything", std::int64_t{1} << 60); },
              ThrowsMessage<Error>(AllOf(HasSubstr("everything"), HasSubstr("machine"))));
  EXPECT_EQ(budget.used_bytes(), 0u);
}

// Of the library's conversions, whose other habits are mended by whoever uses them.
template <class Number>
std::optional<Number> only_if_all(const std::string& text, Number value, const char* end) {
  if (text.empty() || std::string(" +").find(text[0]) != std::string::npos) return std::nullopt;
  return end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

TEST(Decimal, PlantedFaults) {
  const auto whole = [](int base, bool look_at_range) {
    return [=](const std::string& text) -> std::optional<std::int64_t> {
      char* end = nullptr;
      errno = 0;
      const std::int64_t value = std::strtoll(text.c_str(), &end, base);
      if (look_at_range && errno == ERANGE) return std::nullopt;
      return only_if_all(text, value, end);
    };
  };
  EXPECT_TRUE(reads_whole_numbers(whole(10, true)));
  EXPECT_FALSE(reads_whole_numbers(whole(0, true))) << "010 is eight, 0x10 sixteen";
  EXPECT_FALSE(reads_whole_numbers(whole(10, false))) << "the largest for what does not fit";
  EXPECT_FALSE(reads_whole_numbers([](const std::string& text) {
    std::int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() ? std::optional(value) : std::nullopt;
  })) << "what stands behind the number";
  EXPECT_FALSE(reads_floating_point([](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return std::isfinite(value) ? only_if_all(text, value, end) : std::nullopt;
  })) << "hexadecimal";
  EXPECT_FALSE(reads_floating_point([](const std::string& text) -> std::optional<double> {
    double value = 0.0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    return result.ec == std::errc() && result.ptr == end ? std::optional(value) : std::nullopt;
  })) << "nan and inf";
}

}  // namespace
