#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/adapter/exported.h"
#include "engine/adapter/module.h"
#include "engine/adapter/native.h"

namespace engine::adapter {

struct DeltaProof {
  std::int64_t modules = 0;   // native ones
  std::int64_t matrices = 0;  // frozen matrices of the checkpoint that they stand for
  std::int64_t values = 0;    // compared
  // BF16 only. Values that rounding changed, and its largest effect on a module's change,
  //   |round(B) round(A) - B A| / |B A|   (Frobenius; 0 where B A = 0)
  std::int64_t rounded = 0;
  double worst = 0.0;
  std::string worst_module;
};

// That the file does to every module what the native adapter does: for each frozen matrix of the
// checkpoint, the reader's scale * B A has the same bits as the native (alpha/r) B A, with A and B
// first rounded to bfloat16 if the file is BF16.
//
// Shown by the factors. The reader's scale, A and B are compared with the native ones bit for bit,
// every expert's; equal factors give equal products in whatever order anybody sums them, which
// comparing two products summed in one order would not show. Cost: one read of the file.
//
// Accuracy  `rounded` is exact; `worst` is a double sum
// Errors    Error naming file, tensor, place and the two values that disagree
DeltaProof prove_delta(const Exported& exported, const NativeAdapter& native,
                       std::span<const Module> modules);

}  // namespace engine::adapter
