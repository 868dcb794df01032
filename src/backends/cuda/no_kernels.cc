// Stands in for the kernels in a library that was built without a CUDA compiler.
#include "backends/cuda/cuda_device.h"

namespace metal_marlin::cuda {

Kernels embedded_kernels() { return {}; }

}  // namespace metal_marlin::cuda
