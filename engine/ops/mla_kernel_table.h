#pragma once

#include <cstdint>

namespace engine::ops {

// Keys and values of one head from a document's first token on.
struct MlaHead {
  const float* kv;  // rows of nope + value floats, kv_stride apart
  const float* kr;  // rows of rope floats
  std::int64_t kv_stride;
  std::int64_t nope;
  std::int64_t rope;
  std::int64_t value;
  float scale;
};

// One query against the first `count` positions of its document; formulas and orders in mla.h.
struct MlaKernels {
  // p [count] (=)   o [value] (=)
  void (*forward)(const MlaHead& head, const float* q, std::int64_t count, float* p, float* o);
  // p, d_p [count] (=)   d_q [nope+rope] (=)   d_kv as kv (+=)   d_kr [count][rope] (+=)
  void (*backward)(const MlaHead& head, const float* q, const float* d_o, std::int64_t count,
                   float* p, float* d_p, float* d_q, float* d_kv, float* d_kr);
};

}  // namespace engine::ops
