// Every code with every scale and zero, bit for bit against the oracle: numerics, rule 1 of the accuracy contract.
#include "formats/decode.h"

#include "flush_to_zero.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "oracle.h"
#include "test.h"

namespace metal_marlin {
namespace {

/// One row, its codes cycling through all there are, the same for the library and the oracle.
struct Row {
  WeightMeta meta;
  Stripe stripe;
  oracle::Weights expected;
};

struct Scales {
  ScaleType type;
  std::vector<uint8_t> bytes;  ///< of all groups
};

Scales scales_of(ScaleType type, const std::vector<double>& values) {
  Scales out{type, {}};
  for (const double v : values) {
    uint8_t bytes[4] = {};
    oracle::write(scale_dtype(type), bytes, 0, v);
    out.bytes.insert(out.bytes.end(), bytes, bytes + scale_bytes(type));
  }
  return out;
}
Scales all_bytes(ScaleType type) {
  Scales out{type, {}};
  for (int b = 0; b < 256; ++b) out.bytes.push_back(static_cast<uint8_t>(b));
  return out;
}

/// A row with one group a scale; each group holds every code once. zeros: none, a byte each, or of zero_type.
Row make_row(marlin_format format, const Scales& scales, ZeroKind kind = ZeroKind::none, const Scales& zeros = {}) {
  Row r;
  const int codes = format == MARLIN_FORMAT_INT8 ? 256 : 16;
  const auto groups = static_cast<int64_t>(scales.bytes.size() / scale_bytes(scales.type));
  r.meta.format = format;
  r.meta.n = 1;
  r.meta.k = groups * codes;
  r.meta.group_size = codes;
  r.meta.groups = groups;
  r.meta.scale_type = scales.type;
  r.meta.zero_kind = kind;
  r.meta.zero_type = zeros.type;
  r.stripe.scales = scales.bytes;
  r.stripe.zeros = zeros.bytes;
  for (int64_t k = 0; k < r.meta.k; ++k) r.stripe.codes.push_back(static_cast<uint8_t>(k % codes));
  oracle::Weights& w = r.expected;
  w.format = format;
  w.n = 1;
  w.k = r.meta.k;
  w.group_size = codes;
  w.groups = groups;
  w.codes = r.stripe.codes;
  w.additive = kind == ZeroKind::additive;
  for (int64_t g = 0; g < groups; ++g) {
    w.scale.push_back(oracle::read(scale_dtype(scales.type), scales.bytes.data(), g));
    if (kind == ZeroKind::integer) w.zero.push_back(zeros.bytes[static_cast<size_t>(g)]);
    if (kind == ZeroKind::additive) w.zero.push_back(oracle::read(scale_dtype(zeros.type), zeros.bytes.data(), g));
  }
  return r;
}

void set_tensor_scale(Row& r, float value, bool divide) {
  r.meta.tensor_scales = {{0, value, divide}};
  r.expected.tensor_scale = {static_cast<double>(value)};
  r.expected.divide = divide;
}

/// Also under a host's flush-to-zero. Returns how many values were compared.
void expect_exact(const Row& r) {
  for (const bool flush : {false, true}) {
    std::vector<float> got(static_cast<size_t>(r.meta.k));
    {
      const oracle::FlushToZero mode(flush);
      decode_rows(r.meta, r.stripe, 0, 1, got.data());
    }
    for (int64_t k = 0; k < r.meta.k; ++k) {
      const float want = oracle::value_f32(r.expected, 0, k), have = got[static_cast<size_t>(k)];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(have)) << "k " << k << " flush " << flush;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(have), std::bit_cast<uint32_t>(want))
            << "k " << k << ": " << have << " for " << want << " flush " << flush;
      }
    }
  }
}

std::vector<double> all_halves() {
  std::vector<double> v(65536);
  for (int h = 0; h < 65536; ++h) v[static_cast<size_t>(h)] = oracle::f16(h);
  return v;
}
/// Floats of every size and sign.
std::vector<double> random_floats(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<double> v;
  while (static_cast<int>(v.size()) < count) {
    const auto f = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(f)) v.push_back(static_cast<double>(f));
  }
  return v;
}

TEST(Decode, EveryMxfp4Pair) { expect_exact(make_row(MARLIN_FORMAT_MXFP4, all_bytes(ScaleType::e8m0))); }

TEST(Decode, EveryNvfp4Pair) {
  Row r = make_row(MARLIN_FORMAT_NVFP4, all_bytes(ScaleType::e4m3));
  expect_exact(r);
  // 2688 / amax of real files, awkward quotients, subnormal and huge results.
  for (const float t :
       {1.0f, 0.00446429f, 224.0f, 3.0f, 0x1.fffffep-1f, 0x1p-126f, 1e-37f, 3e37f, 7e-45f, -2.0f, NAN, INFINITY, 0.0f}) {
    for (const bool divide : {false, true}) {
      set_tensor_scale(r, t, divide);
      SCOPED_TRACE(testing::Message() << t << (divide ? " divides" : " multiplies"));
      expect_exact(r);
    }
  }
}

