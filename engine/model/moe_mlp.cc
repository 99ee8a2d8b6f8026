#include "engine/model/moe_mlp.h"

#include <algorithm>
#include <limits>

#include "engine/model/glu_mlp.h"
#include "engine/model/routing.h"
#include "engine/ops/matmul.h"
#include "engine/ops/rmsnorm.h"
#include "engine/ops/router.h"

namespace engine::model {
namespace {

ops::RouterShape router_of(const Config& config) {
  return {config.experts, config.chosen, config.renormalize, config.routed_scaling};
}

ops::SituBetas betas_of(const Config& config) {
  return {config.situ_beta, config.situ_linear_beta};
}

void clear(std::span<float> values) { std::fill(values.begin(), values.end(), 0.0f); }

// What both directions compute before the experts: scores, latent input, and the gate and up
// adapters, which depend on the token only and so are applied once a token, not once a (token,
// expert).
struct MoeActivations {
  std::span<float> logits, weight;        // [T,E], [T,k]
  std::span<float> z;                     // [T,L]
  std::span<float> delta_gate, delta_up;  // [T,I], empty without adapter
  std::span<float> inner_sum;             // [T,I], empty without down adapter
  LowRank gate_low, up_low, down_low;     // [T,R]
  std::span<float> normed, inv;           // [T,L], [T]
  RoutingTable table;
  std::span<float> expert_scratch;

  explicit MoeActivations(const HalfContext& context)
      : logits(context.floats(context.tokens * context.config.experts)),
        weight(context.floats(context.tokens * context.config.chosen)),
        z(context.floats(context.tokens * context.config.latent)),
        delta_gate(carve_inner(context, Target::kExpertGate)),
        delta_up(carve_inner(context, Target::kExpertUp)),
        inner_sum(carve_inner(context, Target::kExpertDown)),
        gate_low(carve_adapter(context, Target::kExpertGate)),
        up_low(carve_adapter(context, Target::kExpertUp)),
        down_low(carve_adapter(context, Target::kExpertDown)),
        normed(context.floats(context.tokens * context.config.latent)),
        inv(context.floats(context.tokens)),
        table(context.arena, context.tokens, context.config.experts, context.config.chosen),
        expert_scratch(context.floats(
            ops::expert_scratch(context.tokens, context.config.latent, context.config.inner))) {}

  static std::span<float> carve_inner(const HalfContext& context, Target target) {
    const bool adapted = context.adapter(target) != nullptr;
    return context.floats(adapted ? context.tokens * context.config.inner : 0);
  }
};

void moe_before_experts(const HalfContext& context, const MoeWeights& w, std::span<const float> x,
                        const MoeActivations& a) {
  ops::matmul_forward(x, w.router, a.logits, context.tokens);
  ops::matmul_forward(x, w.latent_down, a.z, context.tokens);
  clear(a.delta_gate);
  clear(a.delta_up);
  clear(a.inner_sum);
  adapter_forward(context, Target::kExpertGate, a.z, a.gate_low, a.delta_gate);
  adapter_forward(context, Target::kExpertUp, a.z, a.up_low, a.delta_up);
}

// The norm of the aggregate, or the aggregate itself.
std::span<const float> normed_aggregate(const HalfContext& context, const MoeWeights& w,
                                        std::span<const float> routed, const MoeActivations& a) {
  if (!context.config.latent_norm) return routed;
  ops::rmsnorm_forward(routed, w.latent_norm, context.config.rms_norm_eps, a.normed, a.inv);
  return a.normed;
}

void announce_chosen(const ExpertSource& experts, const RoutingTable& table) {
  if (!experts.announce) return;
  std::vector<std::int32_t> chosen;
  for (const std::int32_t expert : experts.order) {
    if (!table.tokens_of(expert).token.empty()) chosen.push_back(expert);
  }
  experts.announce(chosen);
}

}  // namespace

MoeStatistics moe_forward(const HalfContext& context, const MoeWeights& w,
                          const ExpertSource& experts, std::span<const float> x,
                          const MoeRecord& record, std::span<float> out) {
  const base::Arena::Scope scope(context.arena);
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  MoeActivations a(context);
  const std::span<float> gap = context.floats(tokens);
  const std::span<float> shared = context.floats(tokens * config.hidden);
  if (!context.measuring()) {
    moe_before_experts(context, w, x, a);
    ops::router_forward(a.logits, w.correction_bias, router_of(config), record.index, a.weight,
                        gap);
    a.table.build(record.index, a.weight);
    announce_chosen(experts, a.table);
  }
  // Computed while the first experts are on their way.
  glu_forward(context, bands_of(w.shared), config.shared_inner(), kSharedTargets, x, shared);
  if (context.measuring()) return {};

  clear(record.routed);
  const ops::ExpertsForward batch{a.z,         a.delta_gate, a.delta_up, betas_of(config),
                                  a.inner_sum, record.routed};
  for (const std::int32_t expert : experts.order) {
    const ops::ExpertTokens chosen_by = a.table.tokens_of(expert);
    if (chosen_by.token.empty()) continue;
    ops::expert_forward(experts.load(expert), chosen_by, batch, a.expert_scratch);
  }
  // The down adapter is linear: once on sum_e w_e a_e instead of once for every expert.
  adapter_forward(context, Target::kExpertDown, a.inner_sum, a.down_low, record.routed);

  ops::matmul_forward(normed_aggregate(context, w, record.routed, a), w.latent_up, out, tokens);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i] + shared[i];

