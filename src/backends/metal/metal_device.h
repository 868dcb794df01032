// Apple GPUs behind the device seam: plain C++ for the rest of the library; Objective-C++ is in the
// .mm files only.
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

/// The kernels: compiled (the contents of a .metallib), or, where that is empty, as sources that
/// Metal compiles at run time, each at the first call for a kernel that is not in those before it.
/// All of it must outlive the device.
struct Shaders {
  std::span<const std::byte> library;
  std::span<const std::string_view> sources;
  /// Of the kernels whose names end with "_tensor", in the language of Metal 4. Where they do not
  /// compile only they are missing.
  std::span<const std::byte> tensor_library;
  std::span<const std::string_view> tensor_sources;
};
/// Those that were built into this library.
Shaders embedded_shaders();

struct DeviceOptions {
  uint32_t index = 0;      ///< among the system's devices, when `native` is null
  void* native = nullptr;  ///< id<MTLDevice> of the host, retained
  Shaders shaders;
  std::string cache_folder;  ///< of compiled pipelines; empty: none is kept. user_cache_folder() is
                             ///< the usual one
  Logger logger{};
};

/// What the system lists, usable or not.
uint32_t count_devices();
/// MARLIN_E_NO_DEVICE with the reason when it is not there or cannot run this library's kernels.
Result<device::Capabilities> describe(uint32_t index);
/// Buffers, kernels and streams may outlive the device.
Result<std::unique_ptr<device::Device>> create_device(const DeviceOptions& options);
/// Where this user's caches are, with "metal-marlin" appended; it need not be there. Empty when the
/// system names none.
std::string user_cache_folder();

}  // namespace metal_marlin::metal
