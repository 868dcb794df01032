#include "backends/cuda/policy.h"

namespace metal_marlin::cuda {
namespace {

// 2:4 sparse codes have no kernels: they are refused when they are packed.
#define MARLIN_CUDA_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads, groups) \
  {{MARLIN_GPU_ACTIVATIONS(family "_fp4_", suffix),                                       \
    MARLIN_GPU_ACTIVATIONS(family "_u4_", suffix),                                        \
    MARLIN_GPU_ACTIVATIONS(family "_i8_", suffix),                                        \
    {},                                                                                   \
    {}},                                                                                  \
   m_min,                                                                                 \
   m_max,                                                                                 \
   rows,                                                                                  \
   columns,                                                                               \
   threads,                                                                               \
   true,                                                                                  \
   false,                                                                                 \
   groups},
constexpr gpu::ProductKernel kProducts[] = {
#include "backends/cuda/kernels.inc"
};
#undef MARLIN_CUDA_PRODUCT
static_assert(std::size(kProducts) <= gpu::kMostProductKernels);

}  // namespace

const gpu::Policy& policy() {
  static constexpr gpu::Policy kPolicy{kProducts, gpu::SlotOrder::mma};
  return kPolicy;
}

}  // namespace metal_marlin::cuda