TEST(Decode, NvfpTensorScalesAtRandom) {
  Row r = make_row(MARLIN_FORMAT_NVFP4, all_bytes(ScaleType::e4m3));
  for (const double t : random_floats(40, 11)) {
    for (const bool divide : {false, true}) {
      set_tensor_scale(r, static_cast<float>(t), divide);
      expect_exact(r);
    }
  }
}

TEST(Decode, EveryFp4CodeWithEveryHalf) { expect_exact(make_row(MARLIN_FORMAT_FP4, scales_of(ScaleType::f16, all_halves()))); }

TEST(Decode, FloatScales) {
  for (const ScaleType type : {ScaleType::f32, ScaleType::bf16}) {
    const Scales scales = scales_of(type, random_floats(2000, 5));
    for (const marlin_format format :
         {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT8}) {
      Row r = make_row(format, scales);
      SCOPED_TRACE(format_name(format));
      expect_exact(r);
      set_tensor_scale(r, 1.2345678f, false);
      expect_exact(r);
      set_tensor_scale(r, 1.2345678f, true);
      expect_exact(r);
    }
  }
}

TEST(Decode, EveryInt4CodeAndZero) {
  for (int zero = 0; zero <= 16; ++zero) {
    const std::vector<double> values = {1.0, 0.5, -0.25, 0.1, 0x1p-24, 65504};
    Scales zeros{ScaleType::f16, std::vector<uint8_t>(values.size(), static_cast<uint8_t>(zero))};
    expect_exact(make_row(MARLIN_FORMAT_INT4, scales_of(ScaleType::f16, values), ZeroKind::integer, zeros));
    expect_exact(make_row(MARLIN_FORMAT_INT4, scales_of(ScaleType::f32, values), ZeroKind::integer, zeros));
  }
  expect_exact(make_row(MARLIN_FORMAT_INT4, scales_of(ScaleType::f16, all_halves())));
}

TEST(Decode, ZeroCodesKeepTheirSign) {
  const Row r = make_row(MARLIN_FORMAT_INT4, scales_of(ScaleType::f16, {-1.0}));
  float row[16];
  decode_rows(r.meta, r.stripe, 0, 1, row);
  EXPECT_TRUE(std::signbit(row[8]));  // (8 - 8) * -1
  EXPECT_EQ(row[8], 0.0f);
}

TEST(Decode, AdditiveZerosRoundOnce) {
  std::mt19937 random(3);
  for (const ScaleType type : {ScaleType::f32, ScaleType::f16, ScaleType::bf16}) {
    std::vector<double> scales, zeros;
    for (int i = 0; i < 3000; ++i) {
      // Magnitudes up to 2^30 apart, with all 24 bits in use, so that sums are inexact and often near a tie.
      scales.push_back(std::ldexp(1 + static_cast<double>(random()) * 0x1p-32, static_cast<int>(random() % 14)));
      zeros.push_back(std::ldexp(-1 - static_cast<double>(random()) * 0x1p-32, static_cast<int>(random() % 14)));
    }
    for (const marlin_format format : {MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT8}) {
      expect_exact(make_row(format, scales_of(type, scales), ZeroKind::additive, scales_of(type, zeros)));
    }
  }
}

TEST(Decode, AdditiveZerosInTheMiddleBetweenTwoFloats) {
  // 3 * (1 + 2^-23) is a tie in [2, 4); a zero of 2^-100, which double alone would lose, decides it.
  const Row r = make_row(MARLIN_FORMAT_INT4, scales_of(ScaleType::f32, {0x1.000002p0, 0x1.000002p0, 0x1.000002p0}),
                         ZeroKind::additive, scales_of(ScaleType::f32, {0x1p-100, -0x1p-100, 0}));
  expect_exact(r);
  const Row tiny = make_row(MARLIN_FORMAT_INT4, scales_of(ScaleType::f32, {0x1p-149, 0x1p-120}), ZeroKind::additive,
                            scales_of(ScaleType::f32, {0x1.000001p0, -0x1p-149}));
  expect_exact(tiny);
  // -6 times this scale is a tie, too, and its zero lies 2^138 below.
  const Row far = make_row(MARLIN_FORMAT_INT8, scales_of(ScaleType::f32, {0x1.da221cp124, 0x1.da221cp124}), ZeroKind::additive,
                           scales_of(ScaleType::f32, {-0x1.b98p-14, 0x1.b98p-14}));
  expect_exact(far);
}

TEST(Decode, EveryInt8Code) {
  expect_exact(make_row(MARLIN_FORMAT_INT8, scales_of(ScaleType::f16, {1.0, 0.1, -3.0, 65504, 0x1p-24})));
}

