// A GPU as a backend, over any device that speaks the language of device/device.h.
#pragma once

#include <memory>

#include "backends/gpu/plan.h"
#include "core/backend.h"
#include "device/device.h"

namespace metal_marlin::gpu {

struct GpuOptions {
  /// Kernels are compared with the CPU before they serve. Off only where a test's device computes
  /// nothing.
  bool probe = true;
  /// The device's kernels and packing; it must outlive the backend.
  const Policy* policy = &simdgroup_policy();
  /// Rows of A of one dispatch. Less only where tests want several blocks of few rows.
  int64_t most_rows = kMostRows;
};

Result<std::unique_ptr<Backend>> make_gpu_backend(std::shared_ptr<device::Device> device,
                                                  const BackendOptions& options,
                                                  const GpuOptions& gpu = {});

}  // namespace metal_marlin::gpu
