// The rows of src/backends/gpu/kernels.inc, for tests of the shaders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shaders {

/// A row of src/backends/gpu/kernels.inc.
struct KernelRow {
  const char *family, *suffix;
  int64_t m_min, m_max, rows, columns;
  uint32_t threads;
  bool tensor() const { return std::string(suffix).ends_with("_tensor"); }
  bool shares_a() const { return std::string(suffix).ends_with("_threadgroup"); }
  bool matrix() const { return std::string(family) == "regdecode"; }
};
const std::vector<KernelRow>& kernel_rows();

}  // namespace shaders
