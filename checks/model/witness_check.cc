// A second witness for the oracle: the tiny model's loss and one directional derivative of it, in
// double and in fifty digits. What double rounds, fifty digits do not; where both agree, neither
// cancellation nor a lucky rounding is in the figures that everything else is compared with.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checks/engine_run.h"
#include "checks/oracle_run.h"
#include "oracle/real50.h"

namespace {

constexpr std::int64_t kTokens = 3;

// The longest chain of roundings: 13 layers of two halves, in each of which the sums behind one
// another are of 128, 64, 96 and 32 terms and some fifty single operations: below 13 x 2 x 400, at
// half an ulp each.
constexpr double kAllowed = 13 * 2 * 400 * 0x1p-53;

double relative(double got, const oracle::Real50& want) {
  return std::abs(static_cast<double>((oracle::Real50(got) - want) / want));
}

TEST(Witness, FiftyDigitsAgreeWithDouble) {
  const std::filesystem::path& model = checks::tiny_checkpoint();
  checks::Engine engine(model);
  const auto batch = checks::oracle_batch(
      checks::forward_batch(checks::random_ids(kTokens, engine.config().vocabulary, 5)));
  const auto adapters = checks::oracle_adapters(*checks::random_adapter_set(engine, 2, 4.0, 7));
  const auto in_double = checks::oracle_witness<double>(model, adapters, batch);
  const auto in_fifty = checks::oracle_witness<oracle::Real50>(model, adapters, batch);

  const double loss = relative(in_double.loss, in_fifty.loss);
  const double derivative = relative(in_double.derivative, in_fifty.derivative);
  std::printf("double against 50 digits: loss %.2e, derivative %.2e, allowed %.2e\n", loss,
              derivative, kAllowed);
  RecordProperty("loss", fmt::format("{:.3e}", loss));
  RecordProperty("derivative", fmt::format("{:.3e}", derivative));
  RecordProperty("allowed", fmt::format("{:.3e}", kAllowed));
  EXPECT_LE(loss, kAllowed);
  EXPECT_LE(derivative, kAllowed);

  // Planted: what a float32 constant in place of a double one, or one digit too few, would do.
  EXPECT_GT(relative(in_double.loss * (1 + 1e-11), in_fifty.loss), kAllowed);
  EXPECT_GT(relative(static_cast<float>(in_double.derivative), in_fifty.derivative), kAllowed);
}

}  // namespace
