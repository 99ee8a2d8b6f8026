#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checks/reference.h"
#include "engine/model/carried_state.h"
#include "engine/model/config.h"
#include "engine/model/layer.h"

namespace checks {

// The configuration behind the C reference's layer fixtures and its 13-layer model: float32 experts
// with an inner width of 48, which no MXFP4 checkpoint can have, so no file is parsed for it.
engine::model::Config fixture_config();

// Layers whose weights are float32 arrays in memory, named as the C reference names them: module
// names with "." as "_", the MoE's parts as mlp_gate (router), mlp_down / mlp_up (latent),
// mlp_norm, mlp_shared_w*.
class FixtureLayers {
 public:
  explicit FixtureLayers(const NamedTensors& tensors);

  engine::model::AttentionHalf attention(const engine::model::Config& config, std::int64_t layer,
                                         const std::string& prefix) const;
  engine::model::MlpHalf mlp(const engine::model::Config& config, std::int64_t layer,
                             const std::string& prefix) const;
  engine::model::ExpertSource experts(const engine::model::Config& config,
                                      const std::string& prefix) const;
  engine::ops::Weight matrix(const std::string& name) const;
  std::span<const float> vector(const std::string& name) const;

 private:
  struct Values {
    std::vector<std::int64_t> shape;
    std::vector<float> data;
  };
  std::map<std::string, Values> values_;
};

// One layer: bank entries [T,H] before its own snapshot (it is added at a boundary), residual in
// and out. carried: the tokens continue that sequence.
void fixture_layer_forward(const FixtureLayers& layers, const engine::model::Config& config,
                           std::int64_t layer, const std::string& prefix,
                           std::vector<std::vector<float>>& bank, std::vector<float>& h,
                           engine::model::CarriedState* carried = nullptr);

}  // namespace checks
