#include "checks/ops/fixture_engine.h"

#include "checks/ops/experts_case.h"
#include "engine/base/dtype.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/kda.h"
#include "engine/ops/lora.h"
#include "engine/ops/matmul.h"
#include "engine/ops/rmsnorm.h"
#include "engine/ops/router.h"
#include "engine/ops/situ_glu.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

Values<double> rmsnorm(const GradCase& in, bool) {
  const auto x = in.f32("in.x"), w = in.f32("in.w");
  auto y = overwritten(x.size()), inv = overwritten(x.size() / w.size());
  std::vector<float> d_x(x.size());
  op::rmsnorm_forward(x, w, number(in, "in.eps"), y, inv);
  op::rmsnorm_backward(in.f32("up.y"), x, w, inv, d_x);
  return {{"out.y", widen(y)}, {"grad.x", widen(d_x)}};
}

Values<double> l2norm(const GradCase& in, bool) {
  const auto x = in.f32("in.x");
  const std::int64_t width = in.size("in.x", 1);
  const float scale = number(in, "in.scale");
  auto y = overwritten(x.size()), d_x = y;
  auto inv = overwritten(x.size() / static_cast<std::size_t>(width));
  op::l2norm_forward(x, width, scale, y, inv);
  op::l2norm_backward(in.f32("up.y"), x, width, scale, inv, d_x);
  return {{"out.y", widen(y)}, {"grad.x", widen(d_x)}};
}

Values<double> situ_glu(const GradCase& in, bool with_gradient) {
  const auto a = in.f32("in.a"), u = in.f32("in.u");
  const op::SituBetas betas{number(in, "in.beta_gate"), number(in, "in.beta_linear")};
  auto y = overwritten(a.size()), d_a = y, d_u = y;
  op::situ_glu_forward(a, u, betas, y);
  if (!with_gradient) return {{"out.y", widen(y)}};
  op::situ_glu_backward(in.f32("up.y"), a, u, betas, d_a, d_u);
  return {{"out.y", widen(y)}, {"grad.a", widen(d_a)}, {"grad.u", widen(d_u)}};
}

Values<double> kda_gate(const GradCase& in, bool) {
  const auto z = in.f32("in.z"), a_log = in.f32("in.a_log"), dt_bias = in.f32("in.dt_bias");
  const op::KdaShape shape{in.size("in.z", 1), in.size("in.z", 2)};
  const float bound = number(in, "in.bound");
  auto g = overwritten(z.size()), alpha = g, d_z = g;
  op::kda_gate_forward(z, a_log, dt_bias, bound, shape, g, alpha);
  op::kda_gate_backward(in.f32("up.g"), z, a_log, dt_bias, bound, shape, d_z);
  return {{"out.g", widen(g)}, {"out.alpha", widen(alpha)}, {"grad.z", widen(d_z)}};
}

Values<double> router(const GradCase& in, bool) {
  const auto x = in.f32("in.x"), gate = in.f32("in.gate");
  const std::int64_t tokens = in.size("in.x", 0);
  const std::int64_t experts = in.size("in.gate", 0);
  const auto chosen = static_cast<std::int64_t>(number(in, "in.chosen"));
  const op::RouterShape shape{experts, chosen, number(in, "in.renormalize") != 0.0f,
                              number(in, "in.scaling")};
  const op::Weight w{op::WeightKind::kF32, gate.data(), nullptr, experts, in.size("in.gate", 1)};
  auto logits = overwritten(static_cast<std::size_t>(tokens * experts)), d_logits = logits;
  auto weight = overwritten(static_cast<std::size_t>(tokens * chosen));
  std::vector<std::int32_t> index(weight.size());
  std::vector<float> d_x(x.size());
  op::matmul_forward(x, w, logits, tokens);
  op::router_forward(logits, in.f32("in.bias"), shape, index, weight, {});
  op::router_backward(in.f32("up.weight"), logits, index, shape, d_logits);
  op::matmul_backward(d_logits, w, d_x, tokens);
  return {{"out.weight", widen(weight)}, {"out.index", widen(index)}, {"grad.x", widen(d_x)}};
}

Values<double> cross_entropy(const GradCase& in, bool) {
  const auto logits = in.f32("in.logits");
  const auto targets = in.i32("in.targets");
  const auto count = static_cast<std::int64_t>(number(in, "in.count"));
  auto maximum = overwritten(targets.size()), target_logit = maximum;
  std::vector<double> denominator(targets.size()), nll(targets.size());
  auto d_logits = overwritten(logits.size());
  const op::LossState state{maximum, denominator, target_logit};
  op::cross_entropy_start(state);
  op::cross_entropy_band(logits, 0, targets, state);
  op::cross_entropy_finish(targets, state, nll);
  op::cross_entropy_backward(logits, 0, targets, state, count, d_logits);
  double sum = 0.0;
  for (const double value : nll) sum += value;
  return {{"out.nll", nll},
          {"out.loss", {sum / static_cast<double>(count)}},
          {"grad.logits", widen(d_logits)}};
}

