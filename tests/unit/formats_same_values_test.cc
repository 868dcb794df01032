// Weights that another source reads in another form keep their values, bit for bit, or it says that they do not: codes and
// scales that every backend knows, float16 scales, and INT8 for UINT8.
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/float16_scales.h"
#include "formats/signed_bytes.h"
#include "formats/widen.h"
#include "problem/memory_source.h"
#include "test.h"

namespace metal_marlin {
namespace {

std::vector<float> decoded(const WeightSource& source, int64_t first, int64_t count) {
  Stripe stripe;
  EXPECT_TRUE(source.read(first, count, stripe).ok());
  std::vector<float> values(static_cast<size_t>(count * source.meta().k));
  decode_rows(source.meta(), stripe, 0, count, values.data());
  return values;
}

void expect_same_values(const WeightSource& source, const WeightSource& other, int64_t first, int64_t count) {
  const std::vector<float> expected = decoded(source, first, count), found = decoded(other, first, count);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!std::isnan(expected[i]) || !std::isnan(found[i])) {
      ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(found[i])) << i;
    }
}

/// The numbers in the type of scales or zeros.
std::vector<uint8_t> encoded(ScaleType type, const std::vector<float>& numbers) {
  std::vector<uint8_t> bytes(numbers.size() * scale_bytes(type));
  encode_floats(scale_dtype(type), numbers.data(), static_cast<int64_t>(numbers.size()), bytes.data());
  return bytes;
}

TEST(WidenedSource, KeepsEveryValue) {
  std::mt19937 random(20261122);
  int narrow = 0;
  for (const FormatRow& row : format_table())
    for_each_kind(row, [&](WeightMeta meta) {
      for (const int64_t group : {16, 32}) {
        meta.n = 5;
        meta.k = 300;
        meta.group_size = row.fixed_group ? row.default_group : group;
        set_groups(meta, meta.sparse || meta.has_two_level_scales() ? Order::plain : Order::shuffled, random);
        MemorySource source;
        source.mutable_meta() = meta;
        fill_randomly(source, random, false);
        if (!is_narrow(meta) || meta.has_nested_scales()) continue;  // formats_nested_test: they are rounded
        ++narrow;
        SCOPED_TRACE(testing::Message() << row.name << " " << scale_type_name(meta.scale_type) << " zeros "
                                        << static_cast<int>(meta.zero_kind));
        const WidenedSource wide(source);
        ASSERT_TRUE(check_meta(wide.meta()).ok()) << check_meta(wide.meta()).message();
        EXPECT_FALSE(is_narrow(wide.meta()));
        expect_same_values(source, wide, 0, 5);
        expect_same_values(source, wide, 2, 2);
      }
    });
  EXPECT_GT(narrow, 50);
}

/// INT4 [2, 64] in groups of 32, whose scales and additive zeros are these numbers, in the types given.
void fill_with(MemorySource& source, ScaleType scales, ScaleType zeros, const std::vector<float>& of_scales,
               const std::vector<float>& of_zeros) {
  WeightMeta& meta = source.mutable_meta();
  meta = int4_of_two_rows(scales);
  meta.zero_kind = ZeroKind::additive;
  meta.zero_type = zeros;
  std::mt19937 random(7);
  fill_randomly(source, random, false);
  source.all().scales = encoded(scales, of_scales);
  source.all().zeros = encoded(zeros, of_zeros);
}

TEST(Float16Scales, KeepEveryValue) {
  // The last two are the smallest number of float16, and its largest with eight bits.
  const std::vector<float> numbers = {0.5f, -0.0f, std::ldexp(1.0f, -24), 65280.0f};
  constexpr ScaleType kTypes[] = {ScaleType::f32, ScaleType::bf16, ScaleType::f16};
  for (const ScaleType scales : kTypes)
    for (const ScaleType zeros : kTypes) {
      MemorySource source;
      fill_with(source, scales, zeros, numbers, numbers);
      const bool longer = scales != ScaleType::f16 || zeros != ScaleType::f16;
      ASSERT_EQ(has_longer_scales(source.meta()), longer);
      if (!longer) continue;
      const Float16Scales short_ones(source);
      EXPECT_EQ(short_ones.meta().scale_type, ScaleType::f16);
      EXPECT_EQ(short_ones.meta().zero_type, ScaleType::f16);
      expect_same_values(source, short_ones, 0, 2);
      EXPECT_TRUE(short_ones.is_exact());
    }
}

