#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/base/budget.h"
#include "engine/base/rng.h"

namespace engine::model {

struct SamplingSettings {
  double temperature = 0.0;  // 0: the largest logit
  double top_p = 1.0;        // in (0, 1]
  std::uint64_t seed = 0;
};

// Chooses tokens by their logits.
//
//   temperature 0   the largest logit, of equal ones the smallest id
//   else            weights exp((logit - maximum) / temperature), ids by falling logit and, of equal
//                   ones, rising id; the shortest beginning of these whose weights are at least
//                   top_p of all; of it the first id whose running sum exceeds u times the whole,
//                   u uniform in [0, 1) with 53 bits
//
// Accuracy  bits: logits are float32 as docs/numerics.md has them, all else double in the order
//           above, exp from engine/base/math.h; the i-th u is a function of (seed, i)
class Sampler {
 public:
  // Errors    Error if the budget cannot hold a row of logits and what sorting them takes
  Sampler(const SamplingSettings& settings, std::int64_t vocabulary, base::RamBudget& budget);

  // Where the next row of logits is to be put, [V].
  std::span<float> logits() { return logits_.span(); }

  // The token for those logits, `step` counted from 0.
  // Errors    Error naming the first logit that is not finite
  std::int32_t choose(std::uint64_t step);

 private:
  SamplingSettings settings_;
  base::CounterRng rng_;
  base::Buffer<float> logits_;
  base::Buffer<std::int32_t> order_;  // [V], empty at temperature 0
  base::Buffer<double> weight_;       // [V]
};

}  // namespace engine::model
