#pragma once

#include <cstdint>
#include <span>

namespace engine::ops {

// The most sources that one mix may have: bank entries plus the running residual. K3 needs 9.
inline constexpr std::int64_t kMaxSources = 64;

// Attention residual, per token. With u = norm proj (elementwise), r_j = sqrt(mean(s_j^2) + eps):
//   c_j = <s_j / r_j, u>;  p = softmax(c);  y = sum_j p_j s_j
// Scores use normalised sources, the sum uses the RAW ones. Sources are the bank entries, oldest
// first, then the running residual LAST.
//
// Shape     sources[j] [T,H]   norm, proj [H]   y [T,H] (=)
// Accuracy  norms, scores and softmax in double, p_j rounded once, the mix in float32
// Order     sums over H as double_sum (engine/ops/double_sum.h); softmax and mix in source order;
//           tokens independent. One source comes back bit for bit
void attn_res_forward(std::span<const float* const> sources, std::span<const float> norm,
                      std::span<const float> proj, float eps, std::span<float> y) noexcept;

// c_j = <d_y, s_j>; dz_j = p_j (c_j - sum_k p_k c_k);
// d_s_j += p_j d_y + dz_j (u - k_j <k_j, u> / H) / r_j,   k_j = s_j / r_j
//
// Shape     d_y [T,H]   d_sources[j] [T,H] (+=), one for every source, no two the same
// Accuracy  all in double, every d_s_j rounded once
void attn_res_backward(std::span<const float> d_y, std::span<const float* const> sources,
                       std::span<const float> norm, std::span<const float> proj, float eps,
                       std::span<float* const> d_sources) noexcept;

}  // namespace engine::ops
