// Products with frozen matrices and adapters: matmul, LoRA, experts.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "checks/op_fixture.h"
#include "engine/base/dtype.h"
#include "oracle/experts.h"
#include "oracle/lora.h"
#include "oracle/matmul.h"
#include "oracle/mxfp4.h"

namespace checks {
namespace {

struct Product {
  std::int64_t tokens, out, in;
};

FixtureCase product_case(const std::string& op, const std::string& name, Product p, float scale) {
  const Draw draw(op + "." + name);
  return {name,
          {{"w", draw.within("w", {p.out, p.in}, 1.0f)}},
          {{"x", draw.within("x", {p.tokens, p.in}, scale)}},
          {{"y", draw.within("up", {p.tokens, p.out}, 1.0f)}}};
}

std::vector<FixtureCase> product_cases(const std::string& op) {
  return {product_case(op, "one", {1, 1, 1}, 1.0f), product_case(op, "odd", {3, 5, 37}, 1.0f),
          product_case(op, "wide", {1, 2, 300}, 1.0f), product_case(op, "tiny", {2, 3, 16}, 1e-30f),
          product_case(op, "large", {2, 3, 16}, 1e30f)};
}

template <class S>
std::vector<S> product(const std::vector<double>& w, const std::vector<S>& x, std::int64_t in) {
  return oracle::matmul<S, double>(w, x, static_cast<std::int64_t>(w.size()) / in, in);
}

OpFixture matmul_f32() {
  return {"matmul_f32", product_cases("matmul_f32"),
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            return Values<S>{{"y", product(c.weights("w"), in.at("x"), at(c.fixed, "w").shape[1])}};
          },
          product_case("matmul_f32", "broad", {2, 45, 130}, 1.0f)};
}

OpFixture matmul_bf16() {
  OpFixture op = matmul_f32();
  op.name = "matmul_bf16";
  op.cases = product_cases(op.name);
  op.wide = product_case(op.name, "broad", {2, 45, 130}, 1.0f);
  const auto shorten = [](FixtureCase& c) {
    for (double& w : c.fixed["w"].data) {
      using namespace engine::base;
      w = double{bf16_to_float(float_to_bf16(static_cast<float>(w)))};
    }
  };
  for (FixtureCase& c : op.cases) shorten(c);
  shorten(op.wide);
  return op;
}

// `scales` are the bytes of the groups, again and again. Every byte but 255 is harmless with every
// code here.
void add_packed(FixtureCase& c, const Draw& draw, const std::string& name, std::int64_t rows,
                std::int64_t cols, const std::vector<int>& scales) {
  NamedTensor packed = draw.between(name + "_packed", {rows, cols / 2}, 0.0f, 256.0f);
  for (double& byte : packed.data) byte = std::min(std::floor(byte), 255.0);
  NamedTensor scale{{rows, cols / 32}, {}};
  for (std::int64_t i = 0; i < rows * cols / 32; ++i) {
    scale.data.push_back(scales[static_cast<std::size_t>(i) % scales.size()]);
  }
  c.fixed[name + ".weight_packed"] = std::move(packed);
  c.fixed[name + ".weight_scale"] = std::move(scale);
}

std::vector<double> decoded(const FixtureCase& c, const std::string& name) {
  const auto bytes = [&](const std::string& key) {
    std::vector<std::uint8_t> out;
    for (const double byte : c.weights(key)) out.push_back(static_cast<std::uint8_t>(byte));
    return out;
  };
  const NamedTensor& packed = at(c.fixed, name + ".weight_packed");
  return oracle::decode_mxfp4(bytes(name + ".weight_packed"), bytes(name + ".weight_scale"),
                              packed.shape[0], 2 * packed.shape[1], name);
}

FixtureCase mxfp4_case(const std::string& name, Product p, float scale,
                       const std::vector<int>& scales) {
  FixtureCase c = product_case("matmul_mxfp4", name, p, scale);
  c.fixed.clear();
  add_packed(c, Draw("matmul_mxfp4." + name), "w", p.out, p.in, scales);
  return c;
}

OpFixture matmul_mxfp4() {
  return {"matmul_mxfp4",
          {mxfp4_case("one_group", {1, 1, 32}, 1.0f, {127}),
           mxfp4_case("odd", {3, 5, 96}, 1.0f, {124, 129, 126}),
           // A group without values and one a thousand times smaller than its neighbours.
           mxfp4_case("nan_group", {2, 3, 64}, 1.0f, {127, 255, 117, 126}),
           // 2^-127 is a subnormal float32, not zero; products with it are exact or subnormal.
           mxfp4_case("subnormal", {2, 3, 32}, 1000.0f, {0, 1}),
           mxfp4_case("large", {1, 3, 32}, 1e-3f, {250})},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const std::int64_t width = at(c.varied, "x").shape[1];
            return Values<S>{{"y", product(decoded(c, "w"), in.at("x"), width)}};
          },
          mxfp4_case("broad", {2, 45, 128}, 1.0f, {124, 129, 126})};
}

