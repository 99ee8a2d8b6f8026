#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine::data {

// A sequence as training sees it: all ids but the last are fed, all but the first are predicted.
struct Sequence {
  std::string name;                   // for messages: the file
  std::vector<std::int32_t> tokens;   // [T]
  std::vector<std::int32_t> targets;  // [T], -1 = not trained

  std::int64_t trained() const;
};

// The predictions OF the first `mask_first` ids are not trained. The first id is predicted by
// nothing, so that is positions 0 ... mask_first - 2: 0 and 1 mask nothing.
// Errors    Error naming the sequence if there are fewer than two ids: nothing to predict
Sequence make_sequence(std::string name, std::span<const std::int32_t> ids,
                       std::int64_t mask_first);

// What step by step is taken from a list of sequences: the next `count`, cyclically from `cursor`.
// Sequences without a trained target are passed over and counted; they would add nothing to the
// loss or its gradient, and reading a model for them would be wasted.
struct Taken {
  std::vector<std::int64_t> sequences;  // indices of those to train on, in order
  std::int64_t skipped = 0;
};
Taken take(std::span<const Sequence> sequences, std::int64_t cursor, std::int64_t count);

// Sequences as documents of one batch, in order; no label crosses a border.
struct Joined {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  std::vector<std::int64_t> borders;  // 0 ... T
};
Joined join(std::span<const Sequence> sequences, std::span<const std::int64_t> indices);

}  // namespace engine::data
