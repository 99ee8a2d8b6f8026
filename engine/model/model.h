#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/sha256.h"
#include "engine/model/adapter_set.h"
#include "engine/model/batch.h"
#include "engine/model/config.h"
#include "engine/model/plan.h"
#include "engine/ops/documents.h"
#include "engine/store/read_queue.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

class Decoder;
class Trace;

// What one sweep over the model found.
struct SweepResult {
  double loss = 0.0;         // mean over trained tokens, nats; NaN if there is none
  std::int64_t trained = 0;  // tokens with a target
  std::vector<double> nll;   // [T], 0 where masked
  std::vector<std::int64_t> distinct_experts;  // [layers], 0 for a dense layer
  std::vector<float> smallest_gap;             // [layers], last chosen minus first rejected score
  std::uint64_t bytes_read = 0;  // from the checkpoint or its packed copy, by this sweep
  // What the way down found still in memory, and had no need to read. With it, bytes_read is what a
  // function of batch and routing alone says; how it is split depends on the memory budget.
  std::uint64_t bytes_saved = 0;
  // MXFP4 groups under scale byte 255 (NaN by the format, zero here) in the experts that were read,
  // each expert counted once, and how many of them carried a non-zero code.
  std::int64_t nan_groups = 0;
  std::int64_t nan_groups_with_codes = 0;
};

struct SweepHooks {
  // Called when a layer is done: "forward" or "backward".
  std::function<void(std::string_view direction, std::int64_t layer)> progress;
  // The logits never exist at once; given here band by band: [T, count] from vocabulary row
  // `first`.
  std::function<void(std::int64_t first, std::int64_t count, std::span<const float> logits)> logits;
  // For checks: fills the gradient with respect to the same piece of the logits, w, in place of the
  // loss's. Then forward_backward adds the gradient of <w, logits>; the loss stays what it is.
  std::function<void(std::int64_t first, std::int64_t count, std::span<float> d_logits)>
      logit_gradient;
  // Interior values and gradients for checks; nothing is kept without it.
  Trace* trace = nullptr;
};

struct ModelOptions {
  std::filesystem::path scratch = "/tmp";  // folder of the activation store
  bool strict = false;                     // refuse E8M0 scale bytes of 255
  std::int64_t dense_band_rows = 0;        // see LayerBlocks
  store::ReadSettings reads = {};
  store::ReadQueueSettings queue = {};
  std::filesystem::path pack = {};  // folder of a packed copy; empty: none
  // Told why the packed copy is no longer read, by the thread that noticed; see ShardReader::use.
  std::function<void(const std::string& why)> pack_lost = {};
};

// A checkpoint, walked from disk half a layer at a time.
class Model {
 public:
  // Errors    Error for anything wrong with config, shards, names, shapes or dtypes; those of PackedCopy
  Model(const std::filesystem::path& folder, base::RamBudget& budget, ModelOptions options = {});
  ~Model();

  const Config& config() const;
  const store::ShardReader& shards() const;

  // What a sweep over such documents (borders, 0 ... T) will take from the budget, as much of it as is free now.
  Plan plan(ops::Documents documents, const AdapterSet* adapters, bool backward) const;

  // `adapter_bytes`: of adapters, gradients and moments that are to be taken before the sweep.
  // Errors    Error with the plan's table if the budget cannot hold it
  void require_budget(ops::Documents documents, const AdapterSet* adapters, bool backward,
                      std::int64_t adapter_bytes = 0) const;

  // Loss of the batch; adapters may be null (the base model).
  SweepResult forward(const Batch& batch, const AdapterSet* adapters, const SweepHooks& hooks = {});

  // One sequence token by token, `prompt` tokens known of at most `most`; see decoder.h. Of this
  // model, which must stay.
  // Errors    Error with the plan's table if the budget cannot hold it
  std::unique_ptr<Decoder> decode(const AdapterSet* adapters, std::int64_t prompt,
                                  std::int64_t most);

  // One layer alone, from any bank (its own snapshot not yet in it) and residual; h [T,H] (in/out).
  void forward_layer(std::int64_t layer, const Batch& batch,
                     std::span<const std::vector<float>> bank, std::span<float> h,
                     const AdapterSet* adapters, Trace* trace);

  // One layer alone, up and down: h [T,H] (in/out) as above; d_h [T,H] (in/out), the gradient of what
  // leaves, becomes that of what entered, without what the bank brings; the adapters' (+=).
  SweepResult forward_backward_layer(std::int64_t layer, const Batch& batch,
                                     std::span<const std::vector<float>> bank, std::span<float> h,
                                     std::span<float> d_h, AdapterSet& adapters);

  // Loss, and its gradient added to the adapters' gradients. Nothing trained: loss NaN, no
  // gradient, and nothing is read for it.
  SweepResult forward_backward(const Batch& batch, AdapterSet& adapters,
                               const SweepHooks& hooks = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace engine::model
