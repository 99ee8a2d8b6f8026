#include "engine/model/kda_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/base/parallel.h"
#include "engine/model/carried_state.h"
#include "engine/ops/gate.h"
#include "engine/ops/kda.h"
#include "engine/ops/matmul.h"
#include "engine/ops/rmsnorm.h"
#include "engine/ops/short_conv.h"

namespace engine::model {
namespace {

ops::KdaShape shape_of(const Config& config) { return {config.kda_heads, config.kda_width}; }

// q is multiplied by D^-1/2 after its norm; k is not.
float query_scale(const Config& config) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.kda_width)));
}

ops::KdaInputs inputs_of(const KdaActivations& a) { return {a.q, a.k, a.v, a.alpha, a.beta}; }

}  // namespace

KdaActivations::KdaActivations(const HalfContext& context) {
  const Config& config = context.config;
  const std::int64_t wide = context.tokens * config.kda_inner();
  const std::int64_t heads = context.tokens * config.kda_heads;
  for (std::span<float>* field :
       {&q_in, &k_in, &v_in, &q, &k, &v, &z, &alpha, &o, &o_norm, &gate}) {
    *field = context.floats(wide);
  }
  for (std::span<float>* field : {&q_inv, &k_inv, &beta, &o_inv}) *field = context.floats(heads);
  bottleneck = context.floats(context.tokens * config.kda_width);
  // For backward, which a sequence that is continued does not know.
  const std::int64_t chunks =
      context.carried == nullptr ? ops::kda_chunks(context.documents) : std::int64_t{0};
  states = context.floats(chunks * config.kda_heads * config.kda_width * config.kda_width);
  q_low = carve_adapter(context, Target::kQ);
  v_low = carve_adapter(context, Target::kV);
}

void kda_attention_inner(const HalfContext& context, const KdaWeights& w, std::span<const float> x,
                         const KdaActivations& a) {
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  CarriedState::Kda carried;  // Empty at a border.
  if (context.carried != nullptr) carried = context.carried->kda(context.layer);
  ops::matmul_forward(x, w.q, a.q_in, tokens);
  ops::matmul_forward(x, w.k, a.k_in, tokens);
  ops::matmul_forward(x, w.v, a.v_in, tokens);
  adapter_forward(context, Target::kQ, x, a.q_low, a.q_in);
  adapter_forward(context, Target::kV, x, a.v_low, a.v_in);
  ops::short_conv_forward(a.q_in, w.q_conv, context.documents, carried.q_tail, a.q);
  ops::short_conv_forward(a.k_in, w.k_conv, context.documents, carried.k_tail, a.k);
  ops::short_conv_forward(a.v_in, w.v_conv, context.documents, carried.v_tail, a.v);
  ops::l2norm_forward(a.q, config.kda_width, query_scale(config), a.q, a.q_inv);
  ops::l2norm_forward(a.k, config.kda_width, 1.0f, a.k, a.k_inv);

  ops::matmul_forward(x, w.b, a.beta, tokens);
  ops::sigmoid_forward(a.beta, a.beta);
  ops::matmul_forward(x, w.f_a, a.bottleneck, tokens);
  ops::matmul_forward(a.bottleneck, w.f_b, a.z, tokens);
  // The log decay itself is of no use; o, not yet written, takes it.
  ops::kda_gate_forward(a.z, w.a_log, w.dt_bias, config.gate_lower_bound, shape_of(config), a.o,
                        a.alpha);
  ops::kda_forward(inputs_of(a), context.documents, shape_of(config), carried.state, a.states, a.o);

  ops::rmsnorm_forward(a.o, w.o_norm, config.rms_norm_eps, a.o_norm, a.o_inv);
  ops::matmul_forward(x, w.g, a.gate, tokens);
}

void kda_attention_forward(const HalfContext& context, const KdaWeights& w,
                           std::span<const float> x, std::span<float> out) {
  const base::Arena::Scope scope(context.arena);
  const KdaActivations a(context);
  if (context.measuring()) return;
  kda_attention_inner(context, w, x, a);
  ops::output_gate_forward(a.o_norm, a.gate, a.o_norm);
  ops::matmul_forward(a.o_norm, w.o, out, context.tokens);
}

