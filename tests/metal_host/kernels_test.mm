// The library's own kernels, made one text a file as the build does it, compile through the host.
#include "few_kernels.h"

#include "fixture.h"

namespace metal_marlin::metal {

const char* const kFewKernels = "#define MARLIN_PRODUCTS(X) X(fp4, Fp4, f16, half)\n"
                                "#define MARLIN_GEMV_ROWS(X, ...) X(__VA_ARGS__, 1)\n"
                                "#define MARLIN_REGDECODE_TILES(DIRECT, THREADGROUP, ...) DIRECT(__VA_ARGS__, 16, 32)\n";

namespace {

using Kernels = DeviceTest;

TEST_F(Kernels, OfEachFileCompile) {
  DeviceOptions built_in;
  built_in.shaders = embedded_shaders();
  ASSERT_GE(built_in.shaders.sources.size(), 4u);
  ASSERT_EQ(built_in.shaders.tensor_sources.size(), 1u);
  open(built_in);
  std::vector<Constant> constants;
  for (uint32_t index = 0; index < 16; ++index) constants.push_back({index, Constant::Type::uint32, 0});
  for (const char* const name :
       {"finish", "gather_b2", "quantize_f16", "gemv_fp4_f16_m1", "regdecode_fp4_f16_m64_n64_tensor"}) {
    const auto made = must(device->kernel(name, constants));
    EXPECT_EQ(made->simd_width(), 32u);
    EXPECT_LE(made->threadgroup_bytes(), device->capabilities().threadgroup_bytes);
  }
}

}  // namespace
}  // namespace metal_marlin::metal
