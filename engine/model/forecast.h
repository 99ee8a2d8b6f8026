#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/adapter_set.h"
#include "engine/model/config.h"
#include "engine/model/plan.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// A part of a step in which all reads are known from its beginning: they overlap with computing.
struct StepPhase {
  double flops = 0.0;  // two a multiply-add
  std::uint64_t trunk_bytes = 0, expert_bytes = 0;
};

// What one training step asks of the disk and of the processor, from headers and configuration alone.
struct StepWork {
  std::uint64_t trunk_bytes = 0;      // all but experts and embedding, up and down
  std::uint64_t expert_bytes = 0;     // up and down
  std::uint64_t embedding_bytes = 0;  // a row a token
  // Of trunk and experts, what the way down finds in memory. The plan's slots as if each held its
  // block: what is wanted soonest after the turn.
  std::uint64_t saved_trunk_bytes = 0;
  std::uint64_t saved_expert_bytes = 0;
  double flops = 0.0;
  // Up, layer by layer: while attention computes, only the weights of the MLP can be read, since
  // nobody knows yet which experts; while experts compute, further experts and the next attention.
  // Head and way down: everything.
  StepPhase up_attention, up_mlp, rest;

  std::uint64_t read_bytes() const {
    return trunk_bytes + expert_bytes + embedding_bytes - saved_trunk_bytes - saved_expert_bytes;
  }
};

// Distinct experts of a layer among `tokens` tokens that choose k of E evenly and independently:
// E (1 - (1 - k/E)^tokens). Any other frequencies of independent tokens give fewer.
double distinct_experts_if_even(const Config& config, std::int64_t tokens);
// The same if expert e is chosen by the share p_e of all tokens: sum_e (1 - (1 - p_e)^tokens).
double distinct_experts(std::span<const double> share, std::int64_t tokens);

// A step over `sequences` documents of `tokens` tokens each. distinct: [layers], 0 for a dense one.
//
// Accuracy  bytes: what a sweep reads and saves together, to the byte, where `distinct` is what the
//           router chose and all tokens are different. flops: all matrix products and adapters, once
//           up and, with what is recomputed, down; the recurrence and the attention as multiples of
//           their forward. Elementwise work is left out
StepWork step_work(const store::ShardReader& shards, const Config& config,
                   const AdapterSet& outline, const Plan& plan, std::int64_t tokens,
                   std::int64_t sequences, std::span<const double> distinct);

// Rates of a machine, in units a second.
struct Machine {
  double disk_bytes = 0.0;
  double fast_disk_bytes =
      0.0;  // of a second disk that holds all but the experts; 0: there is none
  double flops = 0.0;
};

struct StepTime {
  double disk = 0.0;       // seconds, of the disk with the experts
  double fast_disk = 0.0;  // of the other
  double processor = 0.0;
  double seconds = 0.0;  // the phases one after the other, each as long as the longest of its three
  const char* bound_by() const;
};
StepTime step_time(const StepWork& work, const Machine& machine);

}  // namespace engine::model
