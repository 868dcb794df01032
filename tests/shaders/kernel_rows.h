// The rows of src/backends/gpu/kernels.inc, for tests of the shaders.
#pragma once

#include <string>
#include <vector>

#include "backends/gpu/kernels.h"

namespace shaders {

/// A row, with the parts of its names before and after the codes and the activation.
struct KernelRow : metal_marlin::gpu::ProductKernel {
  std::string family, suffix;
  bool tensor() const { return (features & metal_marlin::gpu::kTensor) != 0; }
  bool nax() const { return suffix.ends_with("_nax"); }
  bool matrix() const { return family == "regdecode"; }
  bool shares_a() const { return suffix.ends_with("_threadgroup"); }
};
const std::vector<KernelRow>& kernel_rows();

}  // namespace shaders