void kda_attention_backward(const HalfContext& context, const KdaWeights& w,
                            std::span<const float> x, std::span<const float> d_out,
                            std::span<float> d_x) {
  const base::Arena::Scope scope(context.arena);
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  const ops::KdaShape shape = shape_of(config);
  const KdaActivations a(context);
  const std::span<float> spare = context.floats(tokens * config.kda_inner());
  const std::span<float> d_beta = context.floats(tokens * config.kda_heads);
  const std::span<float> d_bottleneck = context.floats(tokens * config.kda_width);
  const std::span<float> scratch =
      context.floats(ops::kda_backward_scratch(shape, base::threads()));
  if (context.measuring()) return;
  kda_attention_inner(context, w, x, a);

  // A gradient takes the place of a value that is no longer wanted: at 1,024 tokens of the release
  // every row of [T,P] is 50 MB. Output projection, gate, norm:
  const std::span<float> d_gated = spare;
  std::fill(d_gated.begin(), d_gated.end(), 0.0f);
  ops::matmul_backward(d_out, w.o, d_gated, tokens);
  const std::span<float> d_o_norm = d_gated, d_gate = a.gate;
  ops::output_gate_backward(d_gated, a.o_norm, a.gate, d_o_norm, d_gate);
  const std::span<float> d_o = a.o_norm;
  std::fill(d_o.begin(), d_o.end(), 0.0f);
  ops::rmsnorm_backward(d_o_norm, a.o, w.o_norm, a.o_inv, d_o);

  const std::span<float> d_q = a.q, d_k = a.k, d_v = a.v, d_g = a.alpha;
  ops::kda_backward(inputs_of(a), a.states, context.documents, shape, d_o, {}, scratch,
                    {d_q, d_k, d_v, d_g, d_beta});

  // Norms, whose inputs the convolutions give once more.
  const std::span<float> again = a.o;
  ops::short_conv_forward(a.q_in, w.q_conv, context.documents, {}, again);
  ops::l2norm_backward(d_q, again, config.kda_width, query_scale(config), a.q_inv, d_q);
  ops::short_conv_forward(a.k_in, w.k_conv, context.documents, {}, again);
  ops::l2norm_backward(d_k, again, config.kda_width, 1.0f, a.k_inv, d_k);

  // Convolutions, back to the projections' outputs.
  const std::span<float> d_q_in = a.o_norm, d_k_in = spare, d_v_in = a.o;
  ops::short_conv_backward(d_q, a.q_in, w.q_conv, context.documents, d_q_in);
  ops::short_conv_backward(d_k, a.k_in, w.k_conv, context.documents, d_k_in);
  ops::short_conv_backward(d_v, a.v_in, w.v_conv, context.documents, d_v_in);

  std::fill(d_x.begin(), d_x.end(), 0.0f);
  ops::matmul_backward(d_q_in, w.q, d_x, tokens);
  ops::matmul_backward(d_k_in, w.k, d_x, tokens);
  ops::matmul_backward(d_v_in, w.v, d_x, tokens);
  adapter_backward(context, Target::kQ, d_q_in, x, a.q_low, d_x);
  adapter_backward(context, Target::kV, d_v_in, x, a.v_low, d_x);
  ops::matmul_backward(d_gate, w.g, d_x, tokens);
  ops::sigmoid_backward(d_beta, a.beta, d_beta);
  ops::matmul_backward(d_beta, w.b, d_x, tokens);
  ops::kda_gate_backward(d_g, a.z, w.a_log, w.dt_bias, config.gate_lower_bound, shape, d_g);
  std::fill(d_bottleneck.begin(), d_bottleneck.end(), 0.0f);
  ops::matmul_backward(d_g, w.f_b, d_bottleneck, tokens);
  ops::matmul_backward(d_bottleneck, w.f_a, d_x, tokens);
}

}  // namespace engine::model
