// The kernels and the packing of NVIDIA GPUs.
#pragma once

#include "backends/gpu/kernels.h"

namespace metal_marlin::cuda {

const gpu::Policy& policy();

}  // namespace metal_marlin::cuda
