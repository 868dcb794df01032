#if !defined(__x86_64__) && !defined(__aarch64__)

#include "backends/cpu/cpu_features.h"

namespace metal_marlin::cpu {

CpuFeatures detect_hardware(uint32_t) {
  CpuFeatures out;
  out.model = "unknown processor";
  return out;
}

}  // namespace metal_marlin::cpu

#endif
