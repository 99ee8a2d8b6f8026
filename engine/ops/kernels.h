#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ops/elementwise_kernel_table.h"
#include "engine/ops/kda_kernel_table.h"
#include "engine/ops/matmul_kernel_table.h"
#include "engine/ops/mla_kernel_table.h"

namespace engine::ops {

// The inner loops, written once over sixteen lanes (engine/base/lanes.h) and compiled for every
// instruction set by kernels_scalar.cc, kernels_avx2.cc and kernels_avx512.cc. All give the same
// bits.
struct Kernels {
  const char* instruction_set;
  MatmulKernels matmul;
  ElementwiseKernels elementwise;
  KdaKernels kda;
  MlaKernels mla;
};

extern const Kernels kKernelsScalar;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;

// The kernels in use: the widest set that this processor has, unless choose_instruction_set was
// called.
const Kernels& kernels() noexcept;

// What this processor can run, narrowest first: "scalar", "avx2", "avx512".
std::vector<std::string> instruction_sets();

// To be called before work begins, or between steps by a check. False if the processor lacks it.
bool choose_instruction_set(std::string_view name);

}  // namespace engine::ops
