// The kernels and the packing of NVIDIA GPUs.
#pragma once

#include "backends/gpu/kernels.h"

namespace metal_marlin::cuda {

/// The function constants that a form of weights fixes (shaders/common/cuda_parameters.h).
struct Form {
  uint32_t scale, zero, shift;
  bool operator==(const Form&) const = default;
};
/// The forms that kernels of these codes and 16-bit activations are compiled for.
std::span<const Form> forms_of(gpu::KernelCodes codes);

const gpu::Policy& policy();

}  // namespace metal_marlin::cuda
