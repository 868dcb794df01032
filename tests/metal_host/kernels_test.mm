// The library's own kernels, made one text a file as the build does it, compile through the host. Fewer instances than there
// are.
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

constexpr std::string_view kFewer = "#define MARLIN_PRODUCTS(X) X(fp4, Fp4, f16, half)\n"
                                    "#define MARLIN_GEMV_ROWS(X, ...) X(__VA_ARGS__, 1)\n"
                                    "#define MARLIN_GEMM_TILES(DIRECT, STAGED, ...) DIRECT(__VA_ARGS__, 16)\n";

using Kernels = DeviceTest;

TEST_F(Kernels, OfEachFileCompile) {
  std::vector<std::string> fewer;
  for (const std::string_view source : embedded_shaders().sources) fewer.push_back(std::string(kFewer) + std::string(source));
  ASSERT_GE(fewer.size(), 4u);
  const std::vector<std::string_view> sources(fewer.begin(), fewer.end());
  DeviceOptions built_in;
  built_in.shaders.sources = sources;
  open(built_in);
  std::vector<Constant> constants;
  for (uint32_t index = 0; index < 16; ++index) constants.push_back({index, Constant::Type::uint32, 0});
  for (const char* const name : {"finish", "gather_b2", "quantize_f16", "gemv_fp4_f16_m1"}) {
    const auto made = device->kernel(name, constants);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made.value()->simd_width(), 32u);
    EXPECT_LE(made.value()->threadgroup_bytes(), device->capabilities().threadgroup_bytes);
  }
}

}  // namespace
}  // namespace metal_marlin::metal
