// A Metal backend whose GPU is the shader test-bed, in place of the one that is absent where there is no Metal.
#include "backends/gpu/gpu_backend.h"
#include "backends/gpu/kernels.h"
#include "backends/metal/metal_backend.h"
#include "testbed_device.h"

#include <cstdio>

namespace metal_marlin::metal {
namespace {

/// One for all contexts of a process, so that each kernel is compiled once.
std::shared_ptr<device_test::TestbedDevice> testbed() {
  static const auto device = std::make_shared<device_test::TestbedDevice>();
  return device;
}

}  // namespace

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) {
  const device::Capabilities& capabilities = testbed()->capabilities();
  std::snprintf(out.name, sizeof out.name, "%s", capabilities.name.c_str());
  std::snprintf(out.isa_or_arch, sizeof out.isa_or_arch, "%s", capabilities.architecture.c_str());
  out.memory_bytes = capabilities.memory_bytes;
}

bool has_kernel(std::string_view name) { return gpu::product_kernel(gpu::simdgroup_policy(), name) != nullptr; }

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  if (options.device_index != 0) return Status::error(MARLIN_E_NO_DEVICE, "Metal: there is no device %d", options.device_index);
  if (options.native_device != nullptr) return Status::error(MARLIN_E_ARGUMENT, "native_device is no MTLDevice");
  return gpu::make_gpu_backend(testbed(), options, {.probe = false});
}

}  // namespace metal_marlin::metal
