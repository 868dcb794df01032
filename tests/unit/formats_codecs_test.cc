// Every number type, exhaustively, against the scalar decoders of the oracle.
#include "formats/codecs.h"

#include "flush_to_zero.h"
#include "oracle.h"
#include "test.h"

namespace metal_marlin {
namespace {

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }

/// Same bits, or both NaN.
testing::AssertionResult same(float got, double expected) {
  const auto want = static_cast<float>(expected);
  if ((std::isnan(want) && std::isnan(got)) || bits(want) == bits(got)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected " << want << " (" << std::hex << bits(want) << "), got " << got << " ("
                                     << bits(got) << ")";
}

TEST(Codecs, EveryE2m1) {
  for (int code = 0; code < 16; ++code) EXPECT_TRUE(same(kE2m1[code], oracle::e2m1(code))) << code;
  EXPECT_TRUE(std::signbit(kE2m1[8]));
}

TEST(Codecs, EveryE8m0) {
  for (int byte = 0; byte < 256; ++byte) EXPECT_TRUE(same(e8m0_to_f32(static_cast<uint8_t>(byte)), oracle::e8m0(byte))) << byte;
  EXPECT_EQ(bits(e8m0_to_f32(0)), 0x00400000u);
  EXPECT_TRUE(std::isnan(e8m0_to_f32(255)));
}

TEST(Codecs, EveryE4m3BothWays) {
  for (int byte = 0; byte < 256; ++byte) {
    const float f = e4m3_to_f32(static_cast<uint8_t>(byte));
    EXPECT_TRUE(same(f, oracle::e4m3(byte))) << byte;
    EXPECT_EQ(f32_to_e4m3(f), byte) << byte;
  }
  EXPECT_EQ(e4m3_to_f32(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_f32(0x01), 0x1p-9f);
}

TEST(Codecs, E4m3RoundsToEvenAndSaturates) {
  for (int byte = 0; byte < 0x7e; ++byte) {
    const double low = oracle::e4m3(byte), high = oracle::e4m3(byte + 1);
    const auto tie = static_cast<float>((low + high) / 2);
    EXPECT_EQ(f32_to_e4m3(tie), byte + byte % 2) << byte;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(tie, 0.0f)), byte) << byte;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(tie, 1e9f)), byte + 1) << byte;
    EXPECT_EQ(f32_to_e4m3(-tie), (byte + byte % 2) | 0x80) << byte;
  }
  EXPECT_EQ(f32_to_e4m3(1e30f), 0x7e);
  EXPECT_EQ(f32_to_e4m3(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()) & 0x7f, 0x7f);
  EXPECT_EQ(f32_to_e4m3(1e-30f), 0);
}

TEST(Codecs, EveryF16AndBf16ToFloat) {
  for (int h = 0; h < 65536; ++h) {
    ASSERT_TRUE(same(f16_to_f32(static_cast<uint16_t>(h)), oracle::f16(h))) << h;
    ASSERT_TRUE(same(bf16_to_f32(static_cast<uint16_t>(h)), oracle::bf16(h))) << h;
  }
}

/// Each value of the type, its ties with its neighbors, and the floats beside both.
template <class Encode, class Reference, class Decode>
void check_encoder(Encode encode, Reference reference, Decode decode) {
  const auto check = [&](float f) {
    const uint16_t got = encode(f), want = reference(static_cast<double>(f));
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(decode(got)));
    } else {
      ASSERT_EQ(got, want) << std::hex << bits(f);
    }
  };
  for (int h = 0; h < 65536; ++h) {
    const double low = decode(h), high = decode(h + 1 > 65535 ? h : h + 1);
    check(static_cast<float>(low));
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto tie = static_cast<float>((low + high) / 2);
    check(tie);
    check(std::nextafter(tie, 0.0f));
    check(std::nextafter(tie, std::copysign(std::numeric_limits<float>::infinity(), tie)));
  }
  for (const float f : {65504.0f, 65519.996f, 65520.0f, 65536.0f, 3.4028235e38f, 0x1p-25f, 0x1.000002p-25f, 0x1p-149f}) {
    check(f);
    check(-f);
  }
  std::mt19937 random(20240607);
  for (int i = 0; i < 200000; ++i) check(std::bit_cast<float>(static_cast<uint32_t>(random())));
}

TEST(Codecs, FloatToF16) {
  check_encoder(f32_to_f16, oracle::to_f16, oracle::f16);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
}

TEST(Codecs, FloatToBf16) { check_encoder(f32_to_bf16, oracle::to_bf16, oracle::bf16); }

TEST(Codecs, ArraysOfAnyAlignment) {
  std::mt19937 random(7);
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
    const int64_t width = oracle::bytes_of(dtype), n = 37;
    std::vector<uint8_t> memory(static_cast<size_t>(n * width + 1));
    std::vector<float> in(static_cast<size_t>(n)), out(static_cast<size_t>(n));
    for (float& f : in) f = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-20f;
    encode_floats(dtype, in.data(), n, memory.data() + 1);
    decode_floats(dtype, memory.data() + 1, n, out.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_TRUE(same(out[static_cast<size_t>(i)], oracle::read(dtype, memory.data() + 1, i))) << dtype << " " << i;
      std::vector<uint8_t> expected(static_cast<size_t>(width));
      oracle::write(dtype, expected.data(), 0, static_cast<double>(in[static_cast<size_t>(i)]));
      EXPECT_EQ(std::memcmp(expected.data(), memory.data() + 1 + i * width, static_cast<size_t>(width)), 0)
          << dtype << " " << i;
    }
  }
}

TEST(Codecs, ScalesOfEveryType) {
  const float one = 1.5f;
  const uint16_t half = 0xbe00, brain = 0x4049;
  const uint8_t exponent = 130, small = 0x38;
  EXPECT_EQ(decode_scale(ScaleType::f32, reinterpret_cast<const uint8_t*>(&one)), 1.5f);
  EXPECT_EQ(decode_scale(ScaleType::f16, reinterpret_cast<const uint8_t*>(&half)), -1.5f);
  EXPECT_EQ(decode_scale(ScaleType::bf16, reinterpret_cast<const uint8_t*>(&brain)), 3.140625f);
  EXPECT_EQ(decode_scale(ScaleType::e8m0, &exponent), 8.0f);
  EXPECT_EQ(decode_scale(ScaleType::e4m3, &small), 1.0f);
}

/// Subnormals survive a host that flushes them.
TEST(Codecs, DoubleAndBackUnderFlushToZero) {
  const std::vector<double> numbers = {0.0,
                                       -0.0,
                                       0x1p-149,
                                       -0x1p-149,
                                       0x1.8p-149,
                                       0x1p-150,
                                       0x1p-128,
                                       0x1.fffffcp-127,
                                       0x1.ffffffp-127,
                                       0x1p-126,
                                       -0x1.800001p-130,
                                       1.0,
                                       0x1.000001p0,
                                       3e38,
                                       1e39,
                                       -HUGE_VAL};
  for (const bool flush : {false, true}) {
    std::vector<float> narrowed;
    std::vector<double> widened;
    {
      const oracle::FlushToZero mode(flush);
      for (const double x : numbers) narrowed.push_back(f64_to_f32(x));
      for (const float f : narrowed) widened.push_back(f32_to_f64(f));
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_TRUE(same(narrowed[i], numbers[i])) << numbers[i] << " flush " << flush;
      EXPECT_EQ(widened[i], static_cast<double>(narrowed[i])) << numbers[i] << " flush " << flush;
    }
  }
}

}  // namespace
}  // namespace metal_marlin