FixtureCase lora_case(const std::string& name, NamedTensor borders, std::int64_t rank, Product p,
                      float scale) {
  const Draw draw("lora." + name);
  const auto tokens = static_cast<std::int64_t>(borders.data.back());
  return {name,
          {{"documents", std::move(borders)},
           {"scale", setting(double{0.3f})},
           {"y", draw.within("y", {tokens, p.out}, scale)}},
          {{"x", draw.within("x", {tokens, p.in}, scale)},
           {"a", draw.within("a", {rank, p.in}, 1.0f)},
           {"b", draw.within("b", {p.out, rank}, 1.0f)}},
          {{"y", draw.within("up", {tokens, p.out}, 1.0f)}}};
}

OpFixture lora() {
  FixtureCase at_start = lora_case("zero_b", list({0, 3}), 2, {3, 5, 7}, 1.0f);
  at_start.varied["b"].data.assign(10, 0.0);
  at_start.sparse = true;  // with B = 0 neither x nor A has a gradient
  return {"lora",
          {lora_case("one", list({0, 1}), 1, {1, 1, 1}, 1.0f),
           lora_case("odd", list({0, 5}), 3, {5, 7, 19}, 1.0f),
           lora_case("packed", list({0, 2, 3, 7}), 2, {7, 5, 4}, 1.0f), at_start,
           lora_case("tiny", list({0, 3}), 2, {3, 3, 5}, 1e-6f),
           lora_case("large", list({0, 3}), 2, {3, 3, 5}, 1e6f)},
          []<class S>(const FixtureCase& c, const Values<S>& in) {
            const auto& a = at(c.varied, "a").shape;
            std::vector<S> y;
            for (const double v : c.weights("y")) y.push_back(S(v));
            const oracle::Lora<S> lora_of{in.at("a"), in.at("b"), a[0], c.number("scale")};
            oracle::add_lora<S>(y, in.at("x"), lora_of, at(c.varied, "b").shape[0], a[1]);
            return Values<S>{{"y", y}};
          },
          lora_case("wide", list({0, 3, 4, 10, 19}), 4, {19, 21, 33}, 1.0f)};
}

struct ExpertsSize {
  std::int64_t tokens, experts, chosen, latent, inner;
};

