// A GPU as a backend, over any device that speaks the language of device/device.h.
#pragma once

#include <memory>

#include "core/backend.h"
#include "device/device.h"

namespace metal_marlin::gpu {

struct GpuOptions {
  /// Kernels are compared with the CPU before they serve. Off only where a test's device computes nothing.
  bool probe = true;
};

Result<std::unique_ptr<Backend>> make_gpu_backend(std::shared_ptr<device::Device> device, const BackendOptions& options,
                                                  const GpuOptions& gpu = {});

}  // namespace metal_marlin::gpu
