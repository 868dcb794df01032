// A CUDA device whose driver is that of the tests.
#pragma once

#include <dlfcn.h>

#include "backends/cuda/cuda_device.h"
#include "fake_driver.h"
#include "must.h"
#include "test.h"

namespace cuda_test {

using namespace metal_marlin;

inline constexpr std::string_view kProducts =
                                      "gemv_u4_f16_m8 gemv_u4_f16_m8_s1z0g5 gemv_u4_f16_m8_s1z0g7 ring_u4_f16_m8_s1z0g7 "
                                      "wgmma_u4_f16_m64_n256_s1z0g7 mma_u4_f16_m16_n128_s1z0g5 "
                                      "mma_u4_f16_m16_n128_s1z3g5 expand_u4_f16_n32_s1z0g5 expand_u4_f16_n32_s1z3g5 ",
                                  kHalves = "wgmma_f16_f16_m128_n256_s0z0g7 ", kBytes = "wgmma_u4_i8_m64_n256_s1z0g7 ",
                                  kRest = "gather_b2 finish group_sums_f16 quantize_f16 ";

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    void* const library = dlopen(MARLIN_FAKE_DRIVER, RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    void* const found = dlsym(library, fake_cuda::kStateFunction);
    fake_cuda::StateFunction function = nullptr;
    std::memcpy(&function, &found, sizeof found);
    ASSERT_NE(function, nullptr);
    driver = static_cast<fake_cuda::State*>(function());
    *driver = {};
    options.driver = MARLIN_FAKE_DRIVER;
    modules[0] = {"u4_f16", std::as_bytes(std::span(kProducts))};
    modules[1] = {"f16_f16", std::as_bytes(std::span(kHalves))};
    modules[2] = {"u4_i8", std::as_bytes(std::span(kBytes))};
    modules[3] = {"helpers", std::as_bytes(std::span(kRest))};
    options.kernels = {modules, 13000};
  }
  /// Whatever a test did: everything was given back, every call had the right context, and none is left current.
  void TearDown() override {
    for (const int live : {driver->live_memory, driver->live_pinned, driver->live_registered, driver->live_events,
                           driver->live_streams, driver->live_modules, driver->live_contexts, driver->wrong_context})
      EXPECT_EQ(live, 0);
    EXPECT_EQ(driver->current, nullptr);
  }
  std::unique_ptr<device::Device> make() { return must(cuda::create_device(options)); }
  void fail(const char* function, int error, int skip = 0) {
    driver->failing = function;
    driver->error = error;
    driver->skip = skip;
  }
  std::string why_not() { return cuda::describe(options).status().message(); }

  fake_cuda::State* driver = nullptr;
  cuda::KernelModule modules[4];
  cuda::DeviceOptions options;
};

}  // namespace cuda_test
