#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "engine/store/finding.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// kMatrix, kVector: BF16, F16 or F32. kPacked, kScale: U8, the two halves of an MXFP4 matrix.
enum class Role : std::uint8_t { kMatrix, kVector, kPacked, kScale };

// A tensor that a checkpoint of some configuration must have (docs/model.md section 2).
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Role role = Role::kMatrix;
};

// Embedding, head, final norm and output mix.
std::vector<ExpectedTensor> model_tensors(const Config& config);
// A layer's tensors without its routed experts.
std::vector<ExpectedTensor> layer_tensors(const Config& config, std::int64_t layer);
// w1.packed, w1.scale, w2.packed, w2.scale, w3.packed, w3.scale: their order in a shard, too.
std::array<ExpectedTensor, 6> expert_tensors(const Config& config, std::int64_t layer,
                                             std::int64_t expert);

// Tensors of all three kinds; 497,052 for the released configuration.
std::int64_t tensor_count(const Config& config);

// Everything in which the tensors differ from what the configuration asks for: a missing tensor,
// another shape or dtype, packed and scale that do not fit each other, a `language_model.` tensor
// that has no place (to leave out a bias that is there would be another model). As a note, experts
// whose six tensors are no single run of bytes: legal, but no longer one read. Vision tensors are
// passed over. Of a reader that could not read every shard, the tensors that may be in the others are
// one note.
std::vector<store::Finding> check_layout(const Config& config, const store::ShardReader& reader);

}  // namespace engine::model
