#include "backends/metal/metal_backend.h"

#include <algorithm>
#include <cstdio>

#include "backends/gpu/gpu_backend.h"
#include "backends/gpu/kernels.h"
#include "backends/metal/metal_device.h"
#include "base/cache_folder.h"

namespace metal_marlin::metal {

uint32_t device_count() { return std::max(count_devices(), 1u); }

void describe_device(uint32_t index, marlin_device_info& out) {
  const auto found = describe(index);
  std::snprintf(out.name, sizeof out.name, "%s",
                found.ok() ? found.value().name.c_str() : "Apple GPU");
  if (found.ok()) {
    std::snprintf(out.isa_or_arch, sizeof out.isa_or_arch, "%s",
                  found.value().architecture.c_str());
    out.memory_bytes = found.value().memory_bytes;
  }
  std::snprintf(out.why_not, sizeof out.why_not, "%.*s", int{sizeof out.why_not} - 1,
                found.status().message());
}

bool has_kernel(std::string_view name) {
  return gpu::product_kernel(gpu::simdgroup_policy(), name) != nullptr;
}

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  DeviceOptions device_options;
  device_options.index = static_cast<uint32_t>(options.device_index);
  device_options.native = options.native_device;
  device_options.shaders = embedded_shaders();
  device_options.cache_folder = user_cache_folder();
  device_options.logger = options.logger;
  MARLIN_ASSIGN(std::shared_ptr<device::Device> made, create_device(device_options));
  return gpu::make_gpu_backend(std::move(made), options);
}

}  // namespace metal_marlin::metal
