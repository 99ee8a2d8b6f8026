#pragma once

// Inner loops of kda.h. Value columns stand in lanes, so a sum over key rows is one fma chain in
// each lane, and a sum over value columns is 16 partial sums and the tree of lanes.h, as in
// matmul.h.

#include <cstdint>

#include "engine/base/lane_math.h"
#include "engine/base/lanes.h"
#include "engine/ops/kda_kernel_table.h"

namespace engine::ops::LAZYLORA_ISA {

using base::LAZYLORA_ISA::broadcast;
using base::LAZYLORA_ISA::kLanes;
using base::LAZYLORA_ISA::Lanes;
using base::LAZYLORA_ISA::load;
using base::LAZYLORA_ISA::zero;

// N lanes of value columns that travel along the tokens together: as many as hide the latency of a
// chain, and as the registers hold three times.
inline constexpr int kKdaColumns = base::LAZYLORA_ISA::kRegisters >= 32 ? 4 : 2;
template <int N>
struct KdaColumns {
  Lanes at[N];
};

// The columns of a row of which `count` are left; what lies beyond reads as zero and stays zero.
template <int N>
inline KdaColumns<N> kda_load(const float* row, std::int64_t count) {
  KdaColumns<N> x;
  for (int c = 0; c < N; ++c) {
    const std::int64_t left = count - c * kLanes;
    x.at[c] =
        left >= kLanes ? load(row + c * kLanes) : load(row + c * kLanes, static_cast<int>(left));
  }
  return x;
}
template <int N>
inline void kda_store(float* row, const KdaColumns<N>& x, std::int64_t count) {
  for (int c = 0; c < N; ++c) {
    const std::int64_t left = count - c * kLanes;
    if (left >= kLanes) {
      store(row + c * kLanes, x.at[c]);
    } else {
      store(row + c * kLanes, x.at[c], static_cast<int>(left));
    }
  }
}

// body(KdaColumns<N>{}, first column) over all columns of a head.
template <class Body>
inline void kda_for_columns(std::int64_t width, Body body) {
  std::int64_t first = 0;
  for (; width - first >= kKdaColumns * kLanes; first += kKdaColumns * kLanes) {
    body(KdaColumns<kKdaColumns>{}, first);
  }
  for (; first < width; first += kLanes) body(KdaColumns<1>{}, first);
}

// Columns of the state between two tokens, [width][16 N].
template <int N>
struct KdaState {
  alignas(64) float row[kKdaMaxWidth][kLanes * N];

