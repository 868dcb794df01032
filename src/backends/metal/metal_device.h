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

/// A file of kernels: text, and perhaps what a compiler made of it for this system when the library
/// was built. Everything must outlive the device.
struct ShaderFile {
  /// What the names of its kernels begin with, up to the first '_' of a name, separated by spaces.
  /// A file of kernels whose names end with "_tensor" has that word instead of all others.
  std::string_view kernels;
  /// With its headers in the places of their #includes. Metal compiles it at run time, for one
  /// kernel at a time (kernel_text.h), where `library` is empty or does not load.
  std::string_view text;
  std::span<const std::byte> library = {};  ///< the contents of a .metallib

  bool has_tensors() const { return kernels == "tensor" || kernels == "nax"; }
};
using Shaders = std::span<const ShaderFile>;
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
