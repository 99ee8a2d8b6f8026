#include "checks/ops/fixture_engine.h"
#include "engine/base/math.h"
#include "engine/ops/attn_res.h"
#include "engine/ops/kda.h"
#include "engine/ops/mla.h"
#include "engine/ops/short_conv.h"

namespace checks::ops {
namespace {

namespace op = engine::ops;

Values<double> short_conv(const GradCase& in, bool) {
  const auto x = in.f32("in.x"), w = in.f32("in.w");
  const auto borders = documents(in);
  auto y = overwritten(x.size()), d_x = y;
  op::short_conv_forward(x, w, borders, {}, y);
  op::short_conv_backward(in.f32("up.y"), x, w, borders, d_x);
  return {{"out.y", widen(y)}, {"grad.x", widen(d_x)}};
}

Values<double> kda(const GradCase& in, bool) {
  const auto q = in.f32("in.q"), k = in.f32("in.k"), v = in.f32("in.v"), beta = in.f32("in.beta");
  std::vector<float> alpha;
  for (const float g : in.f32("in.g")) alpha.push_back(engine::base::exp(g));
  auto state = in.f32("in.state"), d_state = in.f32("up.state");
  const op::KdaShape shape{in.size("in.v", 1), in.size("in.v", 2)};
  const auto borders = documents(in);
  const op::KdaInputs inputs{q, k, v, alpha, beta};
  auto o = overwritten(v.size()), d_q = o, d_k = o, d_v = o, d_g = o;
  auto d_beta = overwritten(beta.size());
  auto saved = overwritten(static_cast<std::size_t>(op::kda_chunks(borders)) * state.size());
  auto scratch = overwritten(
      static_cast<std::size_t>(op::kda_backward_scratch(shape, engine::base::threads())));
  op::kda_forward(inputs, borders, shape, state, saved, o);
  op::kda_backward(inputs, saved, borders, shape, in.f32("up.o"), d_state, scratch,
                   {d_q, d_k, d_v, d_g, d_beta});
  return {{"out.o", widen(o)},          {"out.state", widen(state)},   {"grad.q", widen(d_q)},
          {"grad.k", widen(d_k)},       {"grad.v", widen(d_v)},        {"grad.g", widen(d_g)},
          {"grad.beta", widen(d_beta)}, {"grad.state", widen(d_state)}};
}

Values<double> mla(const GradCase& in, bool) {
  const auto q = in.f32("in.q"), kv = in.f32("in.kv"), kr = in.f32("in.kr");
  const auto nope = static_cast<std::int64_t>(number(in, "in.nope"));
  const std::int64_t tokens = in.size("in.q", 0);
  const op::MlaShape shape{in.size("in.q", 1), nope, in.size("in.kr", 1),
                           in.size("in.kv", 2) - nope};
  const int threads = engine::base::threads();
  const auto borders = documents(in);
  auto o = overwritten(static_cast<std::size_t>(tokens * shape.heads * shape.value));
  auto d_q = overwritten(q.size()), d_kv = overwritten(kv.size()), d_kr = overwritten(kr.size());
  auto scratch =
      overwritten(static_cast<std::size_t>(op::mla_forward_scratch(tokens, shape, threads)));
  op::mla_forward(q, kv, kr, borders, shape, scratch, o);
  scratch = overwritten(static_cast<std::size_t>(op::mla_backward_scratch(tokens, shape, threads)));
  op::mla_backward(in.f32("up.o"), q, kv, kr, borders, shape, scratch, d_q, d_kv, d_kr);
  return {{"out.o", widen(o)},
          {"grad.q", widen(d_q)},
          {"grad.kv", widen(d_kv)},
          {"grad.kr", widen(d_kr)}};
}

Values<double> attn_res(const GradCase& in, bool) {
  const auto all = in.f32("in.sources"), norm = in.f32("in.norm"), proj = in.f32("in.proj");
  const float eps = number(in, "in.eps");
  const auto size = static_cast<std::size_t>(in.size("in.sources", 1) * in.size("in.sources", 2));
  auto y = overwritten(size);
  std::vector<float> d_all(all.size());
  std::vector<const float*> sources;
  std::vector<float*> d_sources;
  for (std::size_t i = 0; i < all.size(); i += size) {
    sources.push_back(all.data() + i);
    d_sources.push_back(d_all.data() + i);
  }
  op::attn_res_forward(sources, norm, proj, eps, y);
  op::attn_res_backward(in.f32("up.y"), sources, norm, proj, eps, d_sources);
  return {{"out.y", widen(y)}, {"grad.sources", widen(d_all)}};
}

}  // namespace

std::map<std::string, EngineOp> engine_time_ops() {
  return {{"short_conv", short_conv}, {"kda", kda}, {"mla", mla}, {"attn_res", attn_res}};
}

}  // namespace checks::ops
