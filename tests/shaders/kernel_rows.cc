#include "kernel_rows.h"

namespace shaders {

const std::vector<KernelRow>& kernel_rows() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> made;
    for (const metal_marlin::gpu::ProductKernel& kernel : metal_marlin::gpu::simdgroup_policy().kernels) {
      const size_t star = kernel.pattern.find("_*_");
      made.push_back({kernel, std::string(kernel.pattern.substr(0, star)), std::string(kernel.pattern.substr(star + 3))});
    }
    return made;
  }();
  return rows;
}

}  // namespace shaders
