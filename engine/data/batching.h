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

// Documents, one behind the other, as a batch is made of them.
struct Joined {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;        // -1 = not trained
  std::vector<std::int64_t> borders = {0};  // 0 ... T

  std::int64_t trained() const;
};
// The documents of `more` behind those of `to`; no label crosses a border.
void append(Joined& to, const Joined& more);
// Of it, the borders.
void append_borders(std::vector<std::int64_t>& to, std::span<const std::int64_t> more);

}  // namespace engine::data
