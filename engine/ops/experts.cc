#include "engine/ops/experts.h"

#include <algorithm>
#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/double_sum.h"
#include "engine/ops/kernels.h"
#include "engine/ops/matmul.h"

namespace engine::ops {
namespace {

// Hands out the scratch piece by piece.
class Scratch {
 public:
  explicit Scratch(std::span<float> floats) : rest_(floats) {}
  std::span<float> take(std::int64_t count) {
    assert(static_cast<std::int64_t>(rest_.size()) >= count);
    const auto piece = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(static_cast<std::size_t>(count));
    return piece;
  }

 private:
  std::span<float> rest_;
};

// body(i) for every row of `width` floats; a thread more only for as many as are worth waking it.
template <class Body>
void for_rows(std::int64_t n, std::int64_t width, Body&& body) {
  constexpr std::int64_t kGrain = 32768;
  base::parallel_ranges(n, 1 + kGrain / width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

// rows[i] = all[token[i]]
void gather(const ExpertTokens& tokens, std::span<const float> all, std::int64_t width,
            std::span<float> rows) {
  for_rows(static_cast<std::int64_t>(tokens.token.size()), width, [&](std::int64_t i) {
    const float* from = all.data() + tokens.token[i] * width;
    std::copy(from, from + width, rows.data() + i * width);
  });
}

// rows[i] += all[token[i]]; nothing if `all` is empty.
void add_gathered(const ExpertTokens& tokens, std::span<const float> all, std::int64_t width,
                  std::span<float> rows) {
  if (all.empty()) return;
  for_rows(static_cast<std::int64_t>(tokens.token.size()), width, [&](std::int64_t i) {
    const float* from = all.data() + tokens.token[i] * width;
    float* row = rows.data() + i * width;
    for (std::int64_t c = 0; c < width; ++c) row[c] += from[c];
  });
}

// all[token[i]] += scale(i) rows[i]; nothing if `all` is empty. An expert's tokens are distinct.
template <class Scale>
void scatter(const ExpertTokens& tokens, std::span<const float> rows, std::int64_t width,
             Scale scale, std::span<float> all) {
  if (all.empty()) return;
  for_rows(static_cast<std::int64_t>(tokens.token.size()), width, [&](std::int64_t i) {
    kernels().matmul.axpy(scale(i), rows.data() + i * width, all.data() + tokens.token[i] * width,
                          width);
  });
}

// gate = W1 z + delta_gate, up = W3 z + delta_up, inner = situ_glu(gate, up)
template <class Batch>
void expert_inner(const ExpertWeights& expert, const ExpertTokens& tokens, const Batch& batch,
                  std::span<const float> z, std::span<float> gate, std::span<float> up,
                  std::span<float> inner) {
  const auto n = static_cast<std::int64_t>(tokens.token.size());
  matmul_forward(z, expert.w1, gate, n);
  matmul_forward(z, expert.w3, up, n);
  add_gathered(tokens, batch.delta_gate, expert.w1.rows, gate);
  add_gathered(tokens, batch.delta_up, expert.w3.rows, up);
  situ_glu_forward(gate, up, batch.betas, inner);
}

void check_shapes(const ExpertWeights& expert, const ExpertTokens& tokens) {
  assert(tokens.weight.size() == tokens.token.size());
  assert(expert.w3.rows == expert.w1.rows && expert.w3.cols == expert.w1.cols);
  assert(expert.w2.rows == expert.w1.cols && expert.w2.cols == expert.w1.rows);
}

}  // namespace

std::int64_t expert_scratch(std::int64_t n, std::int64_t latent, std::int64_t inner) noexcept {
  return n * (2 * latent + 4 * inner);  // backward's need; forward's is smaller
}

void expert_forward(const ExpertWeights& expert, const ExpertTokens& tokens,
                    const ExpertsForward& batch, std::span<float> scratch) noexcept {
  check_shapes(expert, tokens);
  const auto n = static_cast<std::int64_t>(tokens.token.size());
  const std::int64_t latent = expert.w1.cols;
  const std::int64_t width = expert.w1.rows;
  Scratch pieces(scratch);
  const auto z = pieces.take(n * latent);
  const auto y = pieces.take(n * latent);
  const auto gate = pieces.take(n * width);
  const auto up = pieces.take(n * width);
  const auto inner = pieces.take(n * width);
  const auto weight = [&](std::int64_t i) { return tokens.weight[i]; };

  gather(tokens, batch.z, latent, z);
  expert_inner(expert, tokens, batch, z, gate, up, inner);
  scatter(tokens, inner, width, weight, batch.inner_sum);
  matmul_forward(inner, expert.w2, y, n);
  scatter(tokens, y, latent, weight, batch.routed);
}

void expert_backward(const ExpertWeights& expert, const ExpertTokens& tokens,
                     const ExpertsBackward& batch, std::span<float> scratch,
                     std::span<float> d_weight) noexcept {
  check_shapes(expert, tokens);
  assert(d_weight.size() == tokens.token.size());
  const auto n = static_cast<std::int64_t>(tokens.token.size());
  const std::int64_t latent = expert.w1.cols;
  const std::int64_t width = expert.w1.rows;
  Scratch pieces(scratch);
  const auto z = pieces.take(n * latent);
  const auto d_routed = pieces.take(n * latent);
  const auto gate = pieces.take(n * width);
  const auto up = pieces.take(n * width);
  const auto inner = pieces.take(n * width);
  const auto tau = pieces.take(n * width);
  const auto weight = [&](std::int64_t i) { return tokens.weight[i]; };
  const auto one = [](std::int64_t) { return 1.0f; };

  gather(tokens, batch.z, latent, z);
  expert_inner(expert, tokens, batch, z, gate, up, inner);
  scatter(tokens, inner, width, weight, batch.inner_sum);

  gather(tokens, batch.d_routed, latent, d_routed);
  std::fill(tau.begin(), tau.end(), 0.0f);
  matmul_backward(d_routed, expert.w2, tau, n);
  add_gathered(tokens, batch.delta_down, width, tau);
  for_rows(n, width, [&](std::int64_t i) {
    float* row = tau.data() + i * width;
    d_weight[i] = static_cast<float>(double_dot(row, inner.data() + i * width, width));
    for (std::int64_t c = 0; c < width; ++c) row[c] *= tokens.weight[i];  // now d_inner
  });

  situ_glu_backward(tau, gate, up, batch.betas, gate, up);  // now d_gate and d_up
  scatter(tokens, gate, width, one, batch.d_gate_sum);
  scatter(tokens, up, width, one, batch.d_up_sum);
  const auto d_z = z;  // no longer needed
  std::fill(d_z.begin(), d_z.end(), 0.0f);
  matmul_backward(gate, expert.w1, d_z, n);
  matmul_backward(up, expert.w3, d_z, n);
  scatter(tokens, d_z, latent, one, batch.d_z);
}

}  // namespace engine::ops
