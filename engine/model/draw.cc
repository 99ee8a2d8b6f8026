#include "engine/model/draw.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>

#include "engine/base/dtype.h"
#include "engine/base/parallel.h"
#include "engine/base/rng.h"

namespace engine::model {

namespace {

// Values are drawn in blocks of this many random words, which start at multiples of four.
constexpr std::int64_t kBlock = 4096;

// A uniform byte -> an E2M1 code. Of 128 equally likely magnitudes so many are each of 0, 0.5,
// 1, 1.5, 2, 3, 4, 6: the rounding of a normal variable of standard deviation two.
constexpr std::array<std::uint8_t, 256> code_table() {
  constexpr int kTimes[8] = {13, 25, 22, 19, 22, 17, 9, 1};
  std::array<std::uint8_t, 256> table{};
  int at = 0;
  for (std::uint8_t magnitude = 0; magnitude < 8; ++magnitude) {
    for (int i = 0; i < kTimes[magnitude]; ++i, ++at) {
      table[at] = magnitude;
      table[at + 128] = static_cast<std::uint8_t>(magnitude | 8);
    }
  }
  return table;
}
constexpr std::array<std::uint8_t, 256> kCodes = code_table();
constexpr double kCodeMeanSquare =
    (25 * 0.25 + 22 * 1.0 + 19 * 2.25 + 22 * 4.0 + 17 * 9.0 + 9 * 16.0 + 1 * 36.0) / 128;

// The words of a tensor that make a part of it.
struct Words {
  const base::CounterRng& rng;
  std::int64_t first = 0;  // a multiple of four
  std::int64_t count = 0;
};

// body(place, words) over blocks of them; place: words from the first of the part.
template <class Body>
void for_words(const Words& part, Body&& body) {
  base::parallel_ranges(part.count, kBlock, [&](std::int64_t begin, std::int64_t end) {
    std::array<std::uint32_t, kBlock> words;
    for (std::int64_t place = begin; place < end; place += kBlock) {
      const std::int64_t n = std::min(kBlock, end - place);
      const auto block = std::span(words).first(static_cast<std::size_t>(n));
      part.rng.fill(static_cast<std::uint64_t>(part.first + place), block);
      body(place, block);
    }
  });
}

void put(std::byte* out, base::Dtype dtype, std::int64_t i, float value) {
  if (dtype == base::Dtype::kF32) {
    std::memcpy(out + 4 * i, &value, 4);
  } else {
    const std::uint16_t bits = base::float_to_bf16(value);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

// The sum of the four bytes of a word less its mean, near-normal out to 3.4 standard deviations.
// The variance of a uniform byte is (256^2 - 1) / 12.
void draw_normal(const Recipe& recipe, const Words& part, std::byte* out) {
  const float mean = static_cast<float>(recipe.a);
  const float unit = static_cast<float>(recipe.b / std::sqrt(4.0 * (256.0 * 256.0 - 1.0) / 12.0));
  for_words(part, [&](std::int64_t first, std::span<const std::uint32_t> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint32_t w = words[i];
      const std::uint32_t sum = (w & 255u) + ((w >> 8) & 255u) + ((w >> 16) & 255u) + (w >> 24);
      const float centred = static_cast<float>(static_cast<std::int32_t>(sum) - 510);
      put(out, recipe.spec.dtype, first + static_cast<std::int64_t>(i), mean + unit * centred);
    }
  });
}

void draw_uniform(const Recipe& recipe, const Words& part, std::byte* out) {
  const float low = static_cast<float>(recipe.a);
  const float width = static_cast<float>(recipe.b) - low;
  for_words(part, [&](std::int64_t first, std::span<const std::uint32_t> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const float u = static_cast<float>(words[i] >> 8) * 0x1p-24f;
      put(out, recipe.spec.dtype, first + static_cast<std::int64_t>(i), low + width * u);
    }
  });
}

// A word makes two bytes, four codes. The low nibble is the even column.
void draw_codes(const Words& part, std::int64_t count, std::byte* out) {
  for_words(part, [&](std::int64_t first, std::span<const std::uint32_t> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::uint32_t w = words[i];
      const std::int64_t at = 2 * (first + static_cast<std::int64_t>(i));
      out[at] = static_cast<std::byte>(kCodes[w & 255u] | (kCodes[(w >> 8) & 255u] << 4));
      if (at + 1 < count) {
        out[at + 1] = static_cast<std::byte>(kCodes[(w >> 16) & 255u] | (kCodes[w >> 24] << 4));
      }
    }
  });
}

// E8M0 knows powers of two only. A scale is 2^m or 2^(m+1), mixed so that the mean square is the
// wanted one; then a quarter is halved and a quarter doubled.
constexpr double kJitterMeanSquare = (0.25 + 2.0 + 4.0) / 4.0;
void draw_scales(const Recipe& recipe, const Words& part, std::byte* out) {
  const double wanted = recipe.a * recipe.a / kCodeMeanSquare / kJitterMeanSquare;
  int m = 0;
  while (std::ldexp(1.0, 2 * m) > wanted) --m;
  while (std::ldexp(1.0, 2 * (m + 1)) <= wanted) ++m;
  const double share_above = (wanted / std::ldexp(1.0, 2 * m) - 1.0) / 3.0;
  const std::uint32_t border = static_cast<std::uint32_t>(share_above * 65536.0);
  assert(m > -120 && m < 120);
  for_words(part, [&](std::int64_t first, std::span<const std::uint32_t> words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      constexpr int kJitter[4] = {-1, 0, 0, 1};
      const int exponent = m + ((words[i] >> 16) < border ? 1 : 0) + kJitter[words[i] & 3u];
      out[first + static_cast<std::int64_t>(i)] = static_cast<std::byte>(127 + exponent);
    }
  });
}

}  // namespace

void draw(const Recipe& recipe, std::uint64_t seed, std::uint64_t offset,
          std::span<std::byte> out) {
  assert(offset % kDrawStep == 0 && offset + out.size() <= recipe.spec.bytes());
  const base::CounterRng rng(seed, recipe.spec.name);
  const auto size = static_cast<std::int64_t>(base::size_of(recipe.spec.dtype));
  const std::int64_t first = static_cast<std::int64_t>(offset) / size;
  const std::int64_t elements = static_cast<std::int64_t>(out.size()) / size;
  const std::int64_t drawn =
      recipe.drawn < 0 ? elements : std::clamp(recipe.drawn - first, std::int64_t{0}, elements);
  if (drawn < elements) std::memset(out.data(), 0, out.size());
  const Words words{rng, first, drawn};
  switch (recipe.draw) {
    case Draw::kNormal:
      return draw_normal(recipe, words, out.data());
    case Draw::kUniform:
      return draw_uniform(recipe, words, out.data());
    case Draw::kCodes:  // two bytes a word
      return draw_codes({rng, first / 2, (drawn + 1) / 2}, drawn, out.data());
    case Draw::kScales:
      return draw_scales(recipe, words, out.data());
  }
}

}  // namespace engine::model
