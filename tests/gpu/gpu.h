// A context on the shader test-bed, on which the trials of tests/kernels run while it lives.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpu_kernel_name.h"
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
