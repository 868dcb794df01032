// The kernels and the packing of NVIDIA GPUs.
#pragma once

#include "backends/gpu/kernels.h"

namespace metal_marlin::cuda {

/// The tiles of Hopper that a form of weights has (shaders/common/cuda_parameters.h).
enum class FormTiles : uint8_t { rounded, none, mma, wgmma };
/// The function constants that a form fixes.
struct Form {
  uint32_t scale, zero, shift;
  FormTiles tiles;
};
/// The form for which kernels of these codes and 16-bit activations are compiled, or null.
const Form* find_form(gpu::KernelCodes codes, uint32_t scale, uint32_t zero, uint32_t shift);

const gpu::Policy& policy();

}  // namespace metal_marlin::cuda
