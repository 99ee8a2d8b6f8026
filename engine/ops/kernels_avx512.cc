#include "engine/ops/elementwise_kernel.h"
#include "engine/ops/kda_kernel.h"
#include "engine/ops/kernels.h"
#include "engine/ops/matmul_kernel.h"
#include "engine/ops/mla_kernel.h"

namespace engine::ops {

const Kernels kKernelsAvx512 = {"avx512", avx512::kMatmulKernels, avx512::kElementwiseKernels,
                                avx512::kKdaKernels, avx512::kMlaKernels};

}  // namespace engine::ops
