#include "checks/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace checks {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The bin of an error. The unit is that of want's binade, and of the subnormals below all binades.
std::size_t ulp_bin(double error, double want) {
  if (error == 0.0) return 0;
  const int binade = want == 0.0 ? -126 : std::max(std::ilogb(want), -126);
  const double units = std::ldexp(error, 23 - binade);
  std::size_t bin = 1;
  for (double most = 0.5; !(units <= most) && bin + 1 < kUlpBins; most *= 2) ++bin;
  return bin;
}

Comparison refused(std::int64_t at, std::string why) {
  return {false, kInfinity, at, std::move(why), {}};
}

// True if more than nine elements in ten are zero.
template <class T>
bool mostly_zero(std::span<const T> values) {
  std::size_t zeros = 0;
  for (const T value : values) zeros += value == T{0} ? 1 : 0;
  return zeros * 10 > values.size() * 9;
}

}  // namespace

Comparison compare(std::span<const double> got, std::span<const double> want,
                   std::span<const double> allowed, Content content) {
  if (got.size() != want.size() || got.size() != allowed.size()) {
    return refused(-1, fmt::format("sizes differ: got {}, want {}, allowed {}", got.size(),
                                   want.size(), allowed.size()));
  }
  if (got.empty()) return refused(-1, "nothing was compared");
  if (content == Content::kDense && mostly_zero(want)) {
    return refused(-1, "mistrusted: more than nine wanted elements in ten are zero");
  }
  Comparison result{true, 0.0, -1, "", {}};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (!std::isfinite(got[i]) || !std::isfinite(want[i]) || !std::isfinite(allowed[i])) {
      return refused(at, fmt::format("not finite at {}: got {}, want {}, allowed {}", at, got[i],
                                     want[i], allowed[i]));
    }
    const double error = std::abs(got[i] - want[i]);
    ++result.ulps[ulp_bin(error, want[i])];
    const bool within =
        content == Content::kSparse && want[i] == 0.0 ? got[i] == 0.0 : error <= allowed[i];
    const double ratio = error == 0.0 ? 0.0 : allowed[i] > 0.0 ? error / allowed[i] : kInfinity;
    if (result.at < 0 || ratio > result.worst) {
      result.worst = ratio;
      result.at = at;
    }
    if (!within && result.holds) {
      result.holds = false;
      result.why = fmt::format("at {}: got {:.9g}, want {:.9g}, off by {:.3g}, allowed {:.3g}", at,
                               got[i], want[i], error, allowed[i]);
    }
  }
  return result;
}

Comparison compare(std::span<const float> got, std::span<const double> want,
                   const std::function<double(double)>& allowed, Content content) {
  std::vector<double> limits;
  limits.reserve(want.size());
  for (const double value : want) limits.push_back(allowed(value));
  return compare(widen(got), want, limits, content);
}

Comparison same_bits(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) {
    return refused(-1, fmt::format("sizes differ: got {}, want {}", got.size(), want.size()));
  }
  if (got.empty()) return refused(-1, "nothing was compared");
  if (mostly_zero(want)) {
    return refused(-1, "mistrusted: more than nine wanted elements in ten are zero");
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto got_bits = std::bit_cast<std::uint32_t>(got[i]);
    const auto want_bits = std::bit_cast<std::uint32_t>(want[i]);
    if (got_bits != want_bits) {
      return refused(static_cast<std::int64_t>(i),
                     fmt::format("bits differ at {}: got {:08x} ({:.9g}), want {:08x} ({:.9g})", i,
                                 got_bits, got[i], want_bits, want[i]));
    }
    if (std::isnan(got[i])) {
      return refused(static_cast<std::int64_t>(i), fmt::format("both are NaN at {}", i));
    }
  }
  return {true, 0.0, -1, "", {}};
}

std::string to_text(const UlpHistogram& ulps) {
  std::string text;
  for (std::size_t bin = 0; bin < kUlpBins; ++bin) {
    if (ulps[bin] == 0) continue;
    const std::string most =
        bin == 0 ? "0" : fmt::format("{}", std::ldexp(0.5, static_cast<int>(bin) - 1));
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", bin + 1 == kUlpBins ? "more" : most,
                        ulps[bin]);
  }
  return text;
}

double relative_norm_error(std::span<const double> got, std::span<const double> want) {
  if (got.size() != want.size() || got.empty()) return kInfinity;
  double difference = 0.0;
  double reference = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i]) || !std::isfinite(want[i])) return kInfinity;
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    reference += want[i] * want[i];
  }
  const double ratio = std::sqrt(difference / reference);
  return std::isfinite(ratio) ? ratio : kInfinity;  // 0/0 and what overflowed are NaN or infinite
}

}  // namespace checks