Values<double> product(const GradCase& in, const op::Weight& w) {
  const auto x = in.f32("in.x");
  const std::int64_t tokens = in.size("in.x", 0);
  auto y = overwritten(static_cast<std::size_t>(tokens * w.rows));
  std::vector<float> d_x(x.size());
  op::matmul_forward(x, w, y, tokens);
  op::matmul_backward(in.f32("up.y"), w, d_x, tokens);
  return {{"out.y", widen(y)}, {"grad.x", widen(d_x)}};
}

Values<double> matmul_f32(const GradCase& in, bool) {
  const auto w = in.f32("in.w");
  return product(in,
                 {op::WeightKind::kF32, w.data(), nullptr, in.size("in.w", 0), in.size("in.w", 1)});
}

Values<double> matmul_bf16(const GradCase& in, bool) {
  std::vector<std::uint16_t> w;
  for (const float value : in.f32("in.w")) w.push_back(engine::base::float_to_bf16(value));
  return product(
      in, {op::WeightKind::kBf16, w.data(), nullptr, in.size("in.w", 0), in.size("in.w", 1)});
}

Values<double> matmul_mxfp4(const GradCase& in, bool) {
  const auto w = experts::Matrix::mxfp4(in, "in.w");
  return product(in, w.weight());
}

Values<double> lora(const GradCase& in, bool) {
  const auto x = in.f32("in.x"), a = in.f32("in.a"), b = in.f32("in.b");
  auto y = in.f32("in.y");
  const op::Lora lora_of{
      a, b, in.size("in.a", 0), in.size("in.a", 1), in.size("in.b", 0), number(in, "in.scale")};
  const std::int64_t tokens = in.size("in.x", 0);
  auto u = overwritten(static_cast<std::size_t>(tokens * lora_of.rank)), d_u = u;
  std::vector<float> d_a(a.size()), d_b(b.size()), d_x(x.size());
  op::lora_forward(lora_of, x, u, y, tokens);
  op::lora_backward(lora_of, documents(in), in.f32("up.y"), x, u, d_u, d_a, d_b, d_x);
  return {
      {"out.y", widen(y)}, {"grad.x", widen(d_x)}, {"grad.a", widen(d_a)}, {"grad.b", widen(d_b)}};
}

Values<double> routed_experts(const GradCase& in, bool) {
  experts::MoeCase c;
  c.tokens = in.size("in.z", 0);
  c.betas = {number(in, "in.beta_gate"), number(in, "in.beta_linear")};
  c.z = in.f32("in.z");
  c.d_routed = in.f32("up.routed");
  const auto matrix = [&](const std::string& name) {
    if (number(in, "in.is_mxfp4") != 0.0f) return experts::Matrix::mxfp4(in, name);
    return experts::Matrix{
        op::WeightKind::kF32, in.size(name, 0), in.size(name, 1), in.f32(name), {}, {}};
  };
  for (int e = 0; e < static_cast<int>(number(in, "in.experts")); ++e) {
    const std::string id = "." + std::to_string(e);
    c.experts.push_back({matrix("in.w1" + id), matrix("in.w2" + id), matrix("in.w3" + id)});
  }
  c.choose(in.i32("in.index"), in.f32("in.weight"), in.size("in.index", 1));
  experts::SharedAdapters adapters(in, c);
  const experts::MoeResult r = adapters.run(c);
  Values<double> result{{"out.routed", widen(r.routed)},
                        {"grad.z", widen(r.d_z)},
                        {"grad.weight", widen(r.d_weight)}};
  for (const auto* adapter : {&adapters.gate, &adapters.up, &adapters.down}) {
    result["grad." + adapter->name + ".lora_A"] = widen(adapter->d_a);
    result["grad." + adapter->name + ".lora_B"] = widen(adapter->d_b);
  }
  return result;
}

}  // namespace

std::map<std::string, EngineOp> engine_ops() {
  std::map<std::string, EngineOp> ops = engine_time_ops();
  ops.insert({{"rmsnorm", rmsnorm},
              {"l2norm", l2norm},
              {"situ_glu", situ_glu},
              {"kda_gate", kda_gate},
              {"router", router},
              {"cross_entropy", cross_entropy},
              {"matmul_f32", matmul_f32},
              {"matmul_bf16", matmul_bf16},
              {"matmul_mxfp4", matmul_mxfp4},
              {"lora", lora},
              {"experts", routed_experts}});
  return ops;
}

}  // namespace checks::ops