// Token t chooses experts t, t+1, … (mod the number of experts). The matrices are drawn from
// ±spread, or MXFP4 where spread is zero. The adapters' scale is 2, which checks/ops/experts_case.h
// has as a constant.
FixtureCase experts_case(const std::string& name, ExpertsSize size, float spread) {
  const Draw draw("experts." + name);
  const auto [tokens, experts, chosen, latent, inner] = size;
  constexpr std::int64_t kRank = 2;
  FixtureCase c{name,
                {{"experts", setting(static_cast<double>(experts))},
                 {"is_mxfp4", setting(spread > 0 ? 0 : 1)},
                 {"beta_gate", setting(4)},
                 {"beta_linear", setting(25)}},
                {{"z", draw.within("z", {tokens, latent}, 1.0f)},
                 {"weight", draw.between("weight", {tokens, chosen}, 0.1f, 1.0f)}},
                {{"routed", draw.within("up", {tokens, latent}, 1.0f)}}};
  NamedTensor index{{tokens, chosen}, {}};
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t j = 0; j < chosen; ++j) {
      index.data.push_back(static_cast<double>((t + j) % experts));
    }
  }
  c.fixed["index"] = std::move(index);
  for (std::int64_t e = 0; e < experts; ++e) {
    for (const auto& [matrix, rows, cols] :
         {std::tuple("w1", inner, latent), {"w2", latent, inner}, {"w3", inner, latent}}) {
      const std::string full = fmt::format("{}.{}", matrix, e);
      if (spread > 0) {
        c.fixed[full] = draw.within(full, {rows, cols}, spread);
      } else {
        add_packed(c, draw, full, rows, cols, {124, 123, 125});
      }
    }
  }
  for (const auto& [adapter, out, in] : {std::tuple("expert_gate", inner, latent),
                                         {"expert_up", inner, latent},
                                         {"expert_down", latent, inner}}) {
    const std::string prefix = adapter;
    c.varied[prefix + ".lora_A"] = draw.within(prefix + ".lora_A", {kRank, in}, 0.5f);
    c.varied[prefix + ".lora_B"] = draw.within(prefix + ".lora_B", {out, kRank}, 0.5f);
  }
  return c;
}

OpFixture experts() {
  OpFixture op = {
      "experts",
      {experts_case("one_mxfp4", {1, 1, 1, 32, 32}, 0.0f),
       experts_case("sum", {3, 4, 2, 5, 7}, 1.0f),
       experts_case("sum_mxfp4", {2, 3, 2, 32, 32}, 0.0f),
       experts_case("saturated", {3, 2, 2, 7, 5}, 12.0f)},
      []<class S>(const FixtureCase& c, const Values<S>& in) {
        const auto load = [&](std::int64_t e) {
          const auto matrix = [&](const char* name) {
            const std::string full = fmt::format("{}.{}", name, e);
            return std::make_shared<const std::vector<double>>(
                c.whole("is_mxfp4") == 0 ? c.weights(full) : decoded(c, full));
          };
          return oracle::GluWeights{matrix("w1"), matrix("w3"), matrix("w2")};
        };
        const auto adapter = [&](const std::string& name) {
          const std::string a = name + ".lora_A";
          return oracle::Lora<S>{in.at(a), in.at(name + ".lora_B"), at(c.varied, a).shape[0], 2.0};
        };
        const auto& down = at(c.varied, "expert_down.lora_A").shape;
        const auto& weight = at(c.varied, "weight").shape;
        const auto index = c.ids("index");
        return Values<S>{
            {"routed", oracle::routed_experts<S>(
                           in.at("z"), index, in.at("weight"), weight[1], c.whole("experts"), load,
                           {adapter("expert_gate"), adapter("expert_up"), adapter("expert_down")},
                           {at(c.varied, "z").shape[1], down[1], c.number("beta_gate"),
                            c.number("beta_linear")})}};
      },
      experts_case("wide", {5, 4, 2, 24, 17}, 0.5f)};
  op.longer_chain = [](const FixtureCase& c, const std::string& name) {
    if (name != "z") return 0;
    const std::int64_t inner = at(c.varied, "expert_down.lora_A").shape[1];
    return static_cast<int>(2 * inner * at(c.varied, "weight").shape[1]);
  };
  return op;
}

}  // namespace

std::vector<OpFixture> product_fixtures() {
  return {matmul_f32(), matmul_bf16(), matmul_mxfp4(), lora(), experts()};
}

}  // namespace checks