  void read(const float* from, std::int64_t width, std::int64_t count) {
    for (std::int64_t i = 0; i < width; ++i) {
      const KdaColumns<N> x =
          from == nullptr ? KdaColumns<N>{} : kda_load<N>(from + i * width, count);
      kda_store(row[i], x, kLanes * N);
    }
  }
  void write(float* to, std::int64_t width, std::int64_t count) const {
    for (std::int64_t i = 0; i < width; ++i) {
      kda_store(to + i * width, kda_load<N>(row[i], kLanes * N), count);
    }
  }
};

// Rows of a state wherever they lie, [width][16 N] of a longer row.
struct KdaRows {
  float* at;
  std::int64_t stride;
  float* row(std::int64_t i) const { return at + i * stride; }
};

// S' = diag(alpha) S for the first token; returns u = S'^T k.
template <int N>
inline KdaColumns<N> kda_decay(const KdaHead& head, const KdaState<N>& state,
                               const KdaRows& decayed) {
  KdaColumns<N> u;
  for (int c = 0; c < N; ++c) u.at[c] = zero();
  for (std::int64_t i = 0; i < head.width; ++i) {
    const Lanes alpha_i = broadcast(head.alpha[i]);
    const Lanes k_i = broadcast(head.k[i]);
#pragma GCC unroll 4
    for (int c = 0; c < N; ++c) {
      const Lanes s = alpha_i * load(state.row[i] + c * kLanes);
      store(decayed.row(i) + c * kLanes, s);
      u.at[c] = fma(k_i, s, u.at[c]);
    }
  }
  return u;
}

// The delta write and the read of token t, S = S' + k write^T and o = S^T q, and in the same pass
// over the rows, while they are in registers, the decay for the token after it, whose u it leaves
// in `u`. S itself goes to `end` if this is the last token.
template <int N, bool kLast>
inline KdaColumns<N> kda_write(const KdaHead& head, std::int64_t t, const KdaColumns<N>& write,
                               const KdaRows& decayed, const KdaRows& decayed_next,
                               KdaState<N>* end, KdaColumns<N>& u) {
  const float* q = head.q + t * head.stride;
  const float* k = head.k + t * head.stride;
  const float* alpha_next = head.alpha + (t + 1) * head.stride;
  const float* k_next = k + head.stride;
  KdaColumns<N> o;
  for (int c = 0; c < N; ++c) o.at[c] = u.at[c] = zero();
  for (std::int64_t i = 0; i < head.width; ++i) {
    const Lanes q_i = broadcast(q[i]);
    const Lanes k_i = broadcast(k[i]);
#pragma GCC unroll 4
    for (int c = 0; c < N; ++c) {
      const Lanes s = fma(k_i, write.at[c], load(decayed.row(i) + c * kLanes));
      o.at[c] = fma(q_i, s, o.at[c]);
      if constexpr (kLast) {
        store(end->row[i] + c * kLanes, s);
      } else {
        const Lanes s_next = broadcast(alpha_next[i]) * s;
        store(decayed_next.row(i) + c * kLanes, s_next);
        u.at[c] = fma(broadcast(k_next[i]), s_next, u.at[c]);
      }
    }
  }
  return o;
}

// Consecutive tokens from `state`, which becomes the state after the last. decayed_of(t) are the
// rows that receive S' of token t; seen(t, error, o) gets e = v - S'^T k and o of each.
template <int N, class DecayedOf, class Seen>
inline void kda_walk(const KdaHead& head, std::int64_t first, KdaState<N>& state,
                     DecayedOf decayed_of, Seen seen) {
  KdaColumns<N> u = kda_decay(head, state, decayed_of(0));
  for (std::int64_t t = 0; t < head.tokens; ++t) {
    const KdaColumns<N> v = kda_load<N>(head.v + t * head.stride + first, head.width - first);
    const Lanes beta = broadcast(head.beta[t * head.beta_stride]);
    KdaColumns<N> error, write;
    for (int c = 0; c < N; ++c) {
      error.at[c] = v.at[c] - u.at[c];
      write.at[c] = beta * error.at[c];
    }
    const KdaColumns<N> o =
        t + 1 < head.tokens
            ? kda_write<N, false>(head, t, write, decayed_of(t), decayed_of(t + 1), nullptr, u)
            : kda_write<N, true>(head, t, write, decayed_of(t), {}, &state, u);
    seen(t, error, o);
  }
}

// `count` tokens of a head from token t on.
inline KdaHead kda_part(const KdaHead& head, std::int64_t t, std::int64_t count) {
  KdaHead part = head;
  part.q += t * head.stride;
  part.k += t * head.stride;
  part.v += t * head.stride;
  part.alpha += t * head.stride;
  part.beta += t * head.beta_stride;
  part.tokens = count;
  return part;
}

inline void kda_forward(const KdaHead& head, const float* start, std::int64_t chunk, float* saved,
                        std::int64_t saved_stride, float* end, float* o) {
  kda_for_columns(head.width, [&]<int N>(KdaColumns<N>, std::int64_t first) {
    const std::int64_t count = head.width - first;
    KdaState<N> state;
    state.read(start == nullptr ? nullptr : start + first, head.width, count);
    const KdaRows in_place = {&state.row[0][0], kLanes * N};
    for (std::int64_t t = 0; t < head.tokens; t += chunk) {
      if (saved != nullptr) {
        state.write(saved + t / chunk * saved_stride + first, head.width, count);
      }
      const std::int64_t tokens = head.tokens - t < chunk ? head.tokens - t : chunk;
      float* to = o + t * head.stride + first;
      kda_walk(
          kda_part(head, t, tokens), first, state, [&](std::int64_t) { return in_place; },
          [&](std::int64_t at, const KdaColumns<N>&, const KdaColumns<N>& out) {
            kda_store(to + at * head.stride, out, count);
          });
    }
    if (end != nullptr) state.write(end + first, head.width, count);
  });
}

// What the backward pass of a chunk remembers of its tokens, and its rows of the token at hand; all
// rows are `padded` long.
struct KdaReplay {
  float* decayed;  // [tokens][width] S'
  float* error;    // [tokens] e = v - S'^T k
  float* d_o;      // the token's d_o, padded with zeros
  float* write;    // beta e
  float* d_error;  // beta G^T k
};

inline void kda_replay(const KdaHead& head, const float* start, const KdaReplay& replay) {
  kda_for_columns(head.width, [&]<int N>(KdaColumns<N>, std::int64_t first) {
    KdaState<N> state;
    state.read(start + first, head.width, head.width - first);
    kda_walk(
        head, first, state,
        [&](std::int64_t t) {
          return KdaRows{replay.decayed + t * head.width * head.padded + first, head.padded};
        },
        [&](std::int64_t t, const KdaColumns<N>& error, const KdaColumns<N>&) {
          kda_store(replay.error + t * head.padded + first, error, kLanes * N);
        });
  });
}

// G += q d_o^T;  r = G^T k;  d_v = d_error = beta r;  returns d_beta = <r, e>.
inline float kda_enter_token(const KdaHead& head, std::int64_t t, const float* d_o, float* gradient,
                             const KdaReplay& replay, float* d_v) {
  const float* q = head.q + t * head.stride;
  const float* k = head.k + t * head.stride;
  const Lanes beta = broadcast(head.beta[t * head.beta_stride]);
  Lanes d_beta = zero();
  kda_for_columns(head.width, [&]<int N>(KdaColumns<N>, std::int64_t first) {
    const std::int64_t count = head.width - first;
    const KdaColumns<N> d_out = kda_load<N>(d_o + first, count);
    KdaColumns<N> r;
    for (int c = 0; c < N; ++c) r.at[c] = zero();
    for (std::int64_t i = 0; i < head.width; ++i) {
      float* row = gradient + i * head.padded + first;
      for (int c = 0; c < N; ++c) {
        const Lanes g = fma(broadcast(q[i]), d_out.at[c], load(row + c * kLanes));
        store(row + c * kLanes, g);
        r.at[c] = fma(broadcast(k[i]), g, r.at[c]);
      }
    }
    const KdaColumns<N> error = kda_load<N>(replay.error + t * head.padded + first, kLanes * N);
    KdaColumns<N> write;
    KdaColumns<N> d_error;
    for (int c = 0; c < N; ++c) {
      d_beta = fma(r.at[c], error.at[c], d_beta);
      write.at[c] = beta * error.at[c];
      d_error.at[c] = beta * r.at[c];
    }
    kda_store(replay.d_o + first, d_out, kLanes * N);
    kda_store(replay.write + first, write, kLanes * N);
    kda_store(replay.d_error + first, d_error, kLanes * N);
    kda_store(d_v + first, d_error, count);
  });
  return sum(d_beta);
}

// Row by row of the state: d_q = S d_o;  d_k = G write - S' d_error;  dS' = G - k d_error^T;
// d_g = rowsum(dS' S'), which is alpha d_alpha without S_{t-1};  G = diag(alpha) dS'.
inline void kda_leave_token(const KdaHead& head, std::int64_t t, float* gradient,
                            const KdaReplay& replay, const KdaHeadGradients& out) {
  const std::int64_t at = t * head.stride;
  for (std::int64_t i = 0; i < head.width; ++i) {
    const float* decayed = replay.decayed + (t * head.width + i) * head.padded;
    float* row = gradient + i * head.padded;
    const Lanes alpha = broadcast(head.alpha[at + i]);
    const Lanes k = broadcast(head.k[at + i]);
    const Lanes minus_k = broadcast(-head.k[at + i]);
    Lanes d_q = zero();
    Lanes through_write = zero();
    Lanes through_error = zero();
    Lanes d_g = zero();
    for (std::int64_t c = 0; c < head.padded; c += kLanes) {
      const Lanes s = load(decayed + c);
      const Lanes g = load(row + c);
      const Lanes write = load(replay.write + c);
      const Lanes d_error = load(replay.d_error + c);
      d_q = fma(fma(k, write, s), load(replay.d_o + c), d_q);
      through_write = fma(g, write, through_write);
      through_error = fma(s, d_error, through_error);
      const Lanes d_decayed = fma(minus_k, d_error, g);
      d_g = fma(d_decayed, s, d_g);
      store(row + c, alpha * d_decayed);
    }
    out.q[at + i] = sum(d_q);
    out.k[at + i] = sum(through_write) - sum(through_error);
    out.g[at + i] = sum(d_g);
  }
}

inline void kda_backward(const KdaHead& head, const float* start, const float* d_o, float* gradient,
                         float* scratch, const KdaHeadGradients& out) {
  KdaReplay replay;
  replay.decayed = scratch;
  replay.error = replay.decayed + head.tokens * head.width * head.padded;
  replay.d_o = replay.error + head.tokens * head.padded;
  replay.write = replay.d_o + head.padded;
  replay.d_error = replay.write + head.padded;
  kda_replay(head, start, replay);
  for (std::int64_t t = head.tokens - 1; t >= 0; --t) {
    const std::int64_t at = t * head.stride;
    out.beta[t * head.beta_stride] =
        kda_enter_token(head, t, d_o + at, gradient, replay, out.v + at);
    kda_leave_token(head, t, gradient, replay, out);
  }
}

inline void kda_gate(const float* z, const float* dt_bias, float a_log, float bound, float* g,
                     float* alpha, std::int64_t n) {
  const Lanes rate = exp(broadcast(a_log));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const KdaColumns<1> in = kda_load<1>(z + i, n - i);
    const KdaColumns<1> bias = kda_load<1>(dt_bias + i, n - i);
    const KdaColumns<1> log_decay{broadcast(bound) * sigmoid(rate * (in.at[0] + bias.at[0])).s};
    kda_store(g + i, log_decay, n - i);
    kda_store(alpha + i, KdaColumns<1>{exp(log_decay.at[0])}, n - i);
  }
}

inline void kda_gate_backward(const float* d_g, const float* z, const float* dt_bias, float a_log,
                              float bound, float* d_z, std::int64_t n) {
  const Lanes rate = exp(broadcast(a_log));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const KdaColumns<1> in = kda_load<1>(z + i, n - i);
    const KdaColumns<1> bias = kda_load<1>(dt_bias + i, n - i);
    const KdaColumns<1> up = kda_load<1>(d_g + i, n - i);
    // s c, not s (1 - s): where the gate is saturated, 1 - s has few bits left.
    const auto [s, c] = sigmoid(rate * (in.at[0] + bias.at[0]));
    kda_store(d_z + i, KdaColumns<1>{up.at[0] * (broadcast(bound) * rate) * (s * c)}, n - i);
  }
}

inline constexpr KdaKernels kKdaKernels = {&kda_forward, &kda_backward, &kda_gate,
                                           &kda_gate_backward};

}  // namespace engine::ops::LAZYLORA_ISA
