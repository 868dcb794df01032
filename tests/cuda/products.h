// Contexts of an NVIDIA GPU for tests of products, if there is one.
#pragma once

#include "api/context.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/policy.h"
#include "backends/gpu/gpu_backend.h"
#include "kernels/trial.h"
#include "metal_marlin/metal_marlin.hpp"
#include "test.h"

namespace cuda_test {

namespace mm = metal_marlin;

/// One device for all contexts, and a context for each kernel.
class Gpu {
 public:
  Gpu() {
    mm::cuda::DeviceOptions options;
    options.kernels = mm::cuda::embedded_kernels();
    auto made = mm::cuda::create_device(options);
    why_not = made.status().message();
    if (made.ok()) device_ = made.take();
  }
  /// A context that has no other kernel, or, if the name is empty, chooses and probes its kernels.
  marlin_context* context(const std::string& kernel, int64_t most_rows) {
    mm::context& found = contexts_[{kernel, most_rows}];
    if (found.get() == nullptr) {
      mm::BackendOptions backend;
      backend.kernel = kernel;
      // A kernel that fails its check would be replaced, by a slow one.
      backend.logger.log = [](void*, int32_t, const char* message) { ADD_FAILURE() << message; };
      auto made = mm::gpu::make_gpu_backend(device_, backend,
                                            {.probe = kernel.empty(), .policy = &mm::cuda::policy(), .most_rows = most_rows});
      found = mm::context(new marlin_context(MARLIN_BACKEND_CUDA, made.take(), {}));
    }
    return found.get();
  }
  std::string why_not;

 private:
  std::shared_ptr<mm::device::Device> device_;
  std::map<std::pair<std::string, int64_t>, mm::context> contexts_;
};

class Products : public testing::Test {
 protected:
  static void SetUpTestSuite() { gpu_ = new Gpu; }
  static void TearDownTestSuite() {
    trial::use_context(nullptr);
    delete gpu_;
    gpu_ = nullptr;
  }
  void SetUp() override {
    if (!gpu_->why_not.empty()) GTEST_SKIP() << gpu_->why_not;
  }
  static inline Gpu* gpu_ = nullptr;
};

/// Whether a kernel of the context at hand serves a product.
inline bool is_served(const marlin_gemm_desc& desc) {
  char text[64];
  return marlin_explain(&desc, text, sizeof text, nullptr, nullptr) == MARLIN_OK;
}

}  // namespace cuda_test
