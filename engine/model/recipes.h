#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/config.h"
#include "engine/store/safetensors_writer.h"

namespace engine::model {

// How a tensor's values are drawn.
enum class Draw : std::uint8_t {
  kNormal,   // near-normal, mean `a`, standard deviation `b`; BF16
  kUniform,  // in [a, b); BF16 or F32
  kCodes,    // pairs of E2M1 codes, a rounded normal
  kScales,   // E8M0 bytes that give weights of rms `a` together with such codes
};

struct Recipe {
  store::TensorSpec spec;
  Draw draw = Draw::kNormal;
  double a = 0.0;
  double b = 0.0;
  std::int64_t drawn = -1;  // the first so many are drawn, the rest is zero; all if negative
  bool hole = false;        // nothing is drawn: all zero
};

// Every tensor of a released-layout checkpoint (docs/model.md section 2), in file order inside each list:
// one contiguous run a layer, one run of six tensors an expert, and what belongs to no layer.
//
// The spreads keep activations sane at any size: inputs of projections are normed, so a matrix of
// spread gain / sqrt(width) gives outputs of spread `gain`, and each half of a layer adds about one
// to a residual that restarts at every block.
std::vector<Recipe> layer_recipes(const Config& config, std::int64_t layer);
std::vector<Recipe> expert_recipes(const Config& config, std::int64_t layer, std::int64_t expert);
std::vector<Recipe> model_recipes(const Config& config);

// Makes holes of what a layer of a sparse checkpoint does without: every tensor but norms, the two
// residual mixes and the router. What is left keeps its values, which are keyed by its name: tokens
// are routed as in a layer that is whole.
void make_holes(std::vector<Recipe>& recipes);

}  // namespace engine::model
