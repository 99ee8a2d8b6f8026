#include "engine/model/glu_mlp.h"

#include <algorithm>

#include "engine/ops/matmul.h"
#include "engine/ops/situ_glu.h"

namespace engine::model {
namespace {

ops::SituBetas betas_of(const Config& config) {
  return {config.situ_beta, config.situ_linear_beta};
}

struct GluActivations {
  std::span<float> gate, up, product;  // [T,I]
  LowRank gate_low, up_low, down_low;  // [T,R] adapters

  GluActivations(const HalfContext& context, std::int64_t inner, const GluTargets& targets)
      : gate(context.floats(context.tokens * inner)),
        up(context.floats(context.tokens * inner)),
        product(context.floats(context.tokens * inner)),
        gate_low(carve_adapter(context, targets.gate)),
        up_low(carve_adapter(context, targets.up)),
        down_low(carve_adapter(context, targets.down)) {}
};

void glu_inner(const HalfContext& context, const DenseWeights& w, const GluTargets& targets,
               std::span<const float> x, const GluActivations& a) {
  ops::matmul_forward(x, w.gate, a.gate, context.tokens);
  ops::matmul_forward(x, w.up, a.up, context.tokens);
  adapter_forward(context, targets.gate, x, a.gate_low, a.gate);
  adapter_forward(context, targets.up, x, a.up_low, a.up);
  ops::situ_glu_forward(a.gate, a.up, betas_of(context.config), a.product);
}

}  // namespace

void glu_forward(const HalfContext& context, const DenseWeights& w, std::int64_t inner,
                 const GluTargets& targets, std::span<const float> x, std::span<float> out) {
  const base::Arena::Scope scope(context.arena);
  const GluActivations a(context, inner, targets);
  if (context.measuring()) return;
  glu_inner(context, w, targets, x, a);
  ops::matmul_forward(a.product, w.down, out, context.tokens);
  adapter_forward(context, targets.down, a.product, a.down_low, out);
}

void glu_backward(const HalfContext& context, const DenseWeights& w, std::int64_t inner,
                  const GluTargets& targets, std::span<const float> x, std::span<const float> d_out,
                  std::span<float> d_x) {
  const base::Arena::Scope scope(context.arena);
  const GluActivations a(context, inner, targets);
  const std::span<float> d_product = context.floats(context.tokens * inner);
  if (context.measuring()) return;
  glu_inner(context, w, targets, x, a);

  adapter_low(context, targets.down, a.product, a.down_low);
  std::fill(d_product.begin(), d_product.end(), 0.0f);
  ops::matmul_backward(d_out, w.down, d_product, context.tokens);
  adapter_backward(context, targets.down, d_out, a.product, a.down_low, d_product);

  const std::span<float> d_gate = a.gate;
  const std::span<float> d_up = a.up;
  ops::situ_glu_backward(d_product, a.gate, a.up, betas_of(context.config), d_gate, d_up);
  ops::matmul_backward(d_gate, w.gate, d_x, context.tokens);
  adapter_backward(context, targets.gate, d_gate, x, a.gate_low, d_x);
  ops::matmul_backward(d_up, w.up, d_x, context.tokens);
  adapter_backward(context, targets.up, d_up, x, a.up_low, d_x);
}

}  // namespace engine::model
