// Scales and activations' scales (d) that kernels combine: every one, pairs of them, huge ones. Every code of E4M3.
#include "kernels_problem.h"
#include "test.h"

namespace metal_marlin::cpu {
namespace {

/// For weights whose scales may be anything: K = 32, one group, codes chosen; returns C of the last row, whose A is `a` at 5.
float with_scale(const KernelRow& row, const WeightKind& kind, std::vector<uint8_t> scale, uint8_t code, float a,
                 const CpuFeatures& features, int64_t rows = 1) {
  std::mt19937 rng(1);
  const TestWeights w = random_weights(kind, 3, 128, rng);
  auto* super = reinterpret_cast<uint8_t*>(w->data.data());
  std::fill_n(super, w->layout.code_bytes(), static_cast<uint8_t>(code | code << 4));
  for (int64_t i = 0; kind.sparse && i < w->layout.code_bytes(); i += 4)
    if (i % 192 >= 128) store(super + i, 0x55550000u);  // slots 0 and 1 of each quad: 5 is kept
  for (int i = 0; i < w->layout.groups_per_super() * kPanelColumns; ++i)
    std::copy(scale.begin(), scale.end(), super + w->layout.scales_offset() + static_cast<size_t>(i) * scale.size());
  Operands o = make_operands(w, rows, MARLIN_BF16, MARLIN_F32, rng);
  std::vector<float> values(128, 0.0f);
  values[5] = a;
  encode_floats(MARLIN_BF16, values.data(), 128, o.a.data() + (rows - 1) * o.problem.a.stride * 2);
  o.problem.compute = compute_of(row);
  run(o.problem, features, row.name, 1);
  return element(o.problem.c, rows - 1, 2);
}

class Fp4Rows : public OnEachKernel {
 protected:
  /// Of what the row serves; sparse ones where it can.
  static WeightKind kind_of(const KernelRow& row) {
    return (row.codes & sparse(CodeKind::fp4)) != 0 ? sparsely(kMxfp4) : kMxfp4;
  }
};

TEST_P(Fp4Rows, TakeEveryE8m0Scale) {
  const WeightKind kind = kind_of(row);
  for (int e = 0; e < 255; ++e) {
    const double scale = std::ldexp(1.0, e - 127);
    // 1.5 * 2^(e - 127) * 127 in float32 range, for activations that INT8 holds exactly.
    const float a = e > 200 ? std::ldexp(127.0f, -60) : e < 60 ? std::ldexp(127.0f, 40) : 127.0f;
    const double want = 1.5 * scale * static_cast<double>(a);
    // 2nd term of the contract: units that flush subnormals may lose what is below 2^-126 times an activation.
    ASSERT_NEAR(static_cast<double>(with_scale(row, kind, {static_cast<uint8_t>(e)}, 3, a, features)), want,
                want * 1e-7 + 128 * std::ldexp(std::max(1.0, static_cast<double>(a)), -126))
        << row.name << " e " << e;
  }
  EXPECT_TRUE(std::isnan(with_scale(row, kind, {255}, 3, 1.0f, features)));
}

TEST_P(Fp4Rows, TakeSubnormalActivationsScales) {
  if (row.form != ActivationForm::int8) GTEST_SKIP() << "activations have no scales";
  for (int e = 140; e < 255; ++e) {
    const double want = std::ldexp(1.5 * 127, e - 127 - 133);  // d is 2^-133
    ASSERT_NEAR(static_cast<double>(with_scale(row, kind_of(row), {static_cast<uint8_t>(e)}, 3, 127 * 0x1p-133f, features)),
                want, want * 1e-7 + std::ldexp(1.0, -140))
        << row.name << " e " << e;
  }
}

TEST_P(Fp4Rows, AreNotDisturbedByAHugeScaleOfZeroWeights) {
  for (int exponent = 0; exponent < 8; ++exponent)  // scale * d passes through the exponent of infinity and NaN
    for (const int64_t rows : {1, 3})
      EXPECT_EQ(with_scale(row, kind_of(row), {254}, 0, std::ldexp(127.0f, exponent), features, rows), 0.0f)
          << exponent << ", row " << rows - 1;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Fp4Rows, testing::ValuesIn(rows_that([](const KernelRow& row) {
                           return (row.codes & (bit(CodeKind::fp4) | sparse(CodeKind::fp4))) != 0 &&
                                  (row.scales & bit(ScaleType::e8m0)) != 0;
                         })),
                         name_of_row);

double e4m3_value(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 127) == 127 ? std::nan("") : (code & 128) != 0 ? -magnitude : magnitude;
}

class E4m3Rows : public OnEachKernel {};

// Two groups of 16, as kernels that take them in pairs do: 64 columns with 4 scales of the first group and 16 of the second.
TEST_P(E4m3Rows, TakeEveryPairOfScales) {
  const bool dense = (row.codes & bit(CodeKind::fp4)) != 0;
  std::mt19937 rng(1);
  const WeightKind kind{MARLIN_FORMAT_NVFP4, ScaleType::e4m3, ZeroKind::none, 16};
  const TestWeights w = random_weights(dense ? kind : sparsely(kind), kPanelColumns, 128, rng);
  auto* super = reinterpret_cast<uint8_t*>(w->data.data());
  std::fill_n(super, w->layout.code_bytes(), uint8_t{0x33});  // 1.5
  for (int64_t i = 0; !dense && i < w->layout.code_bytes(); i += 4)
    if (i % 192 >= 128) store(super + i, 0x55550000u);  // slots 0 and 1 of each quad are kept
  std::fill_n(super + w->layout.scales_offset(), 8 * kPanelColumns, uint8_t{0x38});
  Operands o = make_operands(w, 3, MARLIN_BF16, MARLIN_F32, rng);
  std::vector<float> values(128, 0.0f);
  values[4] = 127;
  values[21] = -50;
  for (size_t r = 0; r < 3; ++r)
    encode_floats(MARLIN_BF16, values.data(), 128, o.a.data() + r * static_cast<size_t>(o.problem.a.stride) * 2);
  o.problem.compute = compute_of(row);
  for (int first = 0; first < 256; first += 4)
    for (int second = 0; second < 256; second += 16) {
      const auto scale = [&](int group, int c) { return group == 0 ? first + c % 4 : second + c / 4; };
      for (int c = 0; c < kPanelColumns; ++c)
        for (int group = 0; group < 2; ++group)
          super[w->layout.scales_offset() + group * kPanelColumns + c] = static_cast<uint8_t>(scale(group, c));
      run(o.problem, features, row.name, 1);
      for (int c = 0; c < kPanelColumns; ++c) {
        const double a = 127 * 1.5 * e4m3_value(scale(0, c)), b = -50 * 1.5 * e4m3_value(scale(1, c));
        const float got = element(o.problem.c, 1, c);
        if (std::isnan(a + b))
          ASSERT_TRUE(std::isnan(got)) << row.name << " scales " << scale(0, c) << ", " << scale(1, c) << ": " << got;
        else
          ASSERT_NEAR(static_cast<double>(got), a + b, 2e-7 * (std::abs(a) + std::abs(b)))
              << row.name << " scales " << scale(0, c) << ", " << scale(1, c);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Kernels, E4m3Rows, testing::ValuesIn(rows_that([](const KernelRow& row) {
                           return (row.codes & (bit(CodeKind::fp4) | sparse(CodeKind::fp4))) != 0 &&
                                  (row.scales & bit(ScaleType::e4m3)) != 0 && row.slot_group_min == 16;
                         })),
                         name_of_row);

class E4m3CodeRows : public OnEachKernel {};

// Column c holds code c alone, and one slot after the other has an activation.
TEST_P(E4m3CodeRows, TakeEveryCode) {
  std::mt19937 rng(1);
  const TestWeights w = random_weights({MARLIN_FORMAT_FP8, ScaleType::f32, ZeroKind::none, 128}, 256, kSuperSlots, rng);
  auto* super = reinterpret_cast<uint8_t*>(w->data.data());
  for (int64_t p = 0; p < w->layout.panels(); ++p, super += w->layout.panel_bytes()) {
    for (int64_t i = 0; i < w->layout.code_bytes(); ++i)
      super[i] = static_cast<uint8_t>(p * kPanelColumns + i / 512 % kColumnGroups * kGroupColumns + i % 64 / 4);
    for (int c = 0; c < kPanelColumns; ++c) store(super + w->layout.scales_offset() + 4 * c, 1.0f);
  }
  for (const int64_t rows : {1, 3}) {
    Operands o = make_operands(w, rows, MARLIN_BF16, MARLIN_F32, rng);
    for (size_t slot = 0; slot < kBlockSlots; ++slot) {
      std::vector<float> values(kSuperSlots, 0.0f);
      values[slot] = 1;
      for (int64_t r = 0; r < rows; ++r)
        encode_floats(MARLIN_BF16, values.data(), kSuperSlots, o.a.data() + r * o.problem.a.stride * 2);
      run(o.problem, features, row.name, 1);
      for (int code = 0; code < 256; ++code) {
        const double want = e4m3_value(code), got = static_cast<double>(element(o.problem.c, rows - 1, code));
        ASSERT_EQ(std::isnan(got), std::isnan(want)) << row.name << " code " << code << " slot " << slot;
        if (std::isnan(want)) continue;
        ASSERT_EQ(got, want) << row.name << " code " << code << " slot " << slot;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, E4m3CodeRows, testing::ValuesIn(rows_that([](const KernelRow& row) {
                           return (row.codes & bit(CodeKind::bf16)) != 0 && row.expands;
                         })),
                         name_of_row);

class Int8Rows : public OnEachKernel {};

// A row of huge activations and one of tiny ones beside an ordinary one: each comes out right, and as it does alone.
TEST_P(Int8Rows, TakeHugeAndTinyActivations) {
  std::mt19937 rng(2);
  for (const WeightKind& kind :
       {kMxfp4, kNvfp4, sparsely(kMxfp4), WeightKind{MARLIN_FORMAT_INT4, ScaleType::f32, ZeroKind::none, 16},
        WeightKind{MARLIN_FORMAT_INT4, ScaleType::f32, ZeroKind::none, 32},
        WeightKind{MARLIN_FORMAT_INT4, ScaleType::f32, ZeroKind::none, 64},
        WeightKind{MARLIN_FORMAT_INT4, ScaleType::f32, ZeroKind::none, 128},
        WeightKind{MARLIN_FORMAT_INT4, ScaleType::f32, ZeroKind::additive, 64},
        WeightKind{MARLIN_FORMAT_INT4, ScaleType::f32, ZeroKind::additive, 128},
        WeightKind{MARLIN_FORMAT_INT8, ScaleType::f32, ZeroKind::additive, 128},
        WeightKind{MARLIN_FORMAT_INT8, ScaleType::f32, ZeroKind::none, 64}}) {
    SCOPED_TRACE(row.name);
    const int64_t n = 70, k = 256;
    const TestWeights w = random_weights(case_of(kind, n, k, rng), rng, [&](problem::Weights& drawn) {
      const int64_t scales = drawn.spec.n * drawn.source.meta().groups;
      for (int64_t i = 0; i < scales && kind.scale == ScaleType::f32; ++i)  // products with huge activations are finite
        drawn.set_scale(i, std::ldexp(1 + static_cast<double>(i % 61) / 64, -30), 0);
    });
    Operands o = make_operands(w, 3, MARLIN_F32, MARLIN_F32, rng);
    o.problem.compute = MARLIN_COMPUTE_INT8;
    if (!plan_gemm(o.problem, 3, {features, row.name}).ok()) continue;
    // The sums of a group, before their scale, would be beyond the largest float.
    // (Additive zeros multiply d times the sum of the activations, which must itself be finite.)
    const bool huge_scales = kind.scale == ScaleType::f32 && kind.zero == ZeroKind::none;
    const float factors[] = {1.0f, huge_scales ? 0x1p125f : 0x1p108f, 0x1p-135f};
    for (size_t r = 0; r < 3; ++r) {
      for (float& x : o.rows[r]) x *= factors[r];
      encode_floats(MARLIN_F32, o.rows[r].data(), k, o.a.data() + r * static_cast<size_t>(o.problem.a.stride) * 4);
    }
    run(o.problem, features, row.name, 1);
    const std::vector<float> all = results(o.problem);
    ASSERT_TRUE(check(o, w)) << w.spec.describe();
    for (size_t r = 0; r < 3; ++r) {
      GemmProblem one = o.problem;
      one.a.data = o.a.data() + r * static_cast<size_t>(one.a.stride) * 4;
      one.a.rows = one.c.rows = 1;
      run(one, features, row.name, 1);
      for (int64_t c = 0; c < n; ++c)
        ASSERT_EQ(element(one.c, 0, c), all[r * n + static_cast<size_t>(c)]) << w.spec.describe() << " row " << r << " alone";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Int8Rows,
                         testing::ValuesIn(rows_that([](const KernelRow& row) { return row.form == ActivationForm::int8; })),
                         name_of_row);

}  // namespace
}  // namespace metal_marlin::cpu
