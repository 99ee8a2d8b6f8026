#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/model/draw.h"

namespace {

using engine::base::Dtype;
using engine::model::Draw;
using engine::model::Recipe;

struct Moments {
  double mean = 0.0;
  double rms = 0.0;
};

Moments moments(const std::vector<double>& values) {
  Moments m;
  for (const double value : values) {
    m.mean += value / static_cast<double>(values.size());
    m.rms += value * value / static_cast<double>(values.size());
  }
  m.rms = std::sqrt(m.rms);
  return m;
}

std::vector<std::byte> bytes_of(const Recipe& recipe, std::uint64_t seed = 1) {
  std::vector<std::byte> bytes(recipe.spec.bytes(), std::byte{0xAA});
  engine::model::draw(recipe, seed, 0, bytes);
  return bytes;
}

std::vector<double> values_of(const Recipe& recipe, std::uint64_t seed = 1) {
  const std::vector<std::byte> bytes = bytes_of(recipe, seed);
  std::vector<double> values;
  if (recipe.spec.dtype == Dtype::kF32) {
    std::vector<float> floats(bytes.size() / 4);
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    values.assign(floats.begin(), floats.end());
  } else {
    std::vector<std::uint16_t> words(bytes.size() / 2);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    for (const std::uint16_t word : words) values.push_back(engine::base::bf16_to_float(word));
  }
  return values;
}

constexpr std::int64_t kCount = 100'000;

// Six standard errors of a mean and of a mean square at kCount draws; a kurtosis of at most three
// makes the variance of x^2 at most twice that of x, squared.
double mean_error(double sd) { return 6.0 * sd / std::sqrt(double{kCount}); }
constexpr double kRelativeRmsError = 6.0 * 1.41421356 / 2.0 / 316.2;

bool is_near(double got, double want, double allowed) { return std::abs(got - want) <= allowed; }

// bf16 rounds by at most 2^-9 of the value.
bool looks_normal(const std::vector<double>& values, double mean, double sd) {
  std::vector<double> centred;
  for (const double value : values) centred.push_back(value - mean);
  const Moments m = moments(centred);
  return is_near(m.mean, 0.0, mean_error(sd)) &&
         is_near(m.rms, sd, sd * (kRelativeRmsError + 0x1p-9));
}

TEST(Draw, NormalHasItsMeanAndSpread) {
  const Recipe recipe{{"n", Dtype::kBf16, {kCount}}, Draw::kNormal, 0.0, 0.125};
  EXPECT_TRUE(looks_normal(values_of(recipe), 0.0, 0.125));
}

TEST(Draw, UniformStaysInItsRangeAndFillsIt) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    const std::vector<double> values =
        values_of({{"u", dtype, {kCount}}, Draw::kUniform, -6.0, 1.0});
    double least = 1.0;
    double most = -6.0;
    for (const double value : values) {
      least = std::min(least, value);
      most = std::max(most, value);
    }
    // Rounding to bf16 may reach the upper end. 1e5 draws all miss 1 % of a range with probability
    // below 1e-400.
    EXPECT_GE(least, -6.0);
    EXPECT_LE(most, 1.0);
    EXPECT_LT(least, -6.0 + 0.07);
    EXPECT_GT(most, 1.0 - 0.07);
    // Uniform: standard deviation = width / sqrt(12), less kurtosis than a normal.
    EXPECT_TRUE(looks_normal(values, -2.5, 7.0 / std::sqrt(12.0)));
  }
}

TEST(Draw, OnlyTheFirstAreDrawn) {
  const std::vector<double> values =
      values_of({{"a", Dtype::kF32, {32}}, Draw::kUniform, 0.5, 1.5, 4});
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i] == 0.0, i >= 4);
}

