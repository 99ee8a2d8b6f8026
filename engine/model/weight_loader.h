#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/arena.h"
#include "engine/ops/weight.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// Brings named tensors of a checkpoint into an arena, as the ops want them. With a measuring arena
// nothing is read: the calls that load half a layer are also the calls that say how much it takes.
// Errors    Error naming the tensor: missing, another shape, a dtype that this place cannot have
class WeightLoader {
 public:
  WeightLoader(const store::ShardReader& reader, base::Arena& arena)
      : reader_(reader), arena_(arena) {}

  // A matrix [rows][cols] in its own type: BF16 and F32 as they are, F16 widened (exactly) to F32.
  ops::Weight matrix(const std::string& name, std::int64_t rows, std::int64_t cols);

  // Rows [first, first + count) of a matrix, read without the others.
  ops::Weight matrix_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                          std::int64_t first, std::int64_t count);

  // A vector of any shape with `count` elements, BF16, F16 or F32, widened to float32.
  std::span<const float> vector(const std::string& name, std::int64_t count);

 private:
  const store::TensorEntry& find(const std::string& name, std::int64_t count) const;
  std::span<float> widened(const store::TensorEntry& entry, std::uint64_t offset,
                           std::int64_t count);

  const store::ShardReader& reader_;
  base::Arena& arena_;
};

}  // namespace engine::model
