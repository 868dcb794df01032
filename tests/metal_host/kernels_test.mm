// The library's own kernels, each compiled alone from the text that the library embeds, compile through the host.
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

using Kernels = DeviceTest;

TEST_F(Kernels, OfEachFileCompile) {
  DeviceOptions built_in;
  built_in.shaders = embedded_shaders();
  open(built_in);
  std::vector<Constant> constants;
  for (uint32_t index = 0; index < 16; ++index) constants.push_back({index, Constant::Type::uint32, 0});
  for (const char* const name : {"finish", "gather_b2", "quantize_f16", "route", "unpack_u4_sparse", "gemv_fp4_f16_m1",
                                 "regdecode_planes_bf16_m16_n32_direct", "regdecode_fp4_f16_m64_n64_tensor"}) {
    const auto made = must(device->kernel(name, constants));
    EXPECT_EQ(made->simd_width(), 32u);
    EXPECT_LE(made->threadgroup_bytes(), device->capabilities().threadgroup_bytes);
  }
}

}  // namespace
}  // namespace metal_marlin::metal
