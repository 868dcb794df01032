#include "kernel_rows.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "campaigns.h"

namespace shaders {

const std::vector<KernelRow>& kernel_rows() {
#define MARLIN_GPU_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads) \
  {family, suffix, m_min, m_max, rows, columns, threads},
#define MARLIN_GPU_ALTERNATIVE(...)
#define MARLIN_GPU_HELPER(name, columns)
  static const std::vector<KernelRow> rows = {
#include "backends/gpu/kernels.inc"
  };
#undef MARLIN_GPU_PRODUCT
#undef MARLIN_GPU_ALTERNATIVE
  return rows;
}

const std::vector<KernelRow>& alternative_rows() {
#define MARLIN_GPU_PRODUCT(...)
#define MARLIN_GPU_ALTERNATIVE(family, suffix, m_min, m_max, rows, columns, threads) \
  {family, suffix, m_min, m_max, rows, columns, threads},
  static const std::vector<KernelRow> rows = {
#include "backends/gpu/kernels.inc"
  };
#undef MARLIN_GPU_PRODUCT
#undef MARLIN_GPU_ALTERNATIVE
#undef MARLIN_GPU_HELPER
  return rows;
}

std::vector<KernelRow> alternatives_to_run() {
  constexpr std::string_view kFew[] = {"m1_n64_s2", "m4_n32_s8", "m16_n64_direct", "m32_n128_direct", "m32_n64_threadgroup"};
  std::vector<KernelRow> rows = alternative_rows();
  std::erase_if(rows, [&](const KernelRow& row) {
    return !whole_campaigns() && std::find(std::begin(kFew), std::end(kFew), row.suffix) == std::end(kFew);
  });
  return rows;
}

}  // namespace shaders
