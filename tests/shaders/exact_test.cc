// What decoding gives, bit for bit: every code with every scale, in unpack and through the product kernels.
#include <cmath>
#include <limits>

#include "campaigns.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "kinds.h"

namespace shaders {
namespace {

class Decoding : public testing::TestWithParam<Kind> {};

/// Scales of any bits: NaN, infinity, float32 subnormals; E8M0 rows that span all exponents, and so take float32 scales.
TEST_P(Decoding, UnpackIsExactForScalesOfAnyBits) {
  problem::Case s = case_of(GetParam(), 1, 70, 364);
  s.range = problem::Range::bits;
  const bool no_factor = GetParam().zeros == ZeroKind::additive || is_float(GetParam()) ||
                         metal_marlin::format_row(GetParam().format)->has_codebook_of_floats();
  s.tensor = no_factor ? Tensor::none : GetParam().sparse ? Tensor::two_divide : Tensor::two_parts;
  Problem problem(s);
  ASSERT_TRUE(problem.pack());
  EXPECT_TRUE(problem.check_unpack(MARLIN_F32));
  // A value is rounded to 16 bits in one place for all kinds, so that the short form takes one of the types for each.
  const bool even = number_of(GetParam()) % 2 == 0;
  if (even || whole_campaigns()) {
    EXPECT_TRUE(problem.check_unpack(MARLIN_BF16, {69, 0, 33, 33, -1, 70}));
  }
  if (!even || whole_campaigns()) {
    EXPECT_TRUE(problem.check_unpack(MARLIN_F16));
  }
}

/// Byte n of a scale, or of those that an integer of two levels can be.
uint8_t scale_byte(ScaleType type, int64_t n) {
  switch (type) {
    case ScaleType::u4:
      return static_cast<uint8_t>(n % 16);
    case ScaleType::u6:
      return static_cast<uint8_t>(n % 64);
    case ScaleType::s6:
      return static_cast<uint8_t>(n % 64 - 32);
    default:
      return static_cast<uint8_t>(n);
  }
}

/// Row n has scale byte n, or a number of size 2^(n - 150), and all codes.
void set_scale_of_row(Problem& problem) {
  const auto& meta = problem.source.meta();
  for (int64_t n = 0; n < meta.n; ++n)
    for (int64_t g = 0; g < meta.groups; ++g)
      problem.set_scale(n * meta.groups + g, std::ldexp(1 + 0.0625 * static_cast<double>(n % 16), static_cast<int>(n) - 150),
                        scale_byte(meta.scale_type, n));
  auto& codes = problem.source.all().codes;
  const int bits = metal_marlin::format_row(meta.format)->code_bits;
  if (bits > 8) return;  // floats are not in units of their scale
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(bits == 8 ? i * 7 : (i + i / 64) % (1u << bits));
}

TEST_P(Decoding, UnpackKnowsEveryCodeWithEveryScale) {
  Problem problem(case_of(GetParam(), 1, 256, 64));
  set_scale_of_row(problem);
  ASSERT_TRUE(problem.pack());
  EXPECT_TRUE(problem.check_unpack(MARLIN_F32));
}

/// All halves and bfloats, and as many floats: subnormals, -0, infinities and NaN come back as they are.
TEST(Floats, UnpackKnowsThemAll) {
  for (const Kind& kind : kKinds) {
    if (!is_float(kind)) continue;
    SCOPED_TRACE(kind.name);
    Problem problem(case_of(kind, 1, 256, 256));
    auto& codes = problem.source.all().codes;
    const size_t bytes = codes.size() / 65536;
    for (uint32_t i = 0; i < 65536; ++i) {
      const uint32_t bits = bytes == 2 ? i : i << 16 | (i * 40503u >> 7 & 0xFFFFu);
      std::memcpy(&codes[i * bytes], &bits, bytes);
    }
    for (uint8_t& scale : problem.source.all().scales) scale = 127;
    ASSERT_TRUE(problem.pack());
    EXPECT_TRUE(problem.check_unpack(MARLIN_F32));
  }
}

/// One-hot activations: the product is the weight itself.
TEST_P(Decoding, ProductsOfOneHotRowsAreTheWeights) {
  // The largest code times the largest scale that may be flushed.
  const bool codebook = GetParam().format == MARLIN_FORMAT_CODEBOOK4;  // of numbers below 32
  const int bits = codebook ? 5 : std::min(metal_marlin::format_row(GetParam().format)->code_bits, 8);
  const double flushed = std::ldexp(1, -126 + (GetParam().format == MARLIN_FORMAT_FP8 ? 9 : bits));
  size_t row = number_of(GetParam());  // the short form takes one of three, which the kinds of a kernel share
  for (const char* suffix : {"m6", "m16_n32_direct", "m32_n128_threadgroup"}) {
    if (row++ % 3 != 0 && !whole_campaigns()) continue;
    problem::Case s = case_of(GetParam(), suffix == std::string("m6") ? 6 : 64, 256, 64);
    s.suffix = suffix;
    s.a_type = suffix == std::string("m6") ? MARLIN_F16 : MARLIN_BF16;
    Problem problem(s);
    set_scale_of_row(problem);
    for (size_t i = 0; i < problem.a.size(); ++i)
      problem.a[i] = static_cast<int64_t>(i % 64) == static_cast<int64_t>(i / 64) * 64 / s.m ? 1 : 0;
    ASSERT_TRUE(problem.pack());
    ASSERT_TRUE(problem.run()) << s.describe();
    const oracle::Weights weights = problem.expected();
    for (int64_t m = 0; m < s.m; ++m)
      for (int64_t n = 0; n < s.n; ++n) {
        const double want = oracle::value_f32(weights, n, m * 64 / s.m), got = problem.c_at(m, n);
        const bool nan = std::isnan(weights.scale[static_cast<size_t>(n * weights.groups)]);
        bool infinite = false;
        for (int64_t k = 0; k < s.k; ++k) infinite |= !std::isfinite(oracle::value_f32(weights, n, k));
        // 0 * infinity of the other columns; and float32 subnormals, which may be flushed.
        if (nan) {
          ASSERT_TRUE(std::isnan(got)) << n;
        } else if (infinite && (!std::isfinite(want) || !std::isfinite(got))) {
          ASSERT_FALSE(std::isfinite(got)) << n;
        } else if (weights.additive && GetParam().format == MARLIN_FORMAT_INT4 && suffix == std::string("m6")) {
          ASSERT_NEAR(
              got, want,
              0x1p-22 * (std::fabs(weights.scale[static_cast<size_t>(n * weights.groups)]) * 15 + std::fabs(want)) + 0x1p-126);
        } else if (std::fabs(want) >= flushed) {
          ASSERT_EQ(got, want) << suffix << " m " << m << " n " << n;
        } else {
          ASSERT_NEAR(got, want, flushed) << suffix << " m " << m << " n " << n;
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Decoding, testing::ValuesIn(kKinds), [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace shaders
