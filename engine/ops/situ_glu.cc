#include "engine/ops/situ_glu.h"

#include <cassert>

#include "engine/base/parallel.h"
#include "engine/ops/kernels.h"

namespace engine::ops {
namespace {

// Elements that are worth handing to another thread, a multiple of the sixteen lanes.
constexpr std::int64_t kGrain = 2048;

}  // namespace

void situ_glu_forward(std::span<const float> a, std::span<const float> u, SituBetas betas,
                      std::span<float> out) noexcept {
  assert(u.size() == a.size() && out.size() == a.size());
  base::parallel_ranges(
      static_cast<std::int64_t>(a.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
        kernels().elementwise.situ_glu(a.data() + begin, u.data() + begin, betas.gate, betas.linear,
                                       out.data() + begin, end - begin);
      });
}

void situ_glu_backward(std::span<const float> d_out, std::span<const float> a,
                       std::span<const float> u, SituBetas betas, std::span<float> d_a,
                       std::span<float> d_u) noexcept {
  assert(d_out.size() == a.size() && u.size() == a.size());
  assert(d_a.size() == a.size() && d_u.size() == a.size());
  base::parallel_ranges(static_cast<std::int64_t>(a.size()), kGrain,
                        [&](std::int64_t begin, std::int64_t end) {
                          kernels().elementwise.situ_glu_backward(
                              d_out.data() + begin, a.data() + begin, u.data() + begin, betas.gate,
                              betas.linear, d_a.data() + begin, d_u.data() + begin, end - begin);
                        });
}

}  // namespace engine::ops
