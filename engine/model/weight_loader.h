#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/arena.h"
#include "engine/ops/weight.h"
#include "engine/store/read_list.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// Finds named tensors of a checkpoint, as the ops want them. The same calls say which bytes are
// wanted, how much memory they take, and, once they are there, where.
// Errors    Error naming the tensor: missing, another shape, a dtype that this place cannot have
class WeightLoader {
 public:
  // Only notes what is wanted; what is returned has no data.
  WeightLoader(const store::ShardReader& reader, store::ReadList& wanted)
      : reader_(reader), wanted_(&wanted) {}

  // Takes the room of `there` from the arena, with its bytes already in it, and then what else is
  // needed: vectors, F16, and what does not lie aligned to its type have a place of their own; all
  // other matrices stay where they were read. A measuring arena holds no data.
  WeightLoader(const store::ShardReader& reader, const store::ReadList& there, base::Arena& arena)
      : reader_(reader),
        there_(&there),
        arena_(&arena),
        room_(arena.take<std::byte>(static_cast<std::int64_t>(there.room_bytes()))) {}

  // A matrix [rows][cols] in its own type: BF16 and F32 as they are, F16 widened (exactly) to F32.
  ops::Weight matrix(const std::string& name, std::int64_t rows, std::int64_t cols);

  // Rows [first, first + count) of a matrix, without the others.
  ops::Weight matrix_rows(const std::string& name, std::int64_t rows, std::int64_t cols,
                          std::int64_t first, std::int64_t count);

  // A vector of any shape with `count` elements, BF16, F16 or F32, widened to float32.
  std::span<const float> vector(const std::string& name, std::int64_t count);

 private:
  const store::TensorEntry& find(const std::string& name, std::int64_t count) const;
  const std::byte* bytes_at(const store::TensorEntry& entry, std::uint64_t offset) const;
  std::span<const float> widened(const store::TensorEntry& entry, std::uint64_t offset,
                                 std::int64_t count);

  const store::ShardReader& reader_;
  store::ReadList* wanted_ = nullptr;
  const store::ReadList* there_ = nullptr;
  base::Arena* arena_ = nullptr;
  std::span<const std::byte> room_;
};

}  // namespace engine::model