// Decodes codes and scales of one matrix by docs/model.md section 3 and compares the spread of its
// weights with the wanted one.
bool gives_weights_of(double rms, const std::vector<std::byte>& codes,
                      const std::vector<std::byte>& scales) {
  constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<double> weights;
  for (std::size_t i = 0; i < 2 * codes.size(); ++i) {
    const int code = static_cast<int>(codes[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15;
    const double magnitude = std::ldexp(kValues[code & 7], static_cast<int>(scales[i / 32]) - 127);
    weights.push_back((code & 8) != 0 ? -magnitude : magnitude);
  }
  const Moments m = moments(weights);
  // Scales are shared by 32 weights and vary between 2^m / 2 and 2^(m+1) * 2: the mean square of a
  // group has a relative variance below 4 (the ratio of E[s^4] to E[s^2]^2), so the rms of the
  // whole a relative error of 2 / 2 / sqrt(groups); six of those.
  const double allowed = 6.0 / std::sqrt(static_cast<double>(scales.size()));
  return is_near(m.rms, rms, rms * allowed) &&
         is_near(m.mean, 0.0, 6.0 * rms / std::sqrt(static_cast<double>(weights.size())));
}

TEST(Draw, ExpertWeightsHaveTheWantedSpreadAtEveryWidth) {
  for (const std::int64_t width : {64, 96, 256, 352, 512, 736}) {
    const double rms = 1.0 / std::sqrt(static_cast<double>(width));
    const std::string name = "w" + std::to_string(width);
    const auto codes = bytes_of({{name + "c", Dtype::kU8, {20000, 16}}, Draw::kCodes});
    const auto scales = bytes_of({{name + "s", Dtype::kU8, {20000, 1}}, Draw::kScales, rms});
    EXPECT_TRUE(gives_weights_of(rms, codes, scales)) << width;
    // Plain numbers: far from 0 and from 253 and above.
    for (const std::byte scale : scales) {
      EXPECT_GE(static_cast<int>(scale), 115);
      EXPECT_LE(static_cast<int>(scale), 127);
    }
  }
}

TEST(Draw, BrokenBlocksGoOnWhereWholeOnesStop) {
  const auto long_one = bytes_of({{"c", Dtype::kU8, {10001}}, Draw::kCodes});
  const auto short_one = bytes_of({{"c", Dtype::kU8, {4097}}, Draw::kCodes});
  EXPECT_TRUE(std::equal(short_one.begin(), short_one.end(), long_one.begin()));
}

TEST(Draw, PlantedFaults) {
  const std::vector<double> values =
      values_of({{"n", Dtype::kBf16, {kCount}}, Draw::kNormal, 0.0, 0.125});
  std::vector<double> shifted = values;
  for (double& value : shifted) value += 0.125 * 0.05;
  EXPECT_FALSE(looks_normal(shifted, 0.0, 0.125));
  std::vector<double> wide = values;
  for (double& value : wide) value *= 1.05;
  EXPECT_FALSE(looks_normal(wide, 0.0, 0.125));

  const auto codes = bytes_of({{"c", Dtype::kU8, {20000, 16}}, Draw::kCodes});
  auto scales = bytes_of({{"s", Dtype::kU8, {20000, 1}}, Draw::kScales, 0.125});
  ASSERT_TRUE(gives_weights_of(0.125, codes, scales));
  EXPECT_FALSE(gives_weights_of(0.140, codes, scales));
  for (std::byte& scale : scales) scale = static_cast<std::byte>(static_cast<int>(scale) - 1);
  EXPECT_FALSE(gives_weights_of(0.125, codes, scales));
}

// A tensor larger than memory is drawn in parts.
TEST(Draw, PartsAreThoseOfTheWhole) {
  const std::vector<Recipe> recipes = {
      {{"n", Dtype::kBf16, {333, 100}}, Draw::kNormal, 0.1, 2.0},
      {{"u", Dtype::kF32, {50'000}}, Draw::kUniform, -1.0, 2.0, 20'001},
      {{"c", Dtype::kU8, {77, 501}}, Draw::kCodes},
      {{"s", Dtype::kU8, {33'333}}, Draw::kScales, 0.02}};
  for (const Recipe& recipe : recipes) {
    const std::vector<std::byte> whole = bytes_of(recipe);
    for (const std::uint64_t step :
         {engine::model::kDrawStep * 61, engine::model::kDrawStep * 1024, std::uint64_t{1} << 20}) {
      std::vector<std::byte> parts(whole.size(), std::byte{0x55}), wrong = parts;
      for (std::uint64_t at = 0; at < whole.size(); at += step) {
        const std::uint64_t count = std::min<std::uint64_t>(step, whole.size() - at);
        engine::model::draw(recipe, 1, at, std::span(parts).subspan(at, count));
        engine::model::draw(recipe, 1, 0, std::span(wrong).subspan(at, count));
      }
      EXPECT_EQ(parts, whole) << recipe.spec.name << " by " << step;
      // Planted: every part drawn as if it were the first.
      EXPECT_EQ(wrong == whole, step > whole.size()) << recipe.spec.name << " by " << step;
    }
  }
}

}  // namespace
