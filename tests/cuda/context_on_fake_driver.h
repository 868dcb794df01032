// A context of the C ABI over the driver of the tests.
#pragma once

#include <string>

#include "api/context.h"
#include "backends/cuda/policy.h"
#include "backends/gpu/gpu_backend.h"
#include "metal_marlin/metal_marlin.hpp"
#include "on_fake_driver.h"

namespace cuda_test {

/// With one thread, without a probe.
class CudaContext : public CudaDevice {
 protected:
  /// With `kernel`, products have no other; with "" they have all.
  explicit CudaContext(std::string kernel = "") : kernel_(std::move(kernel)) {}

  void SetUp() override {
    CudaDevice::SetUp();
    BackendOptions backend;
    backend.threads = 1;
    backend.kernel = kernel_;
    auto made = must(gpu::make_gpu_backend(make(), backend, {.probe = false, .policy = &cuda::policy()}));
    context = metal_marlin::context(new marlin_context(MARLIN_BACKEND_CUDA, std::move(made), {}));
  }
  void TearDown() override {
    context = {};
    CudaDevice::TearDown();
  }

  metal_marlin::context context;

 private:
  std::string kernel_;
};

}  // namespace cuda_test
