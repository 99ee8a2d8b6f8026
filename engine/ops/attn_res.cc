#include "engine/ops/attn_res.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "engine/base/math.h"
#include "engine/base/parallel.h"
#include "engine/ops/double_sum.h"

namespace engine::ops {
namespace {

using Sources = std::span<const float* const>;

// What one token's mix is made of, for every source.
struct Mix {
  double inverse_root[kMaxSources];  // 1 / r_j
  double score[kMaxSources];         // c_j
  double share[kMaxSources];         // p_j
};

// `offset` is where the token's row of H elements begins.
void mix_token(Sources sources, std::int64_t offset, std::span<const float> norm,
               std::span<const float> proj, float eps, Mix& mix) noexcept {
  const auto width = static_cast<std::int64_t>(norm.size());
  const std::size_t count = sources.size();
  for (std::size_t j = 0; j < count; ++j) {
    const float* s = sources[j] + offset;
    const double mean = double_dot(s, s, width) / static_cast<double>(width);
    mix.inverse_root[j] = 1.0 / std::sqrt(mean + static_cast<double>(eps));
    const double along = double_sum(
        width, [&](std::int64_t i) { return static_cast<double>(norm[i]) * proj[i] * s[i]; });
    mix.score[j] = along * mix.inverse_root[j];
  }
  const double largest = *std::max_element(mix.score, mix.score + count);
  double denominator = 0.0;
  for (std::size_t j = 0; j < count; ++j) {
    mix.share[j] = base::exp(mix.score[j] - largest);
    denominator += mix.share[j];
  }
  for (std::size_t j = 0; j < count; ++j) mix.share[j] /= denominator;
}

}  // namespace

void attn_res_forward(Sources sources, std::span<const float> norm, std::span<const float> proj,
                      float eps, std::span<float> y) noexcept {
  const auto width = static_cast<std::int64_t>(norm.size());
  assert(!sources.empty() && sources.size() <= kMaxSources);
  assert(proj.size() == norm.size() && y.size() % norm.size() == 0);
  base::parallel_for(static_cast<std::int64_t>(y.size()) / width, [&](std::int64_t t) {
    Mix mix;
    mix_token(sources, t * width, norm, proj, eps, mix);
    float* out = y.data() + t * width;
    std::fill(out, out + width, 0.0f);
    for (std::size_t j = 0; j < sources.size(); ++j) {
      const auto share = static_cast<float>(mix.share[j]);
      const float* s = sources[j] + t * width;
      for (std::int64_t i = 0; i < width; ++i) out[i] += share * s[i];
    }
  });
}

void attn_res_backward(std::span<const float> d_y, Sources sources, std::span<const float> norm,
                       std::span<const float> proj, float eps,
                       std::span<float* const> d_sources) noexcept {
  const auto width = static_cast<std::int64_t>(norm.size());
  assert(!sources.empty() && sources.size() <= kMaxSources);
  assert(d_sources.size() == sources.size());
  assert(proj.size() == norm.size() && d_y.size() % norm.size() == 0);
  base::parallel_for(static_cast<std::int64_t>(d_y.size()) / width, [&](std::int64_t t) {
    Mix mix;
    mix_token(sources, t * width, norm, proj, eps, mix);
    const float* g = d_y.data() + t * width;
    double pull[kMaxSources];  // <d_y, s_j>, the gradient of p_j
    double average = 0.0;
    for (std::size_t j = 0; j < sources.size(); ++j) {
      pull[j] = double_dot(g, sources[j] + t * width, width);
      average += mix.share[j] * pull[j];
    }
    for (std::size_t j = 0; j < sources.size(); ++j) {
      const float* s = sources[j] + t * width;
      float* out = d_sources[j] + t * width;
      const double share = mix.share[j];
      const double d_along = share * (pull[j] - average) * mix.inverse_root[j];
      const double projection =
          mix.inverse_root[j] * mix.score[j] / static_cast<double>(width);  // times s: k <k,u> / H
      for (std::int64_t i = 0; i < width; ++i) {
        const double u = static_cast<double>(norm[i]) * proj[i];
        out[i] = static_cast<float>(out[i] + (share * g[i] + d_along * (u - s[i] * projection)));
      }
    }
  });
}

}  // namespace engine::ops
