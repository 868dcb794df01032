#include "formats/quantize.h"
#include "test.h"

#include "fails.h"
#include "flush_to_zero.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"
#include "normal_weights.h"
#include "oracle.h"

namespace metal_marlin {
namespace {

struct Quantized {
  WeightMeta meta;
  Stripe stripe;
  std::vector<float> values;  ///< decoded
  float scale(int64_t row = 0, int64_t group = 0) const { return decode_group(meta, stripe, row, group).scale; }
};

Quantized quantize(const std::vector<float>& w, int64_t n, marlin_format format, int64_t group = 0,
                   QuantizeOptions options = {}) {
  const int64_t k = static_cast<int64_t>(w.size()) / n;
  auto source = make_quantized({w.data(), MARLIN_F32, n, k, k, "w"}, format, group, options);
  Quantized q;
  if (!source.ok()) {
    ADD_FAILURE() << source.status().message();
    return q;
  }
  q.meta = source.value()->meta();
  EXPECT_TRUE(check_meta(q.meta).ok());
  const Status s = source.value()->read(0, n, q.stripe);
  EXPECT_TRUE(s.ok()) << s.message();
  q.values.resize(w.size());
  decode_rows(q.meta, q.stripe, 0, n, q.values.data());
  return q;
}

TEST(Quantize, Int4Symmetric) {
  // s = 7 / 7 = 1; ties to even: 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, -0.5 -> 0, -1.5 -> -2.
  const Quantized q = quantize({7, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -7, 3}, 1, MARLIN_FORMAT_INT4);
  EXPECT_EQ(q.scale(), 1.0f);
  EXPECT_THAT(q.stripe.codes, ElementsAre(15, 8, 10, 10, 8, 6, 1, 11));
  EXPECT_EQ(q.meta.scale_type, ScaleType::f16);
  EXPECT_EQ(q.meta.zero_kind, ZeroKind::none);
}

TEST(Quantize, ScaleIsRoundedBeforeCodesAreChosen) {
  // 1 / 7 is 0x1.248p-3 in float16, a bit less; 0.5 / s is then 3.5002 and not the tie it would be with 1 / 7.
  const Quantized q = quantize({1, 0.5f}, 1, MARLIN_FORMAT_INT4);
  EXPECT_EQ(q.scale(), 0x1.248p-3f);
  EXPECT_THAT(q.stripe.codes, ElementsAre(15, 12));
}

TEST(Quantize, Int4Asymmetric) {
  // min -5, max 10: s = 1, zero = 5; codes 0..15.
  const Quantized q = quantize({-5, 10, 0, 0.5f, 1.5f, 4}, 1, MARLIN_FORMAT_INT4, 0, {true, false});
  EXPECT_EQ(q.meta.zero_kind, ZeroKind::integer);
  EXPECT_THAT(q.stripe.zeros, ElementsAre(5));
  EXPECT_THAT(q.stripe.codes, ElementsAre(0, 15, 5, 5, 7, 9));
  // All positive: 0 is inside the range, so zero is 0.
  const Quantized p = quantize({15, 14, 13}, 1, MARLIN_FORMAT_INT4, 0, {true, false});
  EXPECT_THAT(p.stripe.zeros, ElementsAre(0));
  EXPECT_THAT(p.stripe.codes, ElementsAre(15, 14, 13));
  // All negative: zero is 15.
  const Quantized m = quantize({-15, -14, -13}, 1, MARLIN_FORMAT_INT4, 0, {true, false});
  EXPECT_THAT(m.stripe.zeros, ElementsAre(15));
  EXPECT_THAT(m.stripe.codes, ElementsAre(0, 1, 2));
}

TEST(Quantize, Fp4TiesGoToEvenCodes) {
  const Quantized q = quantize({6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, -0.75f, -5, 0.26f, 4.99f, -0.0f, 0}, 1,
                               MARLIN_FORMAT_FP4);
  EXPECT_EQ(q.scale(), 1.0f);
  EXPECT_THAT(q.stripe.codes, ElementsAre(7, 0, 2, 2, 4, 4, 6, 6, 8, 10, 14, 1, 6, 8, 0));
}

TEST(Quantize, Mxfp4) {
  // floor(log2 12) - 2 = 1: scale 2. 7.9: exponent 0, 7.9 saturates at 6.
  const Quantized q = quantize({12, 2}, 1, MARLIN_FORMAT_MXFP4);
  EXPECT_THAT(q.stripe.scales, ElementsAre(0x80));
  EXPECT_THAT(q.stripe.codes, ElementsAre(7, 2));
  const Quantized s = quantize({7.9f, -4.0f}, 1, MARLIN_FORMAT_MXFP4);
  EXPECT_THAT(s.stripe.scales, ElementsAre(127));
  EXPECT_THAT(s.stripe.codes, ElementsAre(7, 14));
  // Clamped to E8M0 at both ends; subnormal weights too.
  EXPECT_THAT(quantize({0x1p-140f}, 1, MARLIN_FORMAT_MXFP4).stripe.scales, ElementsAre(0));
  EXPECT_THAT(quantize({0x1p-126f}, 1, MARLIN_FORMAT_MXFP4).stripe.scales, ElementsAre(0));
  EXPECT_THAT(quantize({0x1p-124f}, 1, MARLIN_FORMAT_MXFP4).stripe.scales, ElementsAre(1));
  EXPECT_THAT(quantize({3e38f}, 1, MARLIN_FORMAT_MXFP4).stripe.scales, ElementsAre(252));
}

TEST(Quantize, Mxfp4UnderFlushToZero) {
  const oracle::FlushToZero mode(true);
  const Quantized q = quantize({0x1p-127f, 0x1.8p-127f, 0x1p-128f}, 1, MARLIN_FORMAT_MXFP4);
  EXPECT_THAT(q.stripe.scales, ElementsAre(0));
  EXPECT_THAT(q.stripe.codes, ElementsAre(2, 3, 1));
}

TEST(Quantize, Nvfp4) {
  // amax 12: tensor scale 12 / 2688, the first block's scale 448; a block of 1/16 of that 28; a tiny block 2^-9.
  std::vector<float> w(48, 0.0f);
  w[0] = 12;
  w[1] = -2;
  w[16] = 0.75f;
  w[32] = 1e-7f;
  const Quantized q = quantize(w, 1, MARLIN_FORMAT_NVFP4);
  ASSERT_EQ(q.meta.tensor_scales.size(), 1u);
  EXPECT_EQ(q.meta.tensor_scales[0].value, 12.0f / 2688);
  EXPECT_FALSE(q.meta.tensor_scales[0].divide);
  EXPECT_THAT(q.stripe.scales, ElementsAre(0x7e, 0x5e, 0x01));
  EXPECT_EQ(q.stripe.codes[0], 7);
  EXPECT_EQ(q.stripe.codes[1], 10);
  EXPECT_EQ(q.stripe.codes[16], 7);
  EXPECT_FLOAT_EQ(q.values[0], 12.0f);
}

TEST(Quantize, Int8) {
  const Quantized q = quantize({127, -127, 0.5f, 1.5f, -1.5f, 100.4f}, 1, MARLIN_FORMAT_INT8);
  EXPECT_EQ(q.scale(), 1.0f);
  EXPECT_THAT(q.stripe.codes, ElementsAre(127, 129, 0, 2, 254, 100));
  EXPECT_EQ(q.meta.scale_type, ScaleType::f16);
}

TEST(Quantize, GroupsOfZeros) {
  const std::vector<float> zeros(40, 0.0f);
  for (const FormatRow& row : format_table()) {
    if (!row.quantized) continue;
    for (const bool mse : {false, true}) {
      const Quantized q = quantize(zeros, 2, row.format, 0, {false, mse});
      for (const float v : q.values) EXPECT_EQ(v, 0.0f) << row.name;
      EXPECT_EQ(q.scale(), row.format == MARLIN_FORMAT_MXFP4 ? 0x1p-127f : 1.0f) << row.name;
      EXPECT_EQ(q.stripe.codes[0], row.format == MARLIN_FORMAT_INT4 ? 8 : 0) << row.name;
    }
  }
  const Quantized a = quantize(zeros, 2, MARLIN_FORMAT_INT4, 0, {true, false});
  EXPECT_EQ(a.stripe.codes[0], 0);
  EXPECT_EQ(a.stripe.zeros[0], 0);
}

TEST(Quantize, ScaleTypeFollowsTheLargestScale) {
  for (const marlin_format f : {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_INT8}) {
    const float steps = f == MARLIN_FORMAT_INT4 ? 7.0f : f == MARLIN_FORMAT_FP4 ? 6.0f : 127.0f;
    const auto type_of = [&](float magnitude) { return quantize({magnitude, 0}, 1, f).meta.scale_type; };
    EXPECT_EQ(type_of(65504.0f * steps), ScaleType::f16);
    EXPECT_EQ(type_of(65536.0f * steps), ScaleType::f32);
    EXPECT_EQ(type_of(0x1p-14f * steps), ScaleType::f16);
    EXPECT_EQ(type_of(0x1p-15f * steps), ScaleType::f32);
    // Every magnitude comes back within one rounding of its scale.
    for (const float m : {1e-35f, 1e-20f, 1e-5f, 1.0f, 1e5f, 1e20f, 3e38f}) {
      const Quantized q = quantize({m, 0}, 1, f);
      EXPECT_NEAR(q.values[0] / m, 1, 0x1p-11) << m;
    }
  }
  // A group far below the others gets the smallest float16, not 0.
  std::vector<float> w(64, 1e-9f);
  w[0] = 1;
  EXPECT_EQ(quantize(w, 1, MARLIN_FORMAT_INT4).scale(0, 1), 0x1p-24f);
}

/// Whatever the format: no code is farther from its weight than the next one would be, and groups do not disturb each other.
TEST(Quantize, CodesAreNearest) {
  const int64_t n = 5, k = 77;
  const auto w = normal(static_cast<size_t>(n * k), 99);
  for (const FormatRow& row : format_table()) {
    if (!row.quantized) continue;
    for (const int64_t group : {int64_t{0}, int64_t{16}, int64_t{64}, k}) {
      if (row.fixed_group && group != 0) continue;
      for (const bool asymmetric : {false, true}) {
        if (asymmetric && row.format != MARLIN_FORMAT_INT4) continue;
        const Quantized q = quantize(w, n, row.format, group, {asymmetric, false});
        const int codes = row.code_bits == 4 ? 16 : 256;
        for (int64_t i = 0; i < n * k; ++i) {
          const auto at = static_cast<size_t>(i);
          const GroupScale g = decode_group(q.meta, q.stripe, i / k, i % k / q.meta.group_size);
          const double error = std::fabs(static_cast<double>(w[at]) - q.values[at]);
          for (int c = 0; c < codes; ++c) {
            if (row.format == MARLIN_FORMAT_INT4 && !asymmetric && c == 0) continue;
            if (row.format == MARLIN_FORMAT_INT8 && c == 128) continue;
            const float other = decode_value(q.meta, static_cast<uint8_t>(c), g, tensor_scale_of(q.meta, i / k));
            ASSERT_LE(error, std::fabs(static_cast<double>(w[at]) - other) * (1 + 1e-6))
                << row.name << " " << i << " code " << c;
          }
        }
      }
    }
  }
}

/// The search against a plain second implementation of the rule.
TEST(Quantize, MseTakesTheLeastError) {
  const auto w = normal(32, 4);
  double magnitude = 0;
  for (const float x : w) magnitude = std::max(magnitude, std::fabs(static_cast<double>(x)));
  double least = HUGE_VAL, best = 0;
  for (int i = 0; i < 24; ++i) {
    const double s = oracle::f16(oracle::to_f16(magnitude / 7 * (0.70 + 0.35 * i / 23)));
    double error = 0;
    for (const float x : w) {
      const double c = std::min(std::max(std::nearbyint(x / s), -8.0), 7.0);
      error += (x - c * s) * (x - c * s);
    }
    if (error <= least) {
      least = error;
      best = s;
    }
  }
  EXPECT_EQ(quantize(w, 1, MARLIN_FORMAT_INT4, 0, {false, true}).scale(), static_cast<float>(best));
}

TEST(Quantize, MseLowersTheError) {
  const auto w = normal(64 * 256, 8);
  const auto error = [&](const Quantized& q) {
    double sum = 0;
    for (size_t i = 0; i < w.size(); ++i) sum += std::pow(static_cast<double>(w[i]) - q.values[i], 2);
    return sum;
  };
  for (const FormatRow& row : format_table()) {
    if (!row.quantized) continue;
    EXPECT_LT(error(quantize(w, 64, row.format, 0, {false, true})), error(quantize(w, 64, row.format))) << row.name;
  }
  // E8M0: 7.9 and its like are better served by e + 1 than by saturation.
  EXPECT_THAT(quantize({7.9f, 7.9f}, 1, MARLIN_FORMAT_MXFP4, 0, {false, true}).stripe.scales, ElementsAre(128));
}

TEST(Quantize, StripesStridesAndInputTypes) {
  const int64_t n = 6, k = 50, stride = 61;
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
    const int64_t width = oracle::bytes_of(dtype);
    std::vector<uint8_t> memory(static_cast<size_t>((n * stride) * width + 1), 0x7f);  // NaN between the rows
    const auto w = normal(static_cast<size_t>(n * k), 21);
    std::vector<float> rounded(w.size());
    for (int64_t i = 0; i < n * k; ++i) {
      const int64_t at = i / k * stride + i % k;
      oracle::write(dtype, memory.data() + 1, at, w[static_cast<size_t>(i)]);
      rounded[static_cast<size_t>(i)] = static_cast<float>(oracle::read(dtype, memory.data() + 1, at));
    }
    auto source = must(make_quantized({memory.data() + 1, dtype, n, k, stride, "w"}, MARLIN_FORMAT_NVFP4, 0, {}));
    const Quantized whole = quantize(rounded, n, MARLIN_FORMAT_NVFP4);
    EXPECT_EQ(source->meta().tensor_scales[0].value, whole.meta.tensor_scales[0].value);
    Stripe part;
    ASSERT_TRUE(source->read(2, 3, part).ok());
    EXPECT_TRUE(std::equal(part.codes.begin(), part.codes.end(), whole.stripe.codes.begin() + 2 * k));
    EXPECT_EQ(part.codes.size(), static_cast<size_t>(3 * k));
    EXPECT_TRUE(std::equal(part.scales.begin(), part.scales.end(), whole.stripe.scales.begin() + 2 * whole.meta.groups));
  }
}

TEST(Quantize, NanAndInfinityAreNamed) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()};
  for (const float x : bad) {
    std::vector<float> w(60, 1.0f);
    w[2 * 20 + 13] = x;
    for (const FormatRow& row : format_table()) {
      if (!row.quantized) continue;
      const FloatMatrix matrix{w.data(), MARLIN_F32, 3, 20, 20, "layer.weight"};
      auto source = make_quantized(matrix, row.format, 0, {});
      Stripe stripe;
      const Status s = source.ok() ? source.value()->read(0, 3, stripe) : source.status();
      EXPECT_THAT(s, Fails(MARLIN_E_FORMAT, HasSubstr("layer.weight[2, 13]"))) << row.name;
      EXPECT_THAT(s.message(), HasSubstr(std::isnan(x) ? "NaN" : "infinity"));
    }
  }
}

