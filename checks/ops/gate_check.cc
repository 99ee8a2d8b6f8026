#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/gate.h"

namespace checks::ops {
namespace {

struct Case {
  std::vector<float> x, gate, d_y;
};

Case random_case(std::int64_t n, float scale) {
  return {random_values("x", n, 2.0f), random_values("gate", n, scale),
          random_values("d_y", n, 1.0f)};
}

// Everything that the four functions write, in this order: sigmoid, its gradient, the gated x, d_x,
// d_gate. In place, as the attentions call them.
std::vector<float> run(const Case& c) {
  std::vector<float> s(c.x.size()), d_s(s.size());
  std::vector<float> y = c.x, d_x = c.d_y, d_gate = c.gate;
  engine::ops::sigmoid_forward(c.gate, s);
  engine::ops::sigmoid_backward(c.d_y, s, d_s);
  engine::ops::output_gate_forward(y, c.gate, y);
  engine::ops::output_gate_backward(d_x, c.x, d_gate, d_x, d_gate);
  std::vector<float> all;
  for (const auto* part : {&s, &d_s, &y, &d_x, &d_gate}) append(all, *part);
  return all;
}

enum class Fault { kNone, kGateNotSquashed, kSlopeOfX, kNoSlope };

std::vector<double> wanted(const Case& c, Fault fault) {
  const std::size_t n = c.x.size();
  std::vector<double> all(5 * n);
  for (std::size_t i = 0; i < n; ++i) {
    const double x = c.x[i], d = c.d_y[i];
    const double s = 1.0 / (1.0 + std::exp(-double{c.gate[i]}));
    const double slope = fault == Fault::kNoSlope ? 1.0 : s * (1.0 - s);
    all[i] = s;
    all[n + i] = d * slope;
    all[2 * n + i] = x * (fault == Fault::kGateNotSquashed ? c.gate[i] : s);
    all[3 * n + i] = d * (fault == Fault::kSlopeOfX ? slope : s);
    all[4 * n + i] = d * x * slope;
  }
  return all;
}

// The sigmoid and its complement err by 1.97 ulps of 2^-23 each, relatively, and each of up to
// three products by half of one: 5.5. Only in sigmoid_backward does 1 - y cancel: what y is off by,
// at most 2 ulps, and the rounding of the difference are shares of d_y there.
Comparison holds(const Case& c, Fault fault = Fault::kNone) {
  const std::vector<double> want = wanted(c, fault);
  std::vector<double> allowed;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const bool cancels = i / c.x.size() == 1;
    allowed.push_back(0x1p-23 * (5.5 * std::abs(want[i]) +
                                 (cancels ? 2.5 * std::abs(c.d_y[i - c.x.size()]) : 0.0)));
  }
  return compare(widen(run(c)), want, allowed);
}

TEST(Gate, FormulasInDouble) {
  for (const float scale : {0.1f, 3.0f, 20.0f}) {
    for (const std::int64_t n : {1, 16, 31, 9000}) {
      const Case c = random_case(n, scale);
      const Comparison close = holds(c);
      EXPECT_TRUE(close) << n << " of " << scale << ": " << close.why;
      const Comparison bits = same_bits_everywhere([&] { return run(c); });
      EXPECT_TRUE(bits) << n << " of " << scale << ": " << bits.why;
    }
  }
}

TEST(Gate, PlantedFaults) {
  for (const Fault fault : {Fault::kGateNotSquashed, Fault::kSlopeOfX, Fault::kNoSlope}) {
    EXPECT_FALSE(holds(random_case(31, 3.0f), fault));
  }
}

}  // namespace
}  // namespace checks::ops
