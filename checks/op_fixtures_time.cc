// Ops that look along time or along the bank: convolution, KDA, attention, attention residual.

#include <cmath>

#include "checks/op_fixture.h"
#include "oracle/attn_res.h"
#include "oracle/kda.h"
#include "oracle/mla.h"
#include "oracle/short_conv.h"

namespace checks {
namespace {

std::int64_t tokens_of(const NamedTensor& borders) {
  return static_cast<std::int64_t>(borders.data.back());
}

FixtureCase conv_case(const std::string& name, std::int64_t channels, std::int64_t taps,
                      NamedTensor borders, float scale) {
  const Draw draw("short_conv." + name);
  const std::int64_t tokens = tokens_of(borders);
  return {name,
          {{"w", draw.within("w", {channels, taps}, 1.0f)}, {"documents", std::move(borders)}},
          {{"x", draw.within("x", {tokens, channels}, scale)}},
          {{"y", draw.within("up", {tokens, channels}, 1.0f)}}};
}

OpFixture short_conv() {
  return {"short_conv",
          {conv_case("one", 1, 4, list({0, 1}), 1.0f), conv_case("odd", 19, 4, list({0, 9}), 2.0f),
           conv_case("packed", 5, 4, list({0, 5, 6, 11}), 2.0f),
           conv_case("tiny", 3, 4, list({0, 5}), 1e-6f),
           conv_case("saturated", 5, 3, list({0, 4, 7}), 60.0f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const auto& shape = at(c.fixed, "w").shape;
            return Values<S>{{"y", oracle::short_conv<S>(in.at("x"), c.weights("w"), shape[0],
                                                         shape[1], c.first_tokens())}};
          },
          conv_case("wide", 35, 4, list({0, 1, 7, 9, 12}), 2.0f)};
}

// Keys and queries shorter than one, as l2norm leaves them.
NamedTensor unit_rows(NamedTensor x) {
  const auto width = static_cast<std::size_t>(x.shape.back());
  for (std::size_t row = 0; row < x.data.size(); row += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += x.data[row + i] * x.data[row + i];
    for (std::size_t i = 0; i < width; ++i) {
      x.data[row + i] = double{static_cast<float>(0.99 * x.data[row + i] / std::sqrt(squares))};
    }
  }
  return x;
}

// Every third channel decays by `third` and the others by `low` … `high`.
struct Decay {
  float low, high, third;
};

FixtureCase kda_case(const std::string& name, std::int64_t heads, std::int64_t width,
                     NamedTensor borders, Decay decay) {
  const Draw draw("kda." + name);
  const std::int64_t tokens = tokens_of(borders);
  const std::vector<std::int64_t> rows = {tokens, heads, width};
  const std::vector<std::int64_t> square = {heads, width, width};
  FixtureCase c{
      name,
      {{"documents", std::move(borders)}},
      {{"q", unit_rows(draw.within("q", rows, 1.0f))},
       {"k", unit_rows(draw.within("k", rows, 1.0f))},
       {"v", draw.within("v", rows, 1.0f)},
       {"g", draw.between("g", rows, decay.low, decay.high)},
       {"beta", draw.between("beta", {tokens, heads}, 0.05f, 0.95f)},
       {"state", draw.within("state", square, 0.5f)}},
      {{"o", draw.within("up", rows, 1.0f)}, {"state", draw.within("up_state", square, 0.5f)}}};
  auto& g = c.varied["g"].data;
  for (std::size_t i = 0; i < g.size(); i += 3) g[i] = double{decay.third};
  return c;
}

OpFixture kda() {
  return {"kda",
          {kda_case("one", 1, 3, list({0, 1}), {-1.0f, 0.0f, -0.5f}),
           kda_case("odd", 2, 5, list({0, 7}), {-1.0f, 0.0f, -0.5f}),
           kda_case("packed", 2, 4, list({0, 6, 7, 17}), {-1.0f, 0.0f, -0.5f}),
           // Long enough for a border between saved states.
           kda_case("saturated", 1, 3, list({0, 66, 70}), {-5.0f, -4.9f, -5.0f}),
           kda_case("open", 1, 3, list({0, 20}), {-1e-6f, 0.0f, -1e-7f}),
           kda_case("mixed", 1, 4, list({0, 40}), {-0.02f, 0.0f, -5.0f})},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const auto& shape = at(c.varied, "v").shape;
            std::vector<S> state = in.at("state");
            auto o = oracle::kda_recurrence(
                std::span<const S>(in.at("q")), std::span<const S>(in.at("k")),
                std::span<const S>(in.at("v")), std::span<const S>(in.at("g")),
                std::span<const S>(in.at("beta")), {shape[1], shape[2], shape[2]}, c.first_tokens(),
                &state);
            return Values<S>{{"o", std::move(o)}, {"state", std::move(state)}};
          },
          kda_case("wide", 2, 16, list({0, 19, 33}), {-1.0f, 0.0f, -0.5f})};
}

FixtureCase mla_case(const std::string& name, oracle::MlaShape shape, NamedTensor borders,
                     float scale) {
  const Draw draw("mla." + name);
  const auto [heads, nope, rope, value] = shape;
  const std::int64_t tokens = tokens_of(borders);
  return {name,
          {{"nope", setting(static_cast<double>(nope))}, {"documents", std::move(borders)}},
          {{"q", draw.within("q", {tokens, heads, nope + rope}, scale)},
           {"kv", draw.within("kv", {tokens, heads, nope + value}, scale)},
           {"kr", draw.within("kr", {tokens, rope}, scale)}},
          {{"o", draw.within("up", {tokens, heads, value}, 1.0f)}}};
}

OpFixture mla() {
  FixtureCase one = mla_case("one", {1, 2, 1, 3}, list({0, 1}), 1.0f);
  one.sparse = true;  // a single token attends to itself: q and key have no gradient
  return {"mla",
          {one, mla_case("odd", {2, 3, 2, 5}, list({0, 5}), 1.5f),
           mla_case("packed", {2, 4, 3, 4}, list({0, 4, 5, 9}), 1.5f),
           mla_case("tiny", {1, 4, 2, 4}, list({0, 4}), 1e-4f),
           mla_case("peaky", {2, 4, 2, 3}, list({0, 6}), 6.0f),
           mla_case("wide", {1, 19, 14, 17}, list({0, 3}), 1.0f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const std::int64_t nope = c.whole("nope");
            const auto& kv = at(c.varied, "kv").shape;
            const oracle::MlaShape shape{kv[1], nope, at(c.varied, "kr").shape[1], kv[2] - nope};
            return Values<S>{{"o", oracle::mla_attention<S>(in.at("q"), in.at("kv"), in.at("kr"),
                                                            shape, c.first_tokens())}};
          },
          mla_case("broad", {2, 20, 4, 33}, list({0, 11, 12, 21}), 1.5f)};
}

// Sources of different scale, as bank entries are; 0.004 is small enough for eps to matter.
FixtureCase res_case(const std::string& name, std::int64_t sources, std::int64_t tokens,
                     std::int64_t hidden, float query) {
  const Draw draw("attn_res." + name);
  FixtureCase c{name,
                {{"norm", draw.within("norm", {hidden}, 2.0f)},
                 {"proj", draw.within("proj", {hidden}, query)},
                 {"eps", setting(double{1e-5f})}},
                {{"sources", draw.within("sources", {sources, tokens, hidden}, 1.0f)}},
                {{"y", draw.within("up", {tokens, hidden}, 1.0f)}}};
  constexpr double kScales[] = {1.0, 0.004, 3.0};
  auto& s = c.varied["sources"].data;
  const auto size = static_cast<std::size_t>(tokens * hidden);
  for (std::size_t i = 0; i < s.size(); ++i) {
    s[i] = double{static_cast<float>(kScales[i / size % 3] * s[i])};
  }
  return c;
}

OpFixture attn_res() {
  return {"attn_res",
          {res_case("one_source", 1, 2, 5, 1.0f), res_case("odd", 3, 2, 19, 1.0f),
           res_case("nine_sources", 9, 1, 8, 1.0f), res_case("peaky", 4, 1, 16, 8.0f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const std::span<const S> all = in.at("sources");
            const auto& shape = at(c.varied, "sources").shape;
            const auto size = static_cast<std::size_t>(shape[1] * shape[2]);
            std::vector<std::span<const S>> sources;
            for (std::size_t i = 0; i < all.size(); i += size) {
              sources.push_back(all.subspan(i, size));
            }
            return Values<S>{{"y", oracle::attn_res<S>(sources, c.weights("norm"),
                                                       c.weights("proj"), c.number("eps"))}};
          },
          res_case("wide", 9, 2, 48, 1.0f)};
}

}  // namespace

std::vector<OpFixture> time_fixtures() { return {short_conv(), kda(), mla(), attn_res()}; }

}  // namespace checks