TEST(Quantize, EveryError) {
  const std::vector<float> w(64, 1.0f);
  const auto code = [&](const FloatMatrix& m, marlin_format f, int64_t group, QuantizeOptions o) {
    const auto r = make_quantized(m, f, group, o);
    return r.ok() ? MARLIN_OK : r.status().code();
  };
  const FloatMatrix good{w.data(), MARLIN_F32, 2, 32, 32, "w"};
  EXPECT_EQ(code(good, MARLIN_FORMAT_INT4, 0, {}), MARLIN_OK);
  EXPECT_EQ(code(good, 42, 0, {}), MARLIN_E_ARGUMENT);
  EXPECT_EQ(code(good, MARLIN_FORMAT_NONE, 0, {}), MARLIN_E_ARGUMENT);
  EXPECT_EQ(code(good, MARLIN_FORMAT_INT4, 5, {}), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(code(good, MARLIN_FORMAT_NVFP4, 32, {}), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(code(good, MARLIN_FORMAT_FP4, 0, {true, false}), MARLIN_E_UNSUPPORTED);
  FloatMatrix m = good;
  m.dtype = MARLIN_I8;
  EXPECT_EQ(code(m, MARLIN_FORMAT_INT4, 0, {}), MARLIN_E_ARGUMENT);
  (m = good).n = 0;
  EXPECT_EQ(code(m, MARLIN_FORMAT_INT4, 0, {}), MARLIN_E_SHAPE);
  (m = good).k = -1;
  EXPECT_EQ(code(m, MARLIN_FORMAT_INT4, 0, {}), MARLIN_E_SHAPE);
  (m = good).row_stride = 31;
  EXPECT_EQ(code(m, MARLIN_FORMAT_INT4, 0, {}), MARLIN_E_SHAPE);
  (m = good).n = int64_t{1} << 40;
  EXPECT_EQ(code(m, MARLIN_FORMAT_INT4, 0, {}), MARLIN_E_SHAPE);
}

}  // namespace
}  // namespace metal_marlin