TEST(Float16Scales, RefuseNumbersThatAreNone) {
  const float payload = std::bit_cast<float>(0x7FC00001u);
  const std::vector<float> ones(4, 1.0f);
  for (const float number : {1e-9f, 1e9f, 1.0f + std::ldexp(1.0f, -20), payload})
    for (const bool in_zeros : {false, true}) {
      MemorySource source;
      const std::vector<float> numbers = {1, 1, 1, number};
      fill_with(source, ScaleType::f32, ScaleType::f32, in_zeros ? ones : numbers, in_zeros ? numbers : ones);
      const Float16Scales short_ones(source);
      Stripe stripe;
      EXPECT_TRUE(short_ones.is_exact());
      EXPECT_EQ(short_ones.read(0, 1, stripe).code(), MARLIN_OK) << "the row before";
      EXPECT_EQ(short_ones.read(0, 2, stripe).code(), MARLIN_E_UNSUPPORTED) << number;
      EXPECT_FALSE(short_ones.is_exact());
    }
}

void fill_bytes(MemorySource& source, ZeroKind zeros, ScaleType type, int64_t group) {
  WeightMeta& meta = source.mutable_meta();
  meta.format = MARLIN_FORMAT_UINT8;
  meta.n = 3;
  meta.k = 200;
  meta.group_size = group;
  meta.zero_kind = zeros;
  meta.scale_type = meta.zero_type = type;
  std::mt19937 random(static_cast<uint32_t>(group));
  set_groups(meta, Order::plain, random);
  fill_randomly(source, random, true);
}

TEST(SignedBytes, KeepEveryBit) {
  for (const ZeroKind zeros : {ZeroKind::none, ZeroKind::integer, ZeroKind::additive})
    for (const ScaleType type : {ScaleType::f16, ScaleType::bf16})
      for (const int64_t group : {32, 64, 128, 200}) {
        MemorySource source;
        fill_bytes(source, zeros, type, group);
        const bool taken = SignedBytes::takes(source.meta());
        EXPECT_EQ(taken, zeros == ZeroKind::none || group != 200);
        if (!taken) continue;
        const SignedBytes bytes(source);
        EXPECT_EQ(bytes.meta().format, MARLIN_FORMAT_INT8);
        expect_same_values(source, bytes, 0, 3);
        EXPECT_TRUE(bytes.is_exact());
      }
}

/// A scale that is negative or large, and zeros whose sums have more bits than float32 and double, among ones and zeros.
TEST(SignedBytes, RefuseWhatFloat32DoesNotHold) {
  for (const auto& [scale, zero] :
       {std::pair(1.0f, 0.0f), {-0x1p-10f, 0.0f}, {0x1p127f, 0.0f}, {0x1p-20f, 0x1.000002p20f}, {0x1p-20f, 0x1p100f}}) {
    MemorySource source;
    fill_bytes(source, zero != 0 ? ZeroKind::additive : ZeroKind::integer, ScaleType::f32, 32);
    const auto groups = static_cast<size_t>(3 * source.meta().groups);
    source.all().scales = encoded(ScaleType::f32, std::vector<float>(groups, 1.0f));
    store(source.all().scales.data(), scale);
    std::fill(source.all().zeros.begin(), source.all().zeros.end(), uint8_t{0});
    if (zero != 0) store(source.all().zeros.data(), zero);
    const SignedBytes bytes(source);
    const bool exact = scale == 1 && zero == 0;
    Stripe stripe;
    EXPECT_EQ(bytes.read(0, 3, stripe).code(), exact ? MARLIN_OK : MARLIN_E_UNSUPPORTED) << scale << ", " << zero;
    EXPECT_EQ(bytes.is_exact(), exact);
  }
}

}  // namespace
}  // namespace metal_marlin
