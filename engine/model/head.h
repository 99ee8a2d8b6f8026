#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/base/arena.h"
#include "engine/model/batch.h"
#include "engine/model/config.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/weight.h"
#include "engine/store/shard_reader.h"

namespace engine::model {

inline constexpr const char* kEmbedding = "language_model.model.embed_tokens.weight";

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
  Head(const Config& config, std::int64_t tokens, base::Arena& arena);

  using LogitsHook =
      std::function<void(std::int64_t first, std::int64_t count, std::span<const float> logits)>;
  // Brings the weights of a band, counted from 0; they are used until the next call.
  using BandSource = std::function<ops::Weight(std::int64_t band)>;

  // nll [T] (=) from x [T,H], the final norm's output; `logits` may be empty.
  void forward(std::span<const float> x, std::span<const std::int32_t> targets,
               const BandSource& bands, const LogitsHook& logits, std::span<double> nll);

  // Fills d_logits [T,count] (=) of the vocabulary rows from `first`.
  using LogitGradientHook =
      std::function<void(std::int64_t first, std::int64_t count, std::span<float> d_logits)>;
  // d_x [T,H] (=) of the mean loss over `count` tokens; after forward, same x. With `d_logits`, of
  // what has that gradient with respect to the logits instead.
  void backward(std::span<const float> x, std::span<const std::int32_t> targets, std::int64_t count,
                const BandSource& bands, const LogitGradientHook& d_logits, std::span<float> d_x);

 private:
  // Calls body(first row, logits of the band, weights of the band) for every band, ascending.
  template <class Body>
  void each_band(std::span<const float> x, const BandSource& bands, const Body& body);

  const Config& config_;
  std::int64_t tokens_;
  std::span<float> logits_;  // [T, kVocabBand]
  ops::LossState state_;
};

}  // namespace engine::model
