#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/adapter_set.h"
#include "engine/model/carried_state.h"
#include "engine/model/config.h"
#include "engine/model/layer_stream.h"
#include "engine/ops/documents.h"

namespace engine::model {

// How much memory each part of a sweep takes. Measured by running the code that lays the parts out,
// on arenas without memory: the plan cannot drift from what is allocated.
struct Plan {
  std::int64_t adapter_bytes = 0;      // adapters and what belongs to them, where still to be taken
  std::int64_t weights_bytes = 0;      // the largest half of a layer, or output mix and head band
  std::int64_t activations_bytes = 0;  // inside the largest half
  std::int64_t expert_bytes = 0;       // one routed expert
  std::int64_t residual_bytes = 0;     // running residual; the one that entered; gradient
  std::int64_t bank_bytes = 0;         // bank entries, and their gradients
  std::int64_t record_bytes = 0;       // routing and routed sum of one layer
  std::int64_t head_bytes = 0;         // logits of a band, loss state
  std::int64_t carried_bytes = 0;      // what a continued sequence keeps, see CarriedState

  // Slots of weights_bytes and of expert_bytes. One of each is the least: every read is waited for.
  // The next are read ahead into, further ones keep what the way down wants again.
  std::int64_t weights_slots = 1;
  std::int64_t expert_slots = 1;
  // The same walk again and again, a token each: every half is wanted again, an expert perhaps.
  bool repeated = false;
  // More than these would stay empty.
  std::int64_t weights_slots_useful = 1;
  std::int64_t expert_slots_useful = 1;

  // What slots beyond those read ahead into are called.
  const char* halves_kept_name() const {
    return repeated ? "halves kept" : "halves kept for the way down";
  }
  const char* experts_kept_name() const {
    return repeated ? "experts kept" : "experts kept for the way down";
  }
  std::int64_t weights_ahead() const;
  std::int64_t experts_ahead() const;

  // Spends memory beyond the least on slots, in the order of what it brings: experts read ahead, half
  // a layer read ahead, experts kept, halves kept (a slot of these is as large as the largest half,
  // so most are partly empty); of a repeated walk halves before experts. Never goes beyond `bytes`, and changes nothing if the least does.
  void spend(std::uint64_t bytes);

  std::int64_t least_bytes() const;
  std::int64_t total_bytes() const;
  // One line a part.
  std::string table() const;
};

// The least; spend() makes more of it. carried: the documents (borders, 0 ... T) are one, which continues that sequence.
Plan plan_sweep(const LayerBlocks& blocks, const Config& config, ops::Documents documents,
                const AdapterSet* adapters, bool backward, CarriedState* carried = nullptr);

}  // namespace engine::model
