// NVIDIA GPUs behind the device interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "device/device.h"

namespace metal_marlin::cuda {

/// Kernels that were compiled together: those whose name contains "_NAME_", or, of the last module
/// of a library, all others.
struct KernelModule {
  std::string_view name;  ///< "fp4_bf16"
  std::span<const std::byte> image;
};

/// Compiled kernels. Everything must outlive the device and what it made.
struct Kernels {
  std::span<const KernelModule> modules;
  int cuda_version = 0;  ///< of the driver that the images need, at least: 13000 is 13.0
};
/// The kernels that are built into this library; no modules where it was built without a compiler.
Kernels embedded_kernels();

struct DeviceOptions {
  uint32_t index = 0;      ///< among the driver's devices, when `native` is null
  void* native = nullptr;  ///< CUcontext of the host, which must outlive the device
#if defined(_WIN32)
  const char* driver = "nvcuda.dll";
#else
  const char* driver = "libcuda.so.1";
#endif
  Kernels kernels;
};

/// The number of devices that the driver lists, usable or not; 0 without a driver.
uint32_t count_devices(const DeviceOptions& options);
/// MARLIN_E_NO_DEVICE with the reason if the device does not exist or cannot run our kernels.
Result<device::Capabilities> describe(const DeviceOptions& options);
/// Buffers, kernels and streams may outlive the device.
Result<std::unique_ptr<device::Device>> create_device(const DeviceOptions& options);

}  // namespace metal_marlin::cuda
