// The GPUs that the library could use and this backend does not.
#pragma once

#include <metal_marlin/metal_marlin.h>

#include <string>

namespace marlin_ggml {

/// A line for the log about a usable GPU, and "" about any other device. README.md has the reasons.
inline std::string why_unused(const marlin_device_info& device) {
  if (device.backend == MARLIN_BACKEND_CPU || device.why_not[0] != '\0') return {};
  return std::string(device.name) +
         " is not used: the products run on the CPU, because a GPU that only multiplies would wait "
         "for copies between all other operations";
}

}  // namespace marlin_ggml