TEST(Decode, Int8TimesTwoFloatsRoundsOnce) {
  // 127 S T has 55 bits; the search finds S, T with 24 bits each whose product is a float32 tie and one unit in the 55th bit,
  // above or below: rounding to double on the way would make it the tie.
  const auto inverse = [](uint32_t odd) {
    uint32_t x = odd;  // Newton: each step doubles the right bits, 3 to begin with
    for (int i = 0; i < 4; ++i) x *= 2 - odd * x;
    return x;
  };
  int found = 0;
  for (uint32_t s = (1u << 24) - 1; found < 40; s -= 2) {
    for (const uint32_t target : {(1u << 30) + 1, (1u << 30) - 1}) {
      const uint32_t t = inverse(127 * s) * target & 0x7fffffffu;
      if (t >= 1u << 24 || uint64_t{127} * s * t < uint64_t{1} << 54) continue;
      Row r = make_row(MARLIN_FORMAT_INT8, scales_of(ScaleType::f32, {static_cast<double>(s)}));
      set_tensor_scale(r, static_cast<float>(t), false);
      expect_exact(r);
      ++found;
    }
  }
}

TEST(Decode, WorkedExamples) {
  // MXFP4: byte 0x72, e = 0x80 -> 2.0, 12.0. GPTQ: code - 8 times 0.5: -4.0 ... -0.5.
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_MXFP4;
  EXPECT_EQ(decode_value(meta, 2, {e8m0_to_f32(0x80), 0}, nullptr), 2.0f);
  EXPECT_EQ(decode_value(meta, 7, {e8m0_to_f32(0x80), 0}, nullptr), 12.0f);
  EXPECT_EQ(decode_value(meta, 1, {e8m0_to_f32(0), 0}, nullptr), 0x1p-128f);
  meta.format = MARLIN_FORMAT_INT4;
  EXPECT_EQ(decode_value(meta, 0, {0.5f, 8}, nullptr), -4.0f);
  EXPECT_EQ(decode_value(meta, 7, {0.5f, 8}, nullptr), -0.5f);
  // NVFP4, amax 12: ModelOpt multiplies by 12 / 2688, compressed-tensors divides by 224; the block's scale is 448.
  meta.format = MARLIN_FORMAT_NVFP4;
  const TensorScale multiply{0, 12.0f / 2688, false}, divide{0, 224.0f, true};
  EXPECT_EQ(decode_value(meta, 7, {448, 0}, &divide), 12.0f);
  EXPECT_EQ(decode_value(meta, 2, {448, 0}, &multiply), 2.0f);
  // MLX with the largest weight 0.7, which the code 7 has: 0.7 / 2688 has no float that gives it back.
  const TensorScale largest{0, 0.7f, false, 2688}, rounded{0, 0.7f / 2688, false};
  EXPECT_EQ(decode_value(meta, 7, {448, 0}, &largest), 0.7f);
  EXPECT_NE(decode_value(meta, 7, {448, 0}, &rounded), 0.7f);
  // MLX: s 0.25, b -1, codes 2 and 7.
  meta.format = MARLIN_FORMAT_INT4;
  meta.zero_kind = ZeroKind::additive;
  EXPECT_EQ(decode_value(meta, 2, {0.25f, -1}, nullptr), -0.5f);
  EXPECT_EQ(decode_value(meta, 7, {0.25f, -1}, nullptr), 0.75f);
}

TEST(Decode, RowsPickTheirTensorScale) {
  WeightMeta meta;
  EXPECT_EQ(tensor_scale_of(meta, 3), nullptr);
  meta.tensor_scales = {{0, 1.0f, false}, {4, 2.0f, true}, {9, 3.0f, false}};
  for (int64_t row = 0; row < 12; ++row) {
    EXPECT_EQ(tensor_scale_of(meta, row)->value, row < 4 ? 1.0f : row < 9 ? 2.0f : 3.0f) << row;
  }
}

TEST(Decode, GroupIndexAndRaggedGroups) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 2;
  meta.k = 5;
  meta.group_size = 16;
  meta.groups = 3;
  meta.scale_type = ScaleType::f32;
  meta.group_index = {2, 0, 2, 1, 0};
  Stripe stripe;
  stripe.codes = {9, 9, 9, 9, 9, 10, 10, 10, 10, 10};
  const float scales[] = {1, 2, 3, 4, 5, 6};
  stripe.scales.resize(sizeof scales);
  std::memcpy(stripe.scales.data(), scales, sizeof scales);
  float out[10];
  decode_rows(meta, stripe, 0, 2, out);
  const float expected[] = {3, 1, 3, 2, 1, 12, 8, 12, 10, 8};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(out[i], expected[i]) << i;
}

}  // namespace
}  // namespace metal_marlin
