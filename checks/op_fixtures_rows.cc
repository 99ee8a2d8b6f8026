// Ops that work row by row: norms, gates, routing, loss.

#include <algorithm>
#include <stdexcept>

#include "checks/op_fixture.h"
#include "oracle/cross_entropy.h"
#include "oracle/kda.h"
#include "oracle/rmsnorm.h"
#include "oracle/router.h"
#include "oracle/situ_glu.h"

namespace checks {
namespace {

// `first` is the scale of the first column, `rest` that of the others.
FixtureCase rmsnorm_case(const std::string& name, std::int64_t rows, std::int64_t width,
                         double first, double rest) {
  const Draw draw("rmsnorm." + name);
  FixtureCase c{name,
                {{"w", draw.within("w", {width}, 2.0f)}, {"eps", setting(double{1e-5f})}},
                {{"x", draw.within("x", {rows, width}, 1.0f)}},
                {{"y", draw.within("up", {rows, width}, 1.0f)}}};
  auto& x = c.varied["x"].data;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool is_first = static_cast<std::int64_t>(i) % width == 0;
    x[i] = double{static_cast<float>(x[i] * (is_first ? first : rest))};
  }
  return c;
}

OpFixture rmsnorm() {
  return {
      "rmsnorm",
      {rmsnorm_case("one", 1, 1, 1.0, 1.0), rmsnorm_case("odd", 3, 37, 1.0, 1.0),
       rmsnorm_case("eps_weighs", 2, 17, 4e-3, 4e-3), rmsnorm_case("tiny", 2, 16, 1e-7, 1e-7),
       rmsnorm_case("large", 2, 16, 1e6, 1e6), rmsnorm_case("outlier", 2, 33, 1e4, 1.0)},
      []<class S>(const FixtureCase& c, const Values<S>& in) {
        return Values<S>{{"y", oracle::rmsnorm<S>(in.at("x"), c.weights("w"), c.number("eps"))}};
      },
      rmsnorm_case("wide", 2, 300, 1.0, 1.0)};
}

FixtureCase l2norm_case(const std::string& name, std::int64_t rows, std::int64_t width,
                        float scale) {
  const Draw draw("l2norm." + name);
  return {name,
          {{"width", setting(static_cast<double>(width))}, {"scale", setting(double{0.3f})}},
          {{"x", draw.within("x", {rows, width}, scale)}},
          {{"y", draw.within("up", {rows, width}, 1.0f)}}};
}

OpFixture l2norm() {
  return {"l2norm",
          {l2norm_case("one", 1, 1, 1.0f), l2norm_case("odd", 3, 37, 1.0f),
           l2norm_case("eps_weighs", 2, 17, 4e-4f), l2norm_case("tiny", 2, 16, 1e-7f),
           l2norm_case("large", 2, 16, 1e6f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            std::vector<S> y = oracle::l2norm<S>(in.at("x"), c.whole("width"));
            for (S& v : y) v *= S(c.number("scale"));
            return Values<S>{{"y", y}};
          },
          l2norm_case("wide", 3, 128, 1.0f)};
}

FixtureCase situ_case(const std::string& name, std::int64_t count, float scale,
                      bool with_gradient) {
  const Draw draw("situ_glu." + name);
  FixtureCase c{name,
                {{"beta_gate", setting(4)}, {"beta_linear", setting(25)}},
                {{"a", draw.within("a", {count}, scale)}, {"u", draw.within("u", {count}, scale)}},
                {}};
  if (with_gradient) c.up["y"] = draw.within("up", {count}, 1.0f);
  return c;
}

OpFixture situ_glu() {
  return {
      "situ_glu",
      {situ_case("one", 1, 1.0f, true), situ_case("odd", 35, 3.0f, true),
       situ_case("tiny", 16, 1e-6f, true), situ_case("saturated", 67, 40.0f, true),
       // Both tanh are 1 to the last bit and have no slope: values only.
       situ_case("far", 16, 1e6f, false)},
      []<class S>(const FixtureCase& c, const Values<S>& in) {
        return Values<S>{{"y", oracle::situ_glu<S>(in.at("a"), in.at("u"), c.number("beta_gate"),
                                                   c.number("beta_linear"))}};
      },
      situ_case("wide", 333, 5.0f, true)};
}

FixtureCase gate_case(const std::string& name, std::int64_t tokens, std::int64_t heads,
                      std::int64_t width, float scale) {
  const Draw draw("kda_gate." + name);
  const std::int64_t stored = std::max(heads, width);  // the tail is not read
  return {name,
          {{"heads", setting(static_cast<double>(heads))},
           {"width", setting(static_cast<double>(width))},
           {"bound", setting(-5)},
           {"a_log", draw.within("a_log", {stored}, 1.0f)},
           {"dt_bias", draw.within("dt_bias", {heads, width}, 2.0f)}},
          {{"z", draw.within("z", {tokens, heads, width}, scale)}},
          {{"g", draw.within("up", {tokens, heads, width}, 1.0f)}}};
}

OpFixture kda_gate() {
  return {"kda_gate",
          {gate_case("one", 1, 1, 1, 1.0f), gate_case("odd", 3, 2, 19, 2.0f),
           gate_case("tiny", 2, 3, 5, 1e-6f), gate_case("saturated", 2, 2, 16, 30.0f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const std::vector<S> g =
                oracle::decay_gate<S>(in.at("z"), c.weights("dt_bias"), c.weights("a_log"),
                                      c.number("bound"), c.whole("heads"), c.whole("width"));
            std::vector<S> alpha;
            for (const S& v : g) alpha.push_back(exp(v));
            return Values<S>{{"g", g}, {"alpha", alpha}};
          },
          gate_case("wide", 3, 4, 37, 4.0f)};
}

// The scores' logits are a real product, as in the model: an exact one would leave the router's own
// part of the bound alone, but the oracle has no router without its matrix.
FixtureCase router_case(const std::string& name, std::int64_t tokens, std::int64_t experts,
                        std::int64_t chosen, float low, float high, bool renormalize = true) {
  const Draw draw("router." + name);
  constexpr std::int64_t kHidden = 4;
  FixtureCase c{name,
                {{"gate", draw.between("gate", {experts, kHidden}, low, high)},
                 {"bias", draw.within("bias", {experts}, 0.3f)},
                 {"chosen", setting(static_cast<double>(chosen))},
                 {"renormalize", setting(renormalize ? 1 : 0)},
                 {"scaling", setting(2.5)}},
                {{"x", draw.between("x", {tokens, kHidden}, 0.5f, 1.0f)}},
                {{"weight", draw.within("up", {tokens, chosen}, 1.0f)}}};
  return c;
}

OpFixture router() {
  return {"router",
          {router_case("top1", 1, 3, 1, -2.0f, 2.0f), router_case("odd", 5, 7, 3, -2.0f, 2.0f),
           router_case("as_they_are", 3, 7, 3, -2.0f, 2.0f, false),
           router_case("saturated", 3, 12, 4, -12.0f, 12.0f),
           // Scores of the size of the 1e-20 in the denominator.
           router_case("scores_near_1e-20", 3, 6, 3, -18.0f, -13.0f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const auto r = oracle::route<S>(
                in.at("x"), c.weights("gate"), c.weights("bias"),
                {c.whole("chosen"), c.number("renormalize") != 0, c.number("scaling")});
            std::vector<S> index;
            for (const std::int32_t e : r.expert) index.push_back(S(static_cast<double>(e)));
            for (std::size_t t = 0; t < r.gap.size(); ++t) {
              if (!(r.gap[t] > r.gap_err[t])) {
                throw std::runtime_error("router." + c.name + ": float32 may choose otherwise");
              }
            }
            return Values<S>{{"weight", r.weight}, {"index", index}};
          },
          router_case("wide", 5, 70, 16, -4.0f, 4.0f)};
}

FixtureCase loss_case(const std::string& name, std::int64_t vocabulary, NamedTensor targets,
                      float low, float high) {
  const Draw draw("cross_entropy." + name);
  const std::int64_t tokens = targets.shape[0];
  double count = 0;
  for (const double target : targets.data) count += target >= 0 ? 1 : 0;
  return {name,
          {{"targets", std::move(targets)}, {"count", setting(count)}},
          {{"logits", draw.between("logits", {tokens, vocabulary}, low, high)}},
          {{"loss", setting(1)}}};
}

OpFixture cross_entropy() {
  return {"cross_entropy",
          {loss_case("one", 5, list({3}), -2.0f, 2.0f),
           loss_case("odd", 37, list({0, -1, 36}), -6.0f, 6.0f),
           loss_case("two_bands", 1029, list({1026}), -6.0f, 6.0f),
           loss_case("peaky", 16, list({2, 9}), -40.0f, 40.0f),
           loss_case("tiny", 16, list({5, -1, 7}), -1e-6f, 1e-6f),
           loss_case("far", 16, list({11, 4}), 1000.0f, 1010.0f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const auto targets = c.ids("targets");
            const std::span<const S> logits = in.at("logits");
            const std::size_t vocabulary = logits.size() / targets.size();
            std::vector<S> nll(targets.size());
            oracle::Accumulator<S> sum;
            for (std::size_t t = 0; t < targets.size(); ++t) {
              if (targets[t] < 0) continue;
              nll[t] =
                  oracle::cross_entropy<S>(logits.subspan(t * vocabulary, vocabulary), targets[t]);
              sum.add(nll[t]);
            }
            return Values<S>{{"nll", nll}, {"loss", {sum.result() / S(c.number("count"))}}};
          },
          loss_case("wide", 1500, list({113, -1, 1294}), -6.0f, 6.0f)};
}

}  // namespace

std::vector<OpFixture> row_fixtures() {
  return {rmsnorm(), l2norm(), situ_glu(), kda_gate(), router(), cross_entropy()};
}

}  // namespace checks
