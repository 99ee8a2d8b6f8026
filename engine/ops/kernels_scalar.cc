#include "engine/ops/elementwise_kernel.h"
#include "engine/ops/kda_kernel.h"
#include "engine/ops/kernels.h"
#include "engine/ops/matmul_kernel.h"
#include "engine/ops/mla_kernel.h"

namespace engine::ops {

const Kernels kKernelsScalar = {"scalar", scalar::kMatmulKernels, scalar::kElementwiseKernels,
                                scalar::kKdaKernels, scalar::kMlaKernels};

}  // namespace engine::ops
