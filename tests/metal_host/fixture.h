// A device of the library over the Metal for Linux, with a shader that both engines run. A test fails when anything of Metal is
// left, or found that it did not ask for.
#pragma once

#import <Metal/Metal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/metal/metal_device.h"
#include "metal_on_cpu/framework/include/metal_test_hooks.h"
#include "must.h"

namespace metal_marlin::metal {

using device::Argument;
using device::BufferRef;
using device::Constant;
using device::KernelRef;
using device::Placement;

inline constexpr std::string_view kShader =
    "#include <metal_stdlib>\n"
    "constant bool kNegate [[function_constant(0)]];\n"
    "constant uint kShift [[function_constant(1)]];\n"
    "constant uint kFactor [[function_constant(2)]];\n"
    "kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant uint& n [[buffer(2)]],\n"
    "                  uint i [[thread_position_in_grid]]) {\n"
    "  if (i >= n) return;\n"
    "  const float v = x[i] * float(kFactor) + float(kShift);\n"
    "  y[i] = kNegate ? -v : v;\n"
    "}\n"
    "kernel void append(device float* y [[buffer(0)]], constant float& v [[buffer(1)]],\n"
    "                   uint i [[thread_position_in_grid]]) {\n"
    "  if (i == 0) y[0] = y[0] * 2 + v;\n"
    "}\n"
    "struct Pointer { device const float* to; };\n"
    "kernel void follow(constant Pointer& p [[buffer(0)]], device float* y [[buffer(1)]]) { y[0] = p.to[0]; }\n"
    "[[max_total_threads_per_threadgroup(64)]] kernel void narrow(device float* y [[buffer(0)]]) { y[0] = 1; }\n";

inline constexpr ShaderFile kShaders[] = {{"scale append follow narrow", kShader}};

inline const std::vector<Constant> kPlain = {
    {0, Constant::Type::boolean, 0}, {1, Constant::Type::uint32, 0}, {2, Constant::Type::uint32, 2}};

inline std::string report() {
  std::string all(metal_test_report(nullptr, 0), '\0');
  metal_test_report(all.data(), all.size());
  all.pop_back();
  return all;
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    metal_test_reset();
    if (oldest_system) metal_test::settings()->macos = 14;
    metal_test::settings()->wait_timeout = 0.2;
    metal_test::settings()->requires_safe_math = true;
    const char* const parent = std::getenv("TMPDIR");
    cache = std::string(parent != nullptr ? parent : "/tmp") + "/metal-host-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid());
  }
  void TearDown() override {
    kept.clear();
    device.reset();
    std::filesystem::remove_all(cache);
    EXPECT_EQ(metal_test_check_leaks(), 0u) << report();
    if (!findings_wanted) EXPECT_EQ(metal_test_finding_count(), 0u) << report();
    metal_test_reset();
  }

  static DeviceOptions options() {
    DeviceOptions made;
    made.shaders = kShaders;
    return made;
  }
  device::Device& open(const DeviceOptions& with = options()) {
    device = must(create_device(with));
    return *device;
  }
  BufferRef buffer(uint64_t bytes = 256, Placement placement = Placement::shared) {
    return must(device->allocate(bytes, placement, "test"));
  }
  KernelRef kernel(std::string_view name, std::span<const Constant> constants = kPlain) {
    return must(device->kernel(name, constants));
  }
  std::unique_ptr<device::Stream> stream(marlin_native kind = MARLIN_NATIVE_NONE, void* native = nullptr) {
    return must(device->stream({kind, native}));
  }
  static float* floats(const BufferRef& buffer) { return reinterpret_cast<float*>(buffer->host()); }
  template <class T>
  static Argument value(uint32_t index, const T& v) {
    return {index, nullptr, 0, std::as_bytes(std::span(&v, 1))};
  }
  // y = x * factor + ..., of n floats.
  static Status scale(device::Stream& on, const KernelRef& kernel, const BufferRef& x, const BufferRef& y, uint32_t n) {
    const Argument arguments[] = {{0, x, 0, {}}, {1, y, 0, {}}, value(2, n)};
    return on.dispatch({kernel, arguments, {(n + 31) / 32, 1, 1}, {32, 1, 1}, {"scale", "scale", n, 0, 0}});
  }
  static Status append(device::Stream& on, const KernelRef& kernel, const BufferRef& y, float v) {
    const Argument arguments[] = {{0, y, 0, {}}, value(1, v)};
    return on.dispatch({kernel, arguments, {}, {1, 1, 1}});
  }
  static Status finish(device::Stream& on) {
    const Status committed = on.commit();
    return committed.ok() ? on.wait(UINT64_MAX) : committed;
  }

  bool findings_wanted = false, oldest_system = false;
  std::string cache;
  std::unique_ptr<device::Device> device;
  std::vector<BufferRef> kept;
};

inline ::testing::AssertionResult has_code(const Status& status, marlin_status expected) {
  if (status.code() == expected) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "status " << status.code() << ", not " << expected << ": " << status.message();
}
#define EXPECT_OK(expression) EXPECT_TRUE(has_code(expression, MARLIN_OK))
#define EXPECT_CODE(expression, expected) EXPECT_TRUE(has_code(expression, expected))

}  // namespace metal_marlin::metal
