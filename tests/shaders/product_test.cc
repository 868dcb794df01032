#include "problem.h"

namespace shaders {
namespace {

TEST(Products, OfEachKindOfCodes) {
  struct {
    marlin_format f;
    ScaleType s;
    int64_t g;
    ZeroKind z;
    bool sparse;
  } kinds[] = {
      {MARLIN_INT4, ScaleType::f16, 32, ZeroKind::none, false},
      {MARLIN_INT4, ScaleType::f32, 64, ZeroKind::integer, false},
      {MARLIN_INT4, ScaleType::bf16, 128, ZeroKind::additive, false},
      {MARLIN_MXFP4, ScaleType::e8m0, 32, ZeroKind::none, false},
      {MARLIN_NVFP4, ScaleType::e4m3, 16, ZeroKind::none, false},
      {MARLIN_INT8, ScaleType::f16, 0, ZeroKind::none, false},
      {MARLIN_INT8, ScaleType::f16, 16, ZeroKind::additive, false},
      {MARLIN_INT4, ScaleType::f16, 32, ZeroKind::none, true},
      {MARLIN_INT4, ScaleType::f32, 64, ZeroKind::integer, true},
      {MARLIN_INT4, ScaleType::bf16, 256, ZeroKind::additive, true},
      {MARLIN_MXFP4, ScaleType::e8m0, 32, ZeroKind::none, true},
  };
  int i = 0;
  for (auto& kd : kinds) {
    Spec s;
    s.format = kd.f;
    s.scale_type = kd.s;
    s.group = kd.g;
    s.zeros = kd.z;
    s.sparse = kd.sparse;
    s.m = i % 3 == 0 ? 12 : i % 3 == 1 ? 21 : 40;
    s.n = 40 + i * 11;
    s.k = 480 + 36 * i;
    ++i;
    s.a_type = i % 3 == 0 ? MARLIN_F32 : i % 3 == 1 ? MARLIN_F16 : MARLIN_BF16;
    s.int8 = i % 4 == 3;
    EXPECT_TRUE(holds(s));
  }
}

}  // namespace
}  // namespace shaders
