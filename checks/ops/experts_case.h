#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "checks/ops/op_case.h"
#include "engine/ops/experts.h"
#include "engine/ops/lora.h"

// What checks/ops/experts_check.cc runs: a routed sum over several experts, the same in double, and
// the adapters around it.
namespace checks::ops::experts {

// A weight with its bytes.
struct Matrix {
  engine::ops::WeightKind kind = engine::ops::WeightKind::kF32;
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
  std::vector<std::uint8_t> packed, scale;

  static Matrix f32(const NamedTensor& tensor) {
    return {engine::ops::WeightKind::kF32,
            tensor.shape.at(0),
            tensor.shape.at(1),
            tensor.f32(),
            {},
            {}};
  }
  static Matrix mxfp4(const GradCase& in, const std::string& name) {
    const auto bytes = [&](const std::string& key) {
      const auto& data = in.f64(key);
      std::vector<std::uint8_t> out(data.size());
      std::transform(data.begin(), data.end(), out.begin(),
                     [](double byte) { return static_cast<std::uint8_t>(byte); });
      return out;
    };
    return {engine::ops::WeightKind::kMxfp4,         in.size(name + ".weight_packed", 0),
            2 * in.size(name + ".weight_packed", 1), {},
            bytes(name + ".weight_packed"),          bytes(name + ".weight_scale")};
  }
  engine::ops::Weight weight() const {
    const bool is_f32 = kind == engine::ops::WeightKind::kF32;
    return {kind, is_f32 ? static_cast<const void*>(values.data()) : packed.data(),
            is_f32 ? nullptr : scale.data(), rows, cols};
  }
};

struct Expert {
  Matrix w1, w2, w3;
  engine::ops::ExpertWeights weights() const { return {w1.weight(), w2.weight(), w3.weight()}; }
  std::int64_t latent() const { return w1.cols; }
  std::int64_t inner() const { return w1.rows; }
};

// Everything that the op reads. `token`, `weight` and `slot` hold one list an expert; a slot is the
// place of an entry in the router's [T,k].
struct MoeCase {
  std::int64_t tokens = 0, chosen = 0;
  engine::ops::SituBetas betas;
  std::vector<float> z;
  std::vector<Expert> experts;
  std::vector<std::vector<std::int32_t>> token;
  std::vector<std::vector<float>> weight;
  std::vector<std::vector<std::size_t>> slot;
  std::vector<float> delta_gate, delta_up, delta_down;  // [T,I] or empty
  std::vector<float> d_routed;                          // [T,L]

  void choose(const std::vector<std::int32_t>& index, const std::vector<float>& weights,
              std::int64_t k) {
    chosen = k;
    token.assign(experts.size(), {});
    weight.assign(experts.size(), {});
    slot.assign(experts.size(), {});
    for (std::size_t i = 0; i < index.size(); ++i) {
      const auto e = static_cast<std::size_t>(index[i]);
      token[e].push_back(static_cast<std::int32_t>(i / static_cast<std::size_t>(k)));
      weight[e].push_back(weights[i]);
      slot[e].push_back(i);
    }
  }
  std::int64_t latent() const { return experts[0].latent(); }
  std::int64_t inner() const { return experts[0].inner(); }

  // Gates wide enough for the caps to bend (betas 2 and 5); token t chooses t, t+1, ... mod E.
  static MoeCase random(std::int64_t tokens, std::int64_t count, std::int64_t k,
                        std::int64_t latent, std::int64_t inner) {
    MoeCase c;
    c.tokens = tokens;
    c.betas = {2.0f, 5.0f};
    c.z = random_values("z", tokens * latent, 2.0f);
    c.delta_gate = random_values("delta_gate", tokens * inner, 1.0f);
    c.delta_up = random_values("delta_up", tokens * inner, 1.0f);
    c.delta_down = random_values("delta_down", tokens * inner, 1.0f);
    c.d_routed = random_values("d_routed", tokens * latent, 1.0f);
    const float scale = 2.0f / std::sqrt(static_cast<float>(latent));
    for (std::int64_t e = 0; e < count; ++e) {
      const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t cols) {
        return Matrix{engine::ops::WeightKind::kF32,
                      rows,
                      cols,
                      random_values(name + std::to_string(e), rows * cols, scale),
                      {},
                      {}};
      };
      c.experts.push_back(
          {matrix("w1", inner, latent), matrix("w2", latent, inner), matrix("w3", inner, latent)});
    }
    std::vector<std::int32_t> index;
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < k; ++j) {
        index.push_back(static_cast<std::int32_t>((t + j) % count));
      }
    }
    c.choose(index, random_values("weight", tokens * k, 1.0f), k);
    return c;
  }

  // Token t alone.
  MoeCase only(std::int64_t t) const {
    MoeCase c;
    c.tokens = 1;
    c.betas = betas;
    c.experts = experts;
    append(c.z, rows(z, latent(), t));
    append(c.d_routed, rows(d_routed, latent(), t));
    append(c.delta_gate, rows(delta_gate, inner(), t));
    append(c.delta_up, rows(delta_up, inner(), t));
    append(c.delta_down, rows(delta_down, inner(), t));
    std::vector<std::int32_t> index(static_cast<std::size_t>(chosen));
    std::vector<float> weights(index.size());
    for (std::size_t e = 0; e < experts.size(); ++e) {
      for (std::size_t i = 0; i < token[e].size(); ++i) {
        if (token[e][i] != t) continue;
        const std::size_t j = slot[e][i] % static_cast<std::size_t>(chosen);
        index[j] = static_cast<std::int32_t>(e);
        weights[j] = weight[e][i];
      }
    }
    c.choose(index, weights, chosen);
    return c;
  }
};

