#pragma once

#include <cstdint>
#include <vector>

namespace engine::model {

// All the tokens of a step. A sequence more is a document more: packed, batched and separate
// documents are one and the same thing here, which is why they agree bit for bit.
struct Batch {
  std::vector<std::int32_t> tokens;     // [T]
  std::vector<std::int32_t> targets;    // [T], negative = masked
  std::vector<std::int64_t> documents;  // borders, 0 ... T (see engine/ops/documents.h)
  // Trained tokens of the whole step, over which the loss is a mean. Zero: those of this batch. A
  // step in several sweeps names their sum and gets, added up, the bits of one sweep over all.
  std::int64_t loss_tokens = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t trained() const {
    std::int64_t count = 0;
    for (const std::int32_t target : targets) count += target >= 0 ? 1 : 0;
    return count;
  }
  std::int64_t loss_count() const { return loss_tokens > 0 ? loss_tokens : trained(); }
};

}  // namespace engine::model
