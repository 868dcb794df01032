// NaN, infinity, -0 and subnormals in every operand.
#include "special_values.h"
#include "flush_to_zero.h"
#include "formats_under_test.h"
#include "test.h"

namespace {

using trial::Case;
using trial::kInf;
using trial::kNaN;
using trial::put_special_activations;
using trial::put_special_scales;
using trial::Trial;

class SpecialValues : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(SpecialValues, ReachExactlyTheOutputsThatUseThem) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const int64_t m : {1, 5, 40}) {
      for (const marlin_dtype a_type : {MARLIN_F32, MARLIN_BF16, MARLIN_F16}) {
        for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SILU, MARLIN_EPILOGUE_GELU_TANH,
                                               MARLIN_EPILOGUE_GELU_ERF, MARLIN_EPILOGUE_SWIGLU_OAI}) {
          Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, 70, 150);
          c.a_type = a_type;
          c.epilogue = epilogue;
          c.bias_type = MARLIN_F32;
          c.threads = 2;
          Trial t(c);
          put_special_scales(t);
          put_special_activations(t);
          t.bias.set(0, 10, kNaN);
          t.bias.set(0, 11, -kInf);
          ASSERT_TRUE(t.pack());
          ASSERT_TRUE(t.run());
          ASSERT_TRUE(t.check()) << c.describe();
        }
      }
    }
  }
}

/// A sum that is infinite leaves an activation as its limit: 0 on the left, infinity on the right.
TEST_P(SpecialValues, ActivationsHaveTheirLimitsAtInfinity) {
  for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_SILU, MARLIN_EPILOGUE_GELU_TANH, MARLIN_EPILOGUE_GELU_ERF}) {
    for (const int64_t m : {1, 5, 40}) {
      Case c = trial::case_of(trial::kKinds[GetParam()], MARLIN_COMPUTE_DEFAULT, m, 70, 150);
      c.epilogue = epilogue;
      c.bias_type = MARLIN_F32;
      Trial t(c);
      for (int64_t n = 0; n < c.n; ++n) t.bias.set(0, n, n % 2 == 0 ? -kInf : kInf);
      ASSERT_TRUE(t.pack());
      ASSERT_TRUE(t.run());
      for (int64_t r = 0; r < m; ++r)
        for (int64_t n = 0; n < c.n; ++n)
          ASSERT_EQ(t.c.get(r, n), n % 2 == 0 ? 0 : kInf) << r << ", " << n << ": " << c.describe();
    }
  }
}

/// Scales and activations of every size their types have, a size a row.
TEST_P(SpecialValues, SizesOfEveryOrder) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const trial::ScaleType scale_type : {trial::kKinds[GetParam()].scale_type, trial::ScaleType::f32}) {
      for (const marlin_dtype a_type : {MARLIN_F32, MARLIN_BF16, MARLIN_F16}) {
        for (const int64_t m : {3, 50}) {
          Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, 260, 150);
          c.scale_type = scale_type;
          c.a_type = a_type;
          Trial t(c);
          const int64_t groups = t.source.meta().groups;
          for (int64_t n = 0; n < c.n; ++n) {
            const int size = static_cast<int>(n) - 130;
            for (int64_t g = 0; g < groups; ++g)
              t.set_scale(n * groups + g,
                          std::ldexp(1 + 0.125 * static_cast<double>(g), scale_type == trial::ScaleType::f16 ? size / 4 : size),
                          static_cast<uint8_t>(n - 2 * g));
          }
          for (int64_t r = 0; r < m; ++r) {
            const int size = static_cast<int>(r * 240 / m) - 120;
            for (int64_t k = 0; k < c.k; ++k) t.a.set(r, k, std::ldexp(t.a.get(r, k), a_type == MARLIN_F16 ? size / 10 : size));
          }
          ASSERT_TRUE(t.pack());
          ASSERT_TRUE(t.run());
          ASSERT_TRUE(t.check()) << c.describe();
        }
      }
    }
  }
}

/// Sums of such rows over a group are infinite, unless a small scale makes them finite in time.
TEST_P(SpecialValues, LargeRowsMeetSmallScales) {
  const trial::Kind& kind = trial::kKinds[GetParam()];
  using metal_marlin::ScaleType, metal_marlin::ZeroKind;
  if (kind.scale_type == ScaleType::e8m0 || kind.scale_type == ScaleType::e4m3) return;  // one byte, and groups of 16 and 32
  for (const int64_t group : {64, 128}) {
    for (const int64_t m : {1, 5, 20, 40}) {
      Case c = trial::case_of(kind, MARLIN_COMPUTE_INT8, m, 70, 256);
      c.group = group;
      c.a_type = MARLIN_F32;
      c.zeros = kind.zeros == ZeroKind::additive ? ZeroKind::none : kind.zeros;
      Trial t(c);
      for (int64_t i = 0; i < c.n * t.source.meta().groups; ++i) t.set_scale(i, 0x1p-18, 0);
      for (int64_t r = 0; r < m; r += 3)
        for (int64_t k = 0; k < c.k; ++k) t.a.set(r, k, 0x1p122);
      ASSERT_TRUE(t.pack());
      if (!t.explained("activations").starts_with("int8")) return;
      ASSERT_TRUE(t.run());
      ASSERT_TRUE(t.check()) << c.describe();
    }
  }
}

TEST_P(SpecialValues, OldNanInCStaysNan) {
  Case c = trial::case_of(trial::kKinds[GetParam()], MARLIN_COMPUTE_DEFAULT, 3, 20, 40);
  c.accumulate = true;
  Trial t(c);
  t.c_before[5] = kNaN;
  t.c_before[6] = kInf;
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
}

TEST_P(SpecialValues, UnpackKeepsSubnormalsUnderFlushToZero) {
  Trial t(trial::case_of(trial::kKinds[GetParam()], MARLIN_COMPUTE_DEFAULT, 1, 20, 150));
  put_special_scales(t);
  ASSERT_TRUE(t.pack());
  testing::AssertionResult same = testing::AssertionSuccess();
  const oracle::FlushToZero mode(true);
  same = t.check_unpack();
  EXPECT_TRUE(same);
}

INSTANTIATE_TEST_SUITE_P(Format, SpecialValues, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

}  // namespace
