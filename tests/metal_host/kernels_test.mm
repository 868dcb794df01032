// The library's own kernels, made one text a file as the build does it, compile through the host.
#include "few_kernels.h"

namespace metal_marlin::metal {
namespace {

using Kernels = DeviceTest;

TEST_F(Kernels, OfEachFileCompile) {
  const FewKernels few;
  ASSERT_GE(few.shaders().sources.size(), 4u);
  ASSERT_EQ(few.shaders().tensor_sources.size(), 1u);
  DeviceOptions built_in;
  built_in.shaders = few.shaders();
  open(built_in);
  std::vector<Constant> constants;
  for (uint32_t index = 0; index < 16; ++index) constants.push_back({index, Constant::Type::uint32, 0});
  for (const char* const name : {"finish", "gather_b2", "quantize_f16", "gemv_fp4_f16_m1", "gemm_fp4_f16_m64_n64_tensor"}) {
    const auto made = device->kernel(name, constants);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made.value()->simd_width(), 32u);
    EXPECT_LE(made.value()->threadgroup_bytes(), device->capabilities().threadgroup_bytes);
  }
}

}  // namespace
}  // namespace metal_marlin::metal
