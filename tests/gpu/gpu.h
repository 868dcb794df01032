// A context on the shader test-bed, on which the trials of tests/kernels run while it lives.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/kernels.h"
#include "kernels/trial.h"
#include "testbed_device.h"
#include "world.h"

namespace device_test {

struct Log {
  std::vector<std::string> lines;
  static void write(void* user, int32_t, const char* message) { static_cast<Log*>(user)->lines.emplace_back(message); }
};

class Gpu {
 public:
  explicit Gpu(TestbedOptions options = {}, bool probe = true)
      : Gpu(std::make_shared<TestbedDevice>(std::move(options)), {.probe = probe}) {}
  Gpu(std::shared_ptr<dv::Device> device, const mm::gpu::GpuOptions& options, mm::BackendOptions backend = {}) {
    backend.logger = {Log::write, &log};
    context = mm::context(gpu_context(std::move(device), options, backend));
    trial::use_context(context.get());
  }
  ~Gpu() { trial::use_context(nullptr); }
  Gpu(const Gpu&) = delete;

  Log log;
  mm::context context;
};

}  // namespace device_test

namespace trial {

/// The kernel of this row that takes the case. GPUs hold other widths widened to 4 or 8 bits.
inline std::string kernel_name(const metal_marlin::gpu::ProductKernel& kernel, const Case& c) {
  namespace mm = metal_marlin;
  using mm::gpu::KernelCodes;
  const bool bytes = oracle::code_bits(c.format) > 4 || c.format == MARLIN_IQ4;
  const bool fp4 = c.format == MARLIN_FP4 || c.format == MARLIN_MXFP4 || c.format == MARLIN_NVFP4;
  const KernelCodes codes = bytes ? KernelCodes::i8
                            : fp4 ? (c.sparse ? KernelCodes::fp4_sparse : KernelCodes::fp4)
                                  : (c.sparse ? KernelCodes::u4_sparse : KernelCodes::u4);
  const auto activation = c.compute == MARLIN_COMPUTE_INT8 ? mm::gpu::ActivationKind::i8
                          : c.a_type == MARLIN_F32         ? mm::gpu::ActivationKind::f32
                          : c.a_type == MARLIN_F16         ? mm::gpu::ActivationKind::f16
                                                           : mm::gpu::ActivationKind::bf16;
  return std::string(kernel.name(codes, activation));
}

}  // namespace trial
