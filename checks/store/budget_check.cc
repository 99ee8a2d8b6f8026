#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <string>

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

TEST(Decimal, WholeNumbersAreDecimalAndFit) {
  EXPECT_EQ(parse_decimal<std::int64_t>("010"), 10) << "not eight";
  EXPECT_EQ(parse_decimal<std::int64_t>("-3"), -3);
  EXPECT_EQ(parse_decimal<std::int64_t>("9223372036854775807"),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_decimal<std::uint64_t>("18446744073709551615"),
            std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"", " 1", "1 ", "+1", "0x10", "1e3", "1.0", "one", "9223372036854775808",
                           "-9223372036854775809", "99999999999999999999"}) {
    EXPECT_FALSE(parse_decimal<std::int64_t>(text)) << text;
  }
  for (const char* text : {"-1", "18446744073709551616"}) {
    EXPECT_FALSE(parse_decimal<std::uint64_t>(text)) << text;
  }
}

TEST(Decimal, FloatingPointIsDecimalAndFinite) {
  EXPECT_EQ(parse_decimal<double>("2e-4"), 2e-4);
  EXPECT_EQ(parse_decimal<double>("-0.5"), -0.5);
  for (const char* text :
       {"", "nan", "inf", "-inf", "infinity", "0x1p3", "1e999", "1,5", "1.5x", "1e", "2 ", "+2"}) {
    EXPECT_FALSE(parse_decimal<double>(text)) << text;
  }
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

// The conversions that this replaces: each gives a number where there is none.
TEST(Decimal, PlantedFaults) {
  EXPECT_EQ(std::stol("010", nullptr, 0), 8);
  EXPECT_EQ(std::stod("0x10"), 16.0);
  EXPECT_EQ(std::strtoll("99999999999999999999", nullptr, 10),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_NE(parse_decimal<std::int64_t>("010"), 8);
  EXPECT_FALSE(parse_decimal<double>("0x10"));
  EXPECT_FALSE(parse_decimal<std::int64_t>("99999999999999999999"));
}

}  // namespace
