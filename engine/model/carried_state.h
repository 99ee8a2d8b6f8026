#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/arena.h"
#include "engine/base/budget.h"
#include "engine/model/config.h"

namespace engine::model {

// What the tokens of one sequence leave behind for the tokens that follow, layer by layer. With it,
// the next tokens alone give the bits that a sweep over the whole sequence gives them. The bank and
// the residual are no part of it: a token mixes what itself wrote, never another token.
//
// Cost      KDA layers the same however long the sequence; MLA layers Rkv + Dr floats a token. The
//           keys and values of all heads, which follow from these, would be Hm (Dn+Dv): 43 times as
//           much in the release
class CarriedState {
 public:
  // Positions and sizes alone, for a plan.
  CarriedState(const Config& config, std::int64_t most_tokens);
  // An empty sequence that may grow to `most_tokens`.
  // Errors    Error if the budget cannot hold it
  CarriedState(const Config& config, std::int64_t most_tokens, base::RamBudget& budget);

  struct Kda {
    std::span<float> q_tail, k_tail, v_tail;  // [Kc-1,P] last inputs of the convolutions
    std::span<float> state;                   // [Hk,D,D] after the last token
  };
  struct Mla {
    std::span<float> latent;  // [most_tokens,Rkv] after its norm
    std::span<float> rope;    // [most_tokens,Dr]
  };
  // Empty where the layer is of the other kind.
  const Kda& kda(std::int64_t layer) const { return kda_[static_cast<std::size_t>(layer)]; }
  const Mla& mla(std::int64_t layer) const { return mla_[static_cast<std::size_t>(layer)]; }

  // Tokens that went through all layers. A sweep writes behind them and moves on when it is done;
  // one that failed on its way has written to some layers, and nothing can be continued.
  std::int64_t tokens() const { return tokens_; }
  std::int64_t most_tokens() const { return most_tokens_; }
  void advance(std::int64_t count);

  std::int64_t bytes() const { return bytes_; }

 private:
  void lay_out(const Config& config, base::Arena& arena);

  std::int64_t most_tokens_;
  std::int64_t tokens_ = 0;
  std::int64_t bytes_ = 0;
  base::Buffer<std::byte> memory_;
  std::vector<Kda> kda_;  // [layers]
  std::vector<Mla> mla_;
};

}  // namespace engine::model
