#include "backends/metal/metal_backend.h"

#include <algorithm>
#include <cstdio>

#include "backends/metal/metal_device.h"

namespace metal_marlin::metal {
namespace {

constexpr char kNoProducts[] = "products on Apple GPUs are not in this version";

}  // namespace

uint32_t device_count() { return std::max(count_devices(), 1u); }

void describe_device(uint32_t index, marlin_device_info& out) {
  const auto found = describe(index);
  std::snprintf(out.name, sizeof out.name, "%s", found.ok() ? found.value().name.c_str() : "Apple GPU");
  if (found.ok()) {
    std::snprintf(out.isa_or_arch, sizeof out.isa_or_arch, "%s", found.value().architecture.c_str());
    out.memory_bytes = found.value().memory_bytes;
  }
  std::snprintf(out.why_not, sizeof out.why_not, "%s", found.ok() ? kNoProducts : found.status().message());
}

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  DeviceOptions device;
  device.index = static_cast<uint32_t>(options.device_index);
  device.native = options.native_device;
  device.shaders = embedded_shaders();
  device.cache_folder = user_cache_folder();
  device.logger = options.logger;
  MARLIN_ASSIGN(const auto made, create_device(device));
  return Status::error(MARLIN_E_NO_DEVICE, "%s: %s", made->capabilities().name.c_str(), kNoProducts);
}

}  // namespace metal_marlin::metal
