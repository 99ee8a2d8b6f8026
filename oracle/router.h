// Which experts a token goes to, and with which weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "oracle/matmul.h"
#include "oracle/scalar.h"

namespace oracle {

struct RouterSettings {
  int64_t top_k;
  bool renormalize;
  double scale;  // routed_scaling_factor
};

template <class S>
struct Routing {
  std::vector<int32_t> expert;  // [T,k], highest biased score first
  std::vector<S> weight;        // [T,k], combining weights
  // [T] lowest chosen minus highest rejected biased score
  std::vector<double> gap;
  // [T] over Bound: float32 chooses the same experts wherever gap > gap_err. Else 0.
  std::vector<double> gap_err;
};

//   s_e = σ(gate_e · x)
//   chosen: the k largest s_e + bias_e, ties to the lowest id
//   w_j = s_{e_j}, divided by their sum + 1e-20 if renormalize and k > 1, times scale
//
// The weights come from the UNBIASED scores; weights from s + bias are the tempting wrong version.
//
// The choice is made on real parts and is a constant: no derivative and no bound goes through it.
// With `replay` (T·k ids in the order of the weights) nothing is chosen, and the gap of that choice
// is reported: negative where it is not the best one.
//
// Shape   x [T,H]   gate [E,H]   bias [E]   replay [T,k] or empty
// Errors  throws std::invalid_argument when a replayed choice is none
// Source  docs/model.md section 9, step 1
template <class S>
Routing<S> route(std::span<const S> x, std::span<const double> gate, std::span<const double> bias,
                 RouterSettings settings, std::span<const int32_t> replay = {}) {
  const int64_t experts = static_cast<int64_t>(bias.size());
  const int64_t hidden = static_cast<int64_t>(gate.size()) / experts;
  const int64_t tokens = static_cast<int64_t>(x.size()) / hidden;
  const int64_t k = settings.top_k;
  const std::vector<S> logits = matmul<S, double>(gate, x, experts, hidden);
  Routing<S> r;
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<S> score, biased;
    for (int64_t e = 0; e < experts; ++e) {
      score.push_back(sigmoid(logits[t * experts + e]));
      biased.push_back(score[e] + S(bias[e]));
    }
    std::vector<int32_t> order(experts);  // the chosen k, then the rejected
    std::iota(order.begin(), order.end(), 0);
    if (replay.empty()) {
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return real_part(biased[a]) > real_part(biased[b]);
      });
    } else {
      for (int64_t j = 0; j < k; ++j) {
        const auto found = std::find(order.begin() + j, order.end(), replay[t * k + j]);
        if (found == order.end())
          throw std::invalid_argument("replayed expert out of range or chosen twice");
        std::iter_swap(order.begin() + j, found);
      }
    }

    double lowest = std::numeric_limits<double>::infinity(), highest = -lowest, chosen_err = 0,
           rejected_err = 0;
    for (int64_t j = 0; j < experts; ++j) {
      const S& b = biased[order[j]];
      if (j < k) {
        lowest = std::min(lowest, real_part(b));
        chosen_err = std::max(chosen_err, error_part(b));
      } else {
        highest = std::max(highest, real_part(b));
        rejected_err = std::max(rejected_err, error_part(b));
      }
    }
    r.gap.push_back(lowest - highest);
    r.gap_err.push_back(chosen_err + rejected_err);

    Accumulator<S> sum;
    for (int64_t j = 0; j < k; ++j) sum.add(score[order[j]]);
    const S total = sum.result() + rounded_constant<S>(1e-20);
    for (int64_t j = 0; j < k; ++j) {
      S w = score[order[j]];
      if (settings.renormalize && k > 1)
        w = known_within(w / total, 0, 1, static_cast<double>(k) + 4);
      r.expert.push_back(order[j]);
      r.weight.push_back(w * rounded_constant<S>(settings.scale));
    }
  }
  return r;
}

}  // namespace oracle
