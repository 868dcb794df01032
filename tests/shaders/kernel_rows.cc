#include "kernel_rows.h"

namespace shaders {

const std::vector<KernelRow>& kernel_rows() {
#define MARLIN_GPU_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads) \
  {family, suffix, m_min, m_max, rows, columns, threads},
#define MARLIN_GPU_HELPER(name, columns)
  static const std::vector<KernelRow> rows = {
#include "backends/gpu/kernels.inc"
  };
#undef MARLIN_GPU_PRODUCT
#undef MARLIN_GPU_HELPER
  return rows;
}

}  // namespace shaders
