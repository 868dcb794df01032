#include "backends/cuda/cuda_backend.h"

#include <algorithm>
#include <cstdio>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/policy.h"
#include "backends/gpu/gpu_backend.h"

namespace metal_marlin::cuda {
namespace {

DeviceOptions device_options(uint32_t index) {
  DeviceOptions options;
  options.index = index;
  options.kernels = embedded_kernels();
  return options;
}

}  // namespace

uint32_t device_count() {
  const DeviceOptions options = device_options(0);
  if (options.kernels.modules.empty()) return 1;
  return std::max(count_devices(options), 1u);
}

void describe_device(uint32_t index, marlin_device_info& out) {
  const auto found = describe(device_options(index));
  std::snprintf(out.name, sizeof out.name, "%s",
                found.ok() ? found.value().name.c_str() : "NVIDIA GPU");
  if (found.ok()) {
    std::snprintf(out.isa_or_arch, sizeof out.isa_or_arch, "%s",
                  found.value().architecture.c_str());
    out.memory_bytes = found.value().memory_bytes;
  }
  std::snprintf(out.why_not, sizeof out.why_not, "%.*s", int{sizeof out.why_not} - 1,
                found.status().message());
}

bool has_kernel(std::string_view name) { return gpu::product_kernel(policy(), name) != nullptr; }

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  DeviceOptions chosen = device_options(static_cast<uint32_t>(options.device_index));
  chosen.native = options.native_device;
  auto made = create_device(chosen);
  if (!made.ok()) {
    const Status s = made.status();
    return Status::error(s.code(), "CUDA: %s", s.message()).with_native(s.native_code());
  }
  gpu::GpuOptions gpu;
  gpu.policy = &policy();
  return gpu::make_gpu_backend(made.take(), options, gpu);
}

}  // namespace metal_marlin::cuda
