#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/model/config.h"
#include "engine/model/weight_loader.h"
#include "engine/ops/weight.h"

namespace engine::model {

// The weights of half a layer as typed views; sizes are verified here, once, so that ops need not.
// Letters as in docs/model.md section 1.

// The attention residual in front of each half, and the norm behind it.
struct MixWeights {
  std::span<const float> res_norm;  // [H]
  std::span<const float> res_proj;  // [H]
  std::span<const float> norm;      // [H]
};

struct KdaWeights {
  ops::Weight q, k, v, g;                         // [P,H]
  ops::Weight o;                                  // [H,P]
  ops::Weight f_a, f_b;                           // [D,H], [P,D]
  ops::Weight b;                                  // [Hk,H]
  std::span<const float> q_conv, k_conv, v_conv;  // [P,Kc]
  std::span<const float> a_log;                   // [D], the first Hk count, one per head
  std::span<const float> dt_bias;                 // [P]
  std::span<const float> o_norm;                  // [D]
};

struct MlaWeights {
  ops::Weight q_a, q_b;                        // [Rq,H], [Hm(Dn+Dr),Rq]
  ops::Weight kv_a, kv_b;                      // [Rkv+Dr,H], [Hm(Dn+Dv),Rkv]
  ops::Weight g;                               // [Hm Dv,H]
  ops::Weight o;                               // [H,Hm Dv]
  std::span<const float> q_a_norm, kv_a_norm;  // [Rq], [Rkv]
};

struct DenseWeights {
  ops::Weight gate, up;  // [Id,H]
  ops::Weight down;      // [H,Id]
};

// A matrix in bands of rows, one band in memory at a time.
struct BandedMatrix {
  std::int64_t bands = 0;
  // The rows of a band follow those of the band before; they hold until the next call, of any matrix.
  std::function<ops::Weight(std::int64_t band)> band = {};
};
struct DenseBands {
  BandedMatrix gate, up, down;
};
// What is in memory anyway, as bands: one each.
DenseBands bands_of(const DenseWeights& w);

struct MoeWeights {
  ops::Weight router;                      // [E,H]
  std::span<const float> correction_bias;  // [E]
  ops::Weight latent_down, latent_up;      // [L,H], [H,L]
  std::span<const float> latent_norm;      // [L]; empty without latent_moe_use_norm
  DenseWeights shared;                     // width SI
};

// The prefix of every tensor of a layer.
std::string layer_prefix(std::int64_t layer);

MixWeights load_attention_mix(WeightLoader& loader, const Config& config, std::int64_t layer);
MixWeights load_mlp_mix(WeightLoader& loader, const Config& config, std::int64_t layer);
// The output mix and the final norm.
MixWeights load_output_mix(WeightLoader& loader, const Config& config);

KdaWeights load_kda(WeightLoader& loader, const Config& config, std::int64_t layer);
MlaWeights load_mla(WeightLoader& loader, const Config& config, std::int64_t layer);

// One of the three matrices of a dense MLP.
enum class DensePart : std::uint8_t { kGate, kUp, kDown };
inline constexpr DensePart kDenseParts[] = {DensePart::kGate, DensePart::kUp, DensePart::kDown};
struct DenseMatrix {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};
DenseMatrix dense_matrix(const Config& config, std::int64_t layer, DensePart part);
MoeWeights load_moe(WeightLoader& loader, const Config& config, std::int64_t layer);

}  // namespace engine::model
