#include "engine/ops/router.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kMaxChosen = 64;
constexpr std::int64_t kBlock = 256;  // scores computed at a time
constexpr double kRenormalizeEpsilon = 1e-20;

void sigmoid(const float* x, float* y, std::int64_t n) { kernels().elementwise.sigmoid(x, y, n); }

// The k + 1 largest selection scores seen so far, descending; equal ones in the order they came.
class Ranking {
 public:
  explicit Ranking(std::int64_t capacity) : capacity_(capacity) {}

  void offer(float score, std::int32_t expert) noexcept {
    // A NaN compares as neither larger nor smaller: where it ended would depend on its neighbours,
    // and a bad expert could go unnoticed. In first place it is chosen and its weight is NaN.
    if (score != score) score = std::numeric_limits<float>::infinity();
    if (size_ == capacity_ && !(score > score_[size_ - 1])) return;
    std::int64_t place = size_ < capacity_ ? size_++ : size_ - 1;
    for (; place > 0 && score > score_[place - 1]; --place) {
      score_[place] = score_[place - 1];
      expert_[place] = expert_[place - 1];
    }
    score_[place] = score;
    expert_[place] = expert;
  }
  std::int32_t expert(std::int64_t place) const { return expert_[place]; }
  // Infinity if nothing was left to reject.
  float gap(std::int64_t chosen) const {
    return size_ > chosen ? score_[chosen - 1] - score_[chosen]
                          : std::numeric_limits<float>::infinity();
  }

 private:
  std::int64_t capacity_;
  std::int64_t size_ = 0;
  float score_[kMaxChosen + 1];
  std::int32_t expert_[kMaxChosen + 1];
};

bool renormalizes(const RouterShape& shape) { return shape.renormalize && shape.chosen > 1; }

// Denominator of the weights, from the k scores in rank order.
double total(const float* score, const RouterShape& shape) {
  if (!renormalizes(shape)) return 1.0;
  double sum = 0.0;
  for (std::int64_t j = 0; j < shape.chosen; ++j) sum += score[j];
  return sum + kRenormalizeEpsilon;
}

void weigh(const float* logits, const std::int32_t* index, const RouterShape& shape,
           float* weight) {
  float score[kMaxChosen];
  for (std::int64_t j = 0; j < shape.chosen; ++j) score[j] = logits[index[j]];
  sigmoid(score, score, shape.chosen);
  const double sum = total(score, shape);
  for (std::int64_t j = 0; j < shape.chosen; ++j) {
    weight[j] = static_cast<float>(score[j] / sum * shape.scaling);
  }
}

bool holds(const RouterShape& shape) {
  return shape.chosen >= 1 && shape.chosen <= kMaxChosen && shape.chosen <= shape.experts;
}

}  // namespace

void router_forward(std::span<const float> logits, std::span<const float> bias, RouterShape shape,
                    std::span<std::int32_t> index, std::span<float> weight,
                    std::span<float> gap) noexcept {
  const auto tokens = static_cast<std::int64_t>(logits.size()) / shape.experts;
  assert(holds(shape) && static_cast<std::int64_t>(bias.size()) == shape.experts);
  assert(static_cast<std::int64_t>(index.size()) == tokens * shape.chosen &&
         weight.size() == index.size());
  assert(gap.empty() || static_cast<std::int64_t>(gap.size()) == tokens);
  base::parallel_for(tokens, [&](std::int64_t t) {
    const float* row = logits.data() + t * shape.experts;
    Ranking ranking(shape.chosen + 1);
    float score[kBlock];
    for (std::int64_t first = 0; first < shape.experts; first += kBlock) {
      const std::int64_t n = std::min(kBlock, shape.experts - first);
      sigmoid(row + first, score, n);
      for (std::int64_t e = 0; e < n; ++e) {
        ranking.offer(score[e] + bias[first + e], static_cast<std::int32_t>(first + e));
      }
    }
    std::int32_t* chosen = index.data() + t * shape.chosen;
    for (std::int64_t j = 0; j < shape.chosen; ++j) chosen[j] = ranking.expert(j);
    weigh(row, chosen, shape, weight.data() + t * shape.chosen);
    if (!gap.empty()) gap[t] = ranking.gap(shape.chosen);
  });
}

void router_weights(std::span<const float> logits, std::span<const std::int32_t> index,
                    RouterShape shape, std::span<float> weight) noexcept {
  const auto tokens = static_cast<std::int64_t>(logits.size()) / shape.experts;
  assert(holds(shape) && static_cast<std::int64_t>(index.size()) == tokens * shape.chosen);
  assert(weight.size() == index.size());
  base::parallel_for(tokens, [&](std::int64_t t) {
    weigh(logits.data() + t * shape.experts, index.data() + t * shape.chosen, shape,
          weight.data() + t * shape.chosen);
  });
}

void router_backward(std::span<const float> d_weight, std::span<const float> logits,
                     std::span<const std::int32_t> index, RouterShape shape,
                     std::span<float> d_logits) noexcept {
  const auto tokens = static_cast<std::int64_t>(logits.size()) / shape.experts;
  assert(holds(shape) && d_logits.size() == logits.size());
  assert(static_cast<std::int64_t>(index.size()) == tokens * shape.chosen);
  assert(d_weight.size() == index.size());
  base::parallel_for(tokens, [&](std::int64_t t) {
    const float* row = logits.data() + t * shape.experts;
    const std::int32_t* chosen = index.data() + t * shape.chosen;
    const float* g = d_weight.data() + t * shape.chosen;
    float* out = d_logits.data() + t * shape.experts;
    float score[kMaxChosen];
    float rest[kMaxChosen];  // sigmoid(-x): 1 - s loses everything where s rounds to 1
    for (std::int64_t j = 0; j < shape.chosen; ++j) {
      score[j] = row[chosen[j]];
      rest[j] = -score[j];
    }
    sigmoid(score, score, shape.chosen);
    sigmoid(rest, rest, shape.chosen);
    const double sum = total(score, shape);
    double average = 0.0;
    if (renormalizes(shape)) {
      for (std::int64_t j = 0; j < shape.chosen; ++j) {
        average += static_cast<double>(g[j]) * score[j] / sum;
      }
    }
    std::fill(out, out + shape.experts, 0.0f);
    for (std::int64_t j = 0; j < shape.chosen; ++j) {
      const double d_score = (g[j] - average) / sum * shape.scaling;
      out[chosen[j]] = static_cast<float>(d_score * score[j] * rest[j]);
    }
  });
}

}  // namespace engine::ops
