// In place of the Metal backend of the library: a GPU of the test-bed that has few kernels, of which one computes wrongly, and
// that flushes float32 subnormals.
#include <cstdio>

#include "backends/gpu/gpu_backend.h"
#include "backends/gpu/kernels.h"
#include "backends/metal/metal_backend.h"
#include "testbed_device.h"

namespace {

using namespace device_test;

/// The few that are compiled in a test's time; each kind of codes has one.
constexpr std::string_view kKernels[] = {"gemv_fp4_f16_m1", "gemv_i8_f16_m1", "gemv_u4_f16_m1",
                                         "gemv_u4_f16_m2",  "gemv_u4_f32_m1", "regdecode_u4_f16_m32_n128_threadgroup"};

class FewKernels final : public dv::Device {
 public:
  const dv::Capabilities& capabilities() const override { return bed_.capabilities(); }
  Result<dv::BufferRef> allocate(uint64_t bytes, dv::Placement placement, const char* label) override {
    return bed_.allocate(bytes, placement, label);
  }
  Result<dv::BufferRef> wrap(void* host, uint64_t bytes, dv::Placement placement) override {
    return bed_.wrap(host, bytes, placement);
  }
  Result<dv::BufferRef> wrap_native(void* native) override { return bed_.wrap_native(native); }
  Result<dv::KernelRef> kernel(std::string_view name, std::span<const dv::Constant> constants) override {
    const bool product = name.starts_with("gemv_") || name.starts_with("regdecode_");
    for (const std::string_view known : kKernels)
      if (!product || name == known) return bed_.kernel(name, constants);
    return Status::error(MARLIN_E_NOT_FOUND, "no kernel %.*s", static_cast<int>(name.size()), name.data());
  }
  Result<std::unique_ptr<dv::Stream>> stream(const dv::StreamSource& source) override { return bed_.stream(source); }

 private:
  TestbedDevice bed_{{.flush_to_zero = true,
                      .changes = {{"regdecode.metal", "w[t][i].thread_elements()[0] = value[t].x",
                                   "w[t][i].thread_elements()[0] = value[t].y"}}}};
};

}  // namespace

namespace metal_marlin::metal {

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) { std::snprintf(out.name, sizeof out.name, "test-bed"); }

bool has_kernel(std::string_view name) { return gpu::product_kernel(gpu::simdgroup_policy(), name) != nullptr; }

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  return gpu::make_gpu_backend(std::make_shared<FewKernels>(), options);
}

}  // namespace metal_marlin::metal
