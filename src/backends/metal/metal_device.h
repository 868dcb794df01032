// Apple GPUs behind the device interface. This header is plain C++ for the rest of the library;
// Objective-C++ is only in the .mm files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/status.h"
#include "device/device.h"

namespace metal_marlin::metal {

/// The kernels: compiled (the contents of a .metallib, or nothing) and sources that Metal compiles
/// at run time. A source is compiled at the first request for a kernel that neither the library nor
/// the sources before it have. Everything must outlive the device.
struct Shaders {
  std::span<const std::byte> library;
  std::span<const std::string_view> sources;
  /// The kernels whose names end with "_tensor", in the language of Metal 4. If they do not
  /// compile, only these kernels are missing.
  std::span<const std::byte> tensor_library;
  std::span<const std::string_view> tensor_sources;
};
/// The shaders that are built into this library.
Shaders embedded_shaders();

struct DeviceOptions {
  uint32_t index = 0;      ///< among the system's devices, when `native` is null
  void* native = nullptr;  ///< id<MTLDevice> of the host, retained
  Shaders shaders;
  std::string cache_folder;  ///< for compiled pipelines; empty: none are kept. Usually
                             ///< user_cache_folder()
  Logger logger{};
};

/// The number of devices that the system lists, usable or not.
uint32_t count_devices();
/// MARLIN_E_NO_DEVICE with the reason if the device does not exist or cannot run our kernels.
Result<device::Capabilities> describe(uint32_t index);
/// Buffers, kernels and streams may outlive the device.
Result<std::unique_ptr<device::Device>> create_device(const DeviceOptions& options);

}  // namespace metal_marlin::metal
