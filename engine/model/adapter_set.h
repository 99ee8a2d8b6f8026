#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/budget.h"
#include "engine/model/config.h"
#include "engine/ops/lora.h"
#include "engine/store/scratch_floats.h"

namespace engine::model {

// Where an adapter may stand (docs/training.md section 1). In a KDA layer q and v adapt q_proj and
// v_proj; in an MLA layer they adapt q_b_proj and kv_b_proj. The expert_* adapters are one set a
// layer, shared by all its routed experts, in the latent space.
enum class Target : std::uint8_t {
  kQ,
  kV,
  kDenseGate,
  kDenseUp,
  kDenseDown,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kExpertGate,
  kExpertUp,
  kExpertDown,
};
inline constexpr std::array<std::string_view, 11> kTargetNames = {
    "q",         "v",           "dense_gate",  "dense_up",  "dense_down", "shared_gate",
    "shared_up", "shared_down", "expert_gate", "expert_up", "expert_down"};

struct AdapterSettings {
  std::int64_t rank = 16;
  double alpha = 32.0;
  std::vector<std::string> targets{kTargetNames.begin(), kTargetNames.end()};
};

// One trained matrix with its gradient; native name "layers.{n}.{target}.lora_{A,B}".
struct AdapterTensor {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::span<float> values;
  std::span<float> gradient;
};

// An adapter as the layers use it.
struct AdapterPair {
  ops::Lora lora;
  std::span<float> d_a;
  std::span<float> d_b;
};

// Whoever trains nothing holds none.
enum class Gradients { kHeld, kNone };

// All adapters of a model with their gradients. Values start at zero: initialize() or a file fills
// them. All of it, and with it the optimizer's moments, may live on disk; a layer's are in memory
// while it is worked on, and no value depends on where they are.
class AdapterSet {
 public:
  // With `scratch`, values and gradients are in files there.
  // Errors    Error for an unknown target (naming it and what there is), rank < 1, alpha not
  //           positive, or a budget or disk that cannot hold values and gradients
  AdapterSet(const Config& config, const AdapterSettings& settings, base::RamBudget& budget,
             const std::filesystem::path& scratch = {}, Gradients gradients = Gradients::kHeld);

  // The outline: which adapters there are and how large, without memory for them. To plan with.
  AdapterSet(const Config& config, const AdapterSettings& settings);

  // A uniform in +-1/sqrt(in), keyed by (seed, name, index); B zero. So step 0 is the base model.
  void initialize(std::uint64_t seed);
  void clear_gradients();

  // Where values, gradients and moments are; empty: in memory.
  const std::filesystem::path& scratch() const { return scratch_; }
  // Done with a layer, or a tensor, for now.
  void put_away(std::int64_t layer) const;
  void put_away(const AdapterTensor& tensor) const;
  // Memory that values, gradients and two moments take: all of it, or, on disk, what is worked on at
  // a time, which is never more.
  std::int64_t memory_bytes(bool on_disk) const;

  // In native-name order (bytewise): the order of sums over tensors and of files.
  std::span<const AdapterTensor> tensors() const { return tensors_; }
  const AdapterSettings& settings() const { return settings_; }
  std::int64_t parameters() const { return parameters_; }
  // Nothing if the layer has no such projection or the target was not asked for.
  const AdapterPair* find(std::int64_t layer, Target target) const;

 private:
  AdapterSettings settings_;
  std::int64_t parameters_ = 0;
  struct LayerPart {
    std::span<const float> values, gradients;
  };

  base::Buffer<float> values_, gradients_;
  std::filesystem::path scratch_;
  store::ScratchFloats values_on_disk_, gradients_on_disk_;
  std::unique_ptr<base::Charge> worked_on_;  // if on disk
  std::vector<LayerPart> layers_;            // [layer]
  std::vector<AdapterTensor> tensors_;
  std::int64_t largest_layer_ = 0, largest_tensor_ = 0;  // parameters
  std::int64_t tensor_count_ = 0;                        // of the outline, too
  std::vector<std::array<AdapterPair, kTargetNames.size()>>
      pairs_;  // [layer][target], rank 0 = absent
};

// Width of input and output of an adapter; {0, 0} if the layer has no such projection.
struct AdapterWidths {
  std::int64_t in = 0;
  std::int64_t out = 0;
};
AdapterWidths adapter_widths(const Config& config, std::int64_t layer, Target target);

}  // namespace engine::model
