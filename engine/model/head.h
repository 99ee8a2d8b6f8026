#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/base/arena.h"
#include "engine/model/batch.h"
#include "engine/model/config.h"
#include "engine/ops/cross_entropy.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

// Rows of M.embed_tokens for the tokens of a batch, no scaling; every distinct row is read once.
// Shape     out [T,H] (=)
// Errors    Error naming the first token that is outside the vocabulary
void embed(const store::ShardReader& reader, const Config& config, const Batch& batch,
           std::span<float> out);

// lm_head in bands of ops::kVocabBand rows: never [T,V] logits at once, never the whole head in
// memory.
class Head {
 public:
  // Carves a band's logits and the loss state from `arena`.
  Head(const store::ShardReader& reader, const Config& config, std::int64_t tokens,
       base::Arena& arena);

  using LogitsHook =
      std::function<void(std::int64_t first, std::int64_t count, std::span<const float> logits)>;

  // nll [T] (=) from x [T,H], the final norm's output. `weights` holds one band, `logits` may be
  // empty.
  void forward(std::span<const float> x, std::span<const std::int32_t> targets,
               std::span<std::byte> weights, const LogitsHook& logits, std::span<double> nll);

  // d_x [T,H] (=) of the mean loss over `count` tokens; after forward, same x.
  void backward(std::span<const float> x, std::span<const std::int32_t> targets, std::int64_t count,
                std::span<std::byte> weights, std::span<float> d_x);

  // Bytes of a band's weights.
  static std::int64_t band_bytes(const store::ShardReader& reader, const Config& config);

 private:
  // Calls body(first row, logits of the band, weights of the band) for every band, ascending.
  template <class Body>
  void each_band(std::span<const float> x, std::span<std::byte> weights, const Body& body);

  const store::ShardReader& reader_;
  const Config& config_;
  std::int64_t tokens_;
  std::span<float> logits_;  // [T, kVocabBand]
  ops::LossState state_;
};

}  // namespace engine::model
