// Scales that are float16 numbers, whatever type the file gives them.
#include "formats/float16_scales.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "formats/codecs.h"
#include "formats/decode.h"
#include "problem/memory_source.h"

namespace metal_marlin {
namespace {

/// INT4 [2, 64] in groups of 32, whose scales and additive zeros are `numbers`, in the types given.
void fill_with(MemorySource& source, ScaleType scales, ScaleType zeros, const std::vector<float>& numbers) {
  WeightMeta& meta = source.mutable_meta();
  meta = int4_of_two_rows(scales);
  meta.zero_kind = ZeroKind::additive;
  meta.zero_type = zeros;
  std::mt19937 random(7);
  fill_randomly(source, random, false);
  const auto put = [&](std::vector<uint8_t>& to, ScaleType type) {
    to.clear();
    for (const float number : numbers) {
      uint8_t bytes[4];
      const uint16_t bf16 = f32_to_bf16(number);
      const uint16_t f16 = f32_to_f16(number);
      if (type == ScaleType::f32) std::memcpy(bytes, &number, 4);
      if (type == ScaleType::bf16) std::memcpy(bytes, &bf16, 2);
      if (type == ScaleType::f16) std::memcpy(bytes, &f16, 2);
      to.insert(to.end(), bytes, bytes + scale_bytes(type));
    }
  };
  put(source.all().scales, scales);
  put(source.all().zeros, zeros);
}

std::vector<float> values_of(const WeightSource& source) {
  Stripe stripe;
  EXPECT_TRUE(source.read(0, 2, stripe).ok());
  std::vector<float> values(static_cast<size_t>(2 * source.meta().k));
  decode_rows(source.meta(), stripe, 0, 2, values.data());
  return values;
}

constexpr ScaleType kTypes[] = {ScaleType::f32, ScaleType::bf16, ScaleType::f16};

TEST(Float16Scales, KeepEveryValue) {
  for (const ScaleType scales : kTypes)
    for (const ScaleType zeros : kTypes) {
      MemorySource source;
      // The last two are the smallest number of float16, and its largest with eight bits.
      fill_with(source, scales, zeros, {0.5f, -0.0f, std::ldexp(1.0f, -24), 65280.0f});
      const bool longer = scales != ScaleType::f16 || zeros != ScaleType::f16;
      ASSERT_EQ(has_longer_scales(source.meta()), longer);
      if (!longer) continue;
      const Float16Scales short_ones(source);
      EXPECT_EQ(short_ones.meta().scale_type, ScaleType::f16);
      EXPECT_EQ(short_ones.meta().zero_type, ScaleType::f16);
      const std::vector<float> expected = values_of(source), found = values_of(short_ones);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(found[i])) << i;
      EXPECT_TRUE(short_ones.is_exact());
    }
}

TEST(Float16Scales, RefuseNumbersThatAreNone) {
  const float payload = std::bit_cast<float>(0x7FC00001u);
  const float kNone[] = {1e-9f, 1e9f, 1.0f + std::ldexp(1.0f, -20), payload};
  for (const float number : kNone)
    for (const bool in_zeros : {false, true}) {
      MemorySource source;
      std::vector<float> numbers = {1, 1, 1, number};
      fill_with(source, ScaleType::f32, in_zeros ? ScaleType::f32 : ScaleType::f16, numbers);
      if (in_zeros) {  // the scales are right
        const float one = 1;
        std::memcpy(source.all().scales.data() + 12, &one, 4);
      }
      const Float16Scales short_ones(source);
      Stripe stripe;
      EXPECT_TRUE(short_ones.is_exact());
      EXPECT_EQ(short_ones.read(0, 1, stripe).code(), MARLIN_OK) << "the row before";
      EXPECT_EQ(short_ones.read(0, 2, stripe).code(), MARLIN_E_UNSUPPORTED) << number;
      EXPECT_FALSE(short_ones.is_exact());
    }
}

}  // namespace
}  // namespace metal_marlin