  context.tracer.routing(record.index, gap);
  context.tracer.value("route_w", a.weight);
  context.tracer.value("moe_z", a.z);
  context.tracer.value("moe_acc", record.routed);
  return {a.table.distinct(), *std::min_element(gap.begin(), gap.end())};
}

void moe_backward(const HalfContext& context, const MoeWeights& w, const ExpertSource& experts,
                  std::span<const float> x, const MoeRecord& record, std::span<const float> d_out,
                  std::span<float> d_x) {
  const base::Arena::Scope scope(context.arena);
  const Config& config = context.config;
  const std::int64_t tokens = context.tokens;
  MoeActivations a(context);
  const std::span<float> d_normed = context.floats(tokens * config.latent);
  const std::span<float> d_routed = context.floats(tokens * config.latent);
  const std::span<float> d_z = context.floats(tokens * config.latent);
  const std::span<float> delta_down = MoeActivations::carve_inner(context, Target::kExpertDown);
  const std::span<float> d_gate_sum = context.floats(tokens * config.inner);
  const std::span<float> d_up_sum = context.floats(tokens * config.inner);
  const std::span<float> d_weight = context.floats(tokens * config.chosen);
  const std::span<float> d_group = context.floats(tokens);
  const std::span<float> d_logits = context.floats(tokens * config.experts);
  if (!context.measuring()) clear(d_x);
  glu_backward(context, bands_of(w.shared), config.shared_inner(), kSharedTargets, x, d_out, d_x);
  if (context.measuring()) return;

  moe_before_experts(context, w, x, a);
  ops::router_weights(a.logits, record.index, router_of(config), a.weight);
  a.table.build(record.index, a.weight);

  clear(d_routed);
  if (config.latent_norm) {
    clear(d_normed);
    ops::matmul_backward(d_out, w.latent_up, d_normed, tokens);
    normed_aggregate(context, w, record.routed, a);
    ops::rmsnorm_backward(d_normed, record.routed, w.latent_norm, a.inv, d_routed);
  } else {
    ops::matmul_backward(d_out, w.latent_up, d_routed, tokens);
  }
  clear(delta_down);
  adapter_input_gradient(context, Target::kExpertDown, d_routed, a.down_low, delta_down);

  clear(d_gate_sum);
  clear(d_up_sum);
  clear(d_z);
  const ops::ExpertsBackward batch{a.z,        a.delta_gate, a.delta_up, betas_of(config), d_routed,
                                   delta_down, a.inner_sum,  d_gate_sum, d_up_sum,         d_z};
  for (const std::int32_t expert : experts.order) {
    const ops::ExpertTokens chosen_by = a.table.tokens_of(expert);
    if (chosen_by.token.empty()) continue;
    const std::span<float> d_its_weight = d_group.first(chosen_by.token.size());
    ops::expert_backward(experts.load(expert), chosen_by, batch, a.expert_scratch, d_its_weight);
    const std::span<const std::int32_t> places = a.table.places_of(expert);
    for (std::size_t i = 0; i < places.size(); ++i) {
      d_weight[static_cast<std::size_t>(places[i])] = d_its_weight[i];
    }
  }

  adapter_low(context, Target::kExpertDown, a.inner_sum, a.down_low);
  adapter_backward(context, Target::kExpertDown, d_routed, a.inner_sum, a.down_low, {});
  adapter_backward(context, Target::kExpertGate, d_gate_sum, a.z, a.gate_low, d_z);
  adapter_backward(context, Target::kExpertUp, d_up_sum, a.z, a.up_low, d_z);
  ops::matmul_backward(d_z, w.latent_down, d_x, tokens);

  ops::router_backward(d_weight, a.logits, record.index, router_of(config), d_logits);
  ops::matmul_backward(d_logits, w.router, d_x, tokens);

  context.tracer.gradient("route_w", d_weight);
  context.tracer.gradient("moe_z", d_z);
  context.tracer.gradient("moe_acc", d_routed);
}

}  // namespace engine::model
