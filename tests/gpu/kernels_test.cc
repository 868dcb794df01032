// The cache of compiled kernels.
#include "backends/gpu/kernels.h"
#include "idle_device.h"
#include "test.h"

namespace gpu_kernels_tests {
namespace {

using namespace device_test;

/// Takes a while to compile.
struct SlowDevice final : IdleDevice {
  using IdleDevice::IdleDevice;
  Result<dv::KernelRef> kernel(std::string_view name, std::span<const dv::Constant> constants) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return IdleDevice::kernel(name, constants);
  }
};

TEST(KernelCache, CompilesAVariantOnce) {
  Record record;
  SlowDevice device(record);
  metal_marlin::gpu::KernelCache cache(device);
  std::vector<dv::KernelRef> got(8);
  std::vector<std::thread> threads;
  for (dv::KernelRef& kernel : got)
    threads.emplace_back([&] {
      const bool other = (&kernel - got.data()) % 2 == 1;
      kernel = cache.get(metal_marlin::gpu::Variant("scale").set(MARLIN_CONSTANT_GROUP_SHIFT, other ? 6 : 5)).value();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(record.compilations, 2);
  EXPECT_EQ(got[0], got[2]);
  EXPECT_EQ(got[1], got[7]);
  EXPECT_NE(got[0], got[1]);
}

}  // namespace
}  // namespace gpu_kernels_tests
