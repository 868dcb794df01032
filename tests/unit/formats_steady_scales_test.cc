// Float32 scales that kernels may take as units of sums.
#include "formats/steady_scales.h"

#include "problem/memory_source.h"
#include "test.h"

namespace metal_marlin {
namespace {

/// Whether INT4 [2, 64] in groups of 32 has steady scales once both rows were read: these of float32, or others of `type`.
bool is_steady(const std::vector<float>& scales, ScaleType type = ScaleType::f32) {
  MemorySource source;
  source.mutable_meta() = int4_of_two_rows(type);
  std::mt19937 random(7);
  fill_randomly(source, random, false);
  if (type == ScaleType::f32) {
    source.all().scales.resize(scales.size() * sizeof(float));
    std::memcpy(source.all().scales.data(), scales.data(), source.all().scales.size());
  }
  const SteadyScales watched(source);
  Stripe expected, found;
  for (const int64_t row : {0, 1}) {
    EXPECT_TRUE(source.read(row, 1, expected).ok());
    EXPECT_TRUE(watched.read(row, 1, found).ok());
    EXPECT_EQ(found.scales, expected.scales);
    EXPECT_EQ(found.codes, expected.codes);
  }
  return watched.are_steady();
}

TEST(SteadyScales, AreThoseOfTwoLevels) {
  EXPECT_TRUE(is_steady({1, -1, 0.0f, -0.0f}));
  EXPECT_TRUE(is_steady({0x1p-24f, -0x1p-24f, 0x1p23f, -0x1p23f}));
}

TEST(SteadyScales, AreNoneWhoseRatioMayLeaveFloat32) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float one : {0x1.fffffep-25f, 0x1.000002p23f, 1e-40f, 1e30f, infinity, nan})
    for (const float number : {one, -one})
      for (size_t at = 0; at < 4; ++at) {
        std::vector<float> scales = {1, 1, 1, 1};
        scales[at] = number;
        EXPECT_FALSE(is_steady(scales)) << number << " at " << at;
      }
}

TEST(SteadyScales, AreFloat32Alone) { EXPECT_FALSE(is_steady({}, ScaleType::f16)); }

}  // namespace
}  // namespace metal_marlin
