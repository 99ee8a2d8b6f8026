#pragma once

#include <cstdint>
#include <span>

namespace engine::ops {

// Rows of the head that are scored together. A constant of the numerics: the online log-sum-exp
// below rounds at band borders, so every run, whatever its memory, uses the same ones.
inline constexpr std::int64_t kVocabBand = 1024;

// Online log-sum-exp over vocabulary bands; all [T].
struct LossState {
  std::span<float> maximum;       // start: -infinity
  std::span<double> denominator;  // start: 0
  std::span<float> target_logit;  // start: 0; the target's logit once its band has passed
};

void cross_entropy_start(const LossState& state) noexcept;

// One band, or several at once: first is a multiple of kVocabBand, and so is N except at the
// vocabulary's end. Masked tokens are passed over.
//
// Shape     logits [T,N] of the vocabulary rows [first, first+N)   targets [T], negative = masked
// Accuracy  exponentials in float32, sums and the rescaling to a larger maximum in double
// Order     inside a band double_sum (engine/ops/double_sum.h); bands ascending
void cross_entropy_band(std::span<const float> logits, std::int64_t first,
                        std::span<const std::int32_t> targets, const LossState& state) noexcept;

// nll[t] = log(sum exp(logits)) - logit of the target, in nats; 0 where masked.
//
// Shape     nll [T] (=)
void cross_entropy_finish(std::span<const std::int32_t> targets, const LossState& state,
                          std::span<double> nll) noexcept;

// d_logits = (softmax - onehot) / count; zero rows where masked. `count` is the number of trained
// tokens of the whole step: the loss is a mean over tokens, not a mean of means.
//
// Shape     logits [T,N]   d_logits [T,N] (=), may be the same storage
void cross_entropy_backward(std::span<const float> logits, std::int64_t first,
                            std::span<const std::int32_t> targets, const LossState& state,
                            std::int64_t count, std::span<float> d_logits) noexcept;

}  // namespace engine::ops
