// The results of the library's own check of its kernels on each GPU: before a kernel serves, its
// product is compared with float64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "json.h"
#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// The kernel that serves products of a format with half activations at M.
struct ServingKernel {
  marlin_format format;
  int64_t m;
  std::string kernel, probe, pipeline;
  std::string refused;  ///< the kernel that should serve but computes wrongly here, or ""
};

struct KernelChecks {
  marlin_device_info device;
  std::vector<ServingKernel> kernels;
  std::vector<std::string> messages;  ///< of the library's log about refused kernels
  std::string failure;                ///< why there are no more, or ""
};

/// Checks every usable GPU. This may take seconds, because kernels are compiled.
std::vector<KernelChecks> check_kernels();
/// Prints a table with a row for each format and refused kernel, and the messages.
void print(const KernelChecks& checks);
Json to_json(const KernelChecks& checks);

}  // namespace metal_marlin::tools
