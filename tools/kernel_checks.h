// What the library's own check of its kernels finds on each GPU: before a kernel serves, its
// product is compared with float64.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// Which kernel serves products of a format, half activations, at M.
struct ServingKernel {
  marlin_format format;
  int64_t m;
  std::string kernel, probe;
  std::string refused;  ///< the kernel that ought to serve and miscomputes here, or ""
};

struct KernelChecks {
  marlin_device_info device;
  std::vector<ServingKernel> kernels;
  std::vector<std::string> messages;  ///< that the library logged: what a refused kernel computed
  std::string failure;                ///< why there are no more, or ""
};

/// Of every usable GPU; may take seconds, as kernels are compiled.
std::vector<KernelChecks> check_kernels();
/// A table, a row a format and refused kernel, and the messages.
void print(const KernelChecks& checks);
nlohmann::ordered_json to_json(const KernelChecks& checks);

}  // namespace metal_marlin::tools
