#include "engine/ops/elementwise_kernel.h"
#include "engine/ops/kda_kernel.h"
#include "engine/ops/kernels.h"
#include "engine/ops/matmul_kernel.h"
#include "engine/ops/mla_kernel.h"

namespace engine::ops {

const Kernels kKernelsAvx2 = {"avx2", avx2::kMatmulKernels, avx2::kElementwiseKernels,
                              avx2::kKdaKernels, avx2::kMlaKernels};

}  // namespace engine::ops