// Everything that the op adds to or writes; forward and backward of one expert after the other.
struct MoeResult {
  explicit MoeResult(const MoeCase& c)
      : routed(static_cast<std::size_t>(c.tokens * c.latent())),
        d_z(routed.size()),
        inner_sum(c.delta_gate.size()),
        inner_sum_again(inner_sum.size()),
        d_gate_sum(inner_sum.size()),
        d_up_sum(inner_sum.size()),
        d_weight(static_cast<std::size_t>(c.tokens * c.chosen)),
        // Not zero: what stands in the scratch must not matter.
        scratch(
            static_cast<std::size_t>(engine::ops::expert_scratch(c.tokens, c.latent(), c.inner())),
            7.0f) {}

  void forward(const MoeCase& c, std::size_t e) {
    engine::ops::expert_forward(c.experts[e].weights(), {c.token[e], c.weight[e]},
                                {c.z, c.delta_gate, c.delta_up, c.betas, inner_sum, routed},
                                scratch);
  }
  void backward(const MoeCase& c, std::size_t e) {
    std::vector<float> d_weights(c.token[e].size());
    engine::ops::expert_backward(c.experts[e].weights(), {c.token[e], c.weight[e]},
                                 {c.z, c.delta_gate, c.delta_up, c.betas, c.d_routed, c.delta_down,
                                  inner_sum_again, d_gate_sum, d_up_sum, d_z},
                                 scratch, d_weights);
    for (std::size_t i = 0; i < d_weights.size(); ++i) d_weight[c.slot[e][i]] = d_weights[i];
  }

  std::vector<float> routed, d_z;
  std::vector<float> inner_sum, inner_sum_again, d_gate_sum, d_up_sum;
  std::vector<float> d_weight;  // [T,k]
  std::vector<float> scratch;
};

inline MoeResult run(const MoeCase& c) {
  MoeResult r(c);
  for (std::size_t e = 0; e < c.experts.size(); ++e) r.forward(c, e);
  for (std::size_t e = 0; e < c.experts.size(); ++e) r.backward(c, e);
  return r;
}

// One set of adapters shared by all experts, as the layer puts it around the op.
struct SharedAdapters {
  struct One {
    std::string name;
    std::vector<float> a, b, d_a, d_b;
    engine::ops::Lora lora;
    std::vector<float> u, d_u;  // [T,R]

    void forward(const MoeCase& c, const std::vector<float>& x, std::vector<float>& y) {
      lora_forward(lora, x, u, y, c.tokens);
    }
    void backward(const MoeCase& c, const std::vector<float>& d_y, const std::vector<float>& x,
                  std::vector<float>& d_x) {
      const std::vector<std::int64_t> document = {0, c.tokens};
      lora_backward(lora, document, d_y, x, u, d_u, d_a, d_b, d_x);
    }
  };

  SharedAdapters(const GradCase& in, const MoeCase& c)
      : gate(one(in, "expert_gate", c)),
        up(one(in, "expert_up", c)),
        down(one(in, "expert_down", c)) {}

  // Runs c with the adapters, whose gradients are left in them; c's deltas are filled in.
  MoeResult run(MoeCase& c) {
    const auto size = static_cast<std::size_t>(c.tokens * c.inner());
    for (auto* delta : {&c.delta_gate, &c.delta_up, &c.delta_down}) delta->assign(size, 0.0f);
    gate.forward(c, c.z, c.delta_gate);
    up.forward(c, c.z, c.delta_up);
    MoeResult r(c);
    for (std::size_t e = 0; e < c.experts.size(); ++e) r.forward(c, e);
    down.forward(c, r.inner_sum, r.routed);
    down.backward(c, c.d_routed, r.inner_sum, c.delta_down);
    for (std::size_t e = 0; e < c.experts.size(); ++e) r.backward(c, e);
    gate.backward(c, r.d_gate_sum, c.z, r.d_z);
    up.backward(c, r.d_up_sum, c.z, r.d_z);
    return r;
  }

  One gate, up, down;

 private:
  // The lora's spans look into the vectors' storage, which moves along with the struct.
  static One one(const GradCase& in, const std::string& name, const MoeCase& c) {
    One o{name, in.f32("in." + name + ".lora_A"), in.f32("in." + name + ".lora_B"), {}, {}, {}, {},
          {}};
    o.d_a.resize(o.a.size());
    o.d_b.resize(o.b.size());
    const std::int64_t rank = in.size("in." + name + ".lora_A", 0);
    o.lora = {
        o.a, o.b, rank, in.size("in." + name + ".lora_A", 1), in.size("in." + name + ".lora_B", 0),
        2.0f};  // scale 2 in every case there
    o.u.resize(static_cast<std::size_t>(c.tokens * rank));
    o.d_u.resize(o.u.size());
    return o;
  }
};

}  // namespace checks::ops::experts
