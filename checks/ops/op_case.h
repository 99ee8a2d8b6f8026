#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checks/compare.h"
#include "checks/reference.h"
#include "engine/base/parallel.h"
#include "engine/base/rng.h"
#include "engine/ops/kernels.h"

namespace checks::ops {

// Uniform in +-scale, a function of the name alone.
inline std::vector<float> random_values(std::string_view name, std::int64_t count, float scale) {
  const engine::base::CounterRng rng(2, name);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (2.0f * rng.uniform(i) - 1.0f);
  }
  return values;
}

// What an op in float32 may be off by against float64, as a share of the largest wanted element:
// the gate of grad/README.md section 8, about ten times what torch's float32 does on the same
// cases.
inline constexpr double kOpShare = 5e-6;

inline Comparison within_share(std::span<const float> got, std::span<const double> want,
                               Content content = Content::kDense) {
  double largest = 0.0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  return compare(
      got, want, [=](double) { return kOpShare * largest; }, content);
}

// The rule of the C reference's fixtures (docs/numerics.md, gates), whose values carry seven
// decimals.
inline Comparison within_fixture(std::span<const float> got, std::span<const double> want) {
  return compare(got, want, [](double value) { return 1e-5 + 1e-4 * std::abs(value); });
}

// Fails the test unless the comparison holds, and records how near it came.
inline void expect_holds(const Comparison& comparison, const std::string& what) {
  testing::Test::RecordProperty("worst " + what, std::to_string(comparison.worst));
  testing::Test::RecordProperty("ulps " + what, to_text(comparison.ulps));
  EXPECT_TRUE(comparison) << what << ": " << comparison.why;
}

// Central differences in double of a function of one vector. With a step of 1e-4 of the arguments'
// scale the formula errs by about 1e-8 and rounding by 1e-12, relatively: both far below kOpShare.
template <class Function>
std::vector<double> numeric_gradient(Function f, std::vector<double> x, double step = 1e-4) {
  std::vector<double> gradient;
  for (double& value : x) {
    const double middle = value;
    value = middle + step;
    const double above = f(x);
    value = middle - step;
    const double below = f(x);
    value = middle;
    gradient.push_back((above - below) / (2 * step));
  }
  return gradient;
}

inline double dot(std::span<const double> x, std::span<const float> y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Runs `run` (which returns everything the op wrote) with every instruction set of this processor
// at 1, 2, 3 and 7 threads: the first difference in bits, or a comparison that holds.
template <class Run>
Comparison same_bits_everywhere(Run run) {
  const std::string before = engine::ops::kernels().instruction_set;
  const int threads = engine::base::threads();
  const std::vector<float> first = run();
  Comparison result{true, 0.0, -1, ""};
  for (const std::string& set : engine::ops::instruction_sets()) {
    engine::ops::choose_instruction_set(set);
    for (const int count : {1, 2, 3, 7}) {
      engine::base::set_threads(count);
      const Comparison here = same_bits(run(), first);
      if (!here && result) {
        result = here;
        result.why = set + ", " + std::to_string(count) + " threads: " + here.why;
      }
    }
  }
  engine::base::set_threads(threads);
  engine::ops::choose_instruction_set(before);
  return result;
}

inline void append(std::vector<float>& all, std::span<const float> more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Rows [first, first + count) of a matrix.
inline std::span<const float> rows(std::span<const float> matrix, std::int64_t width,
                                   std::int64_t first, std::int64_t count = 1) {
  return matrix.subspan(static_cast<std::size_t>(first * width),
                        static_cast<std::size_t>(count * width));
}

// One case of a file of grad/ops: keys "{id}.in.x" and so on.
class GradCase {
 public:
  GradCase(const NamedTensors& tensors, std::string id) : tensors_(tensors), id_(std::move(id)) {}

  std::vector<float> f32(const std::string& key) const { return tensor(key).f32(); }
  std::vector<std::int32_t> i32(const std::string& key) const { return tensor(key).i32(); }
  const std::vector<double>& f64(const std::string& key) const { return tensor(key).data; }
  std::int64_t size(const std::string& key, std::size_t axis) const {
    return tensor(key).shape.at(axis);
  }

 private:
  const NamedTensor& tensor(const std::string& key) const { return at(tensors_, id_ + "." + key); }

  const NamedTensors& tensors_;
  std::string id_;
};

}  // namespace checks::ops
