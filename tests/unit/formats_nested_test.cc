// Nested scales: the values are exact, and parts of a matrix have the values of the whole.
#include "backends/cpu/pack.h"
#include "core/parallel.h"
#include "fails.h"
#include "formats/decode.h"
#include "formats/widen.h"
#include "problem/memory_source.h"
#include "sources/concat.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin {
namespace {

__extension__ typedef __int128 Integer;

/// integer * 2^exponent, rounded to nearest, ties to even.
float rounded(Integer integer, int exponent) {
  const bool negative = integer < 0;
  Integer magnitude = negative ? -integer : integer;
  int dropped = 0;
  while (magnitude >> dropped >= Integer{1} << 24) ++dropped;
  if (dropped != 0) {
    const Integer half = Integer{1} << (dropped - 1), rest = magnitude & ((half << 1) - 1);
    magnitude >>= dropped;
    if (rest > half || (rest == half && (magnitude & 1) != 0)) ++magnitude;
  }
  const float value = std::ldexp(static_cast<float>(static_cast<int64_t>(magnitude)), exponent + dropped);
  return negative ? -value : value;
}

/// One row of 16 codes, which stand for the integers of `codebook`, with the scale unit * factor + offset * 2^shift.
struct NestedRow {
  WeightMeta meta;
  Stripe stripe;
};
NestedRow nested_row(const std::vector<int32_t>& codebook, int32_t unit, int32_t factor, int32_t offset, int shift) {
  NestedRow row;
  row.meta.format = MARLIN_FORMAT_CODEBOOK4;
  row.meta.n = 1;
  row.meta.k = row.meta.group_size = 16;
  row.meta.groups = row.meta.factor_groups = 1;
  row.meta.scale_type = ScaleType::nested;
  for (const int32_t q : codebook) row.meta.codebook.push_back(static_cast<float>(q));
  row.meta.scale_map.assign(256, 0);
  row.meta.scale_map[77] = static_cast<float>(unit);
  for (uint8_t i = 0; i < 16; ++i) row.stripe.codes.push_back(i);
  row.stripe.scales = {77};
  row.stripe.scale_factors.resize(4);
  row.stripe.scale_offsets.resize(4);
  store(row.stripe.scale_factors.data(), static_cast<float>(factor));
  store(row.stripe.scale_offsets.data(), std::ldexp(static_cast<float>(offset), shift));
  return row;
}

void expect_exact_nested(const std::vector<int32_t>& codebook, int32_t unit, int32_t factor, int32_t offset, int shift) {
  const NestedRow row = nested_row(codebook, unit, factor, offset, shift);
  ASSERT_TRUE(check_meta(row.meta).ok()) << check_meta(row.meta).message();
  float values[16];
  decode_rows(row.meta, row.stripe, 0, 1, values);
  const int low = std::min(shift, 0);
  const Integer scale = (Integer{unit} * factor << -low) + (Integer{offset} << (shift - low));
  for (size_t i = 0; i < 16; ++i)
    ASSERT_EQ(values[i], rounded(scale * codebook[i], low))
        << codebook[i] << " * (" << unit << " * " << factor << " + " << offset << " * 2^" << shift << ")";
  EXPECT_EQ(decode_group(row.meta, row.stripe, 0, 0).scale, rounded(scale, low));
}

TEST(NestedScales, RoundOnce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto significand = [&] {
    const auto bits = static_cast<int32_t>(random() % (1u << 24)) >> random() % 24;
    return random() % 2 == 0 ? bits : -bits;
  };
  for (int i = 0; i < 20000; ++i) {
    std::vector<int32_t> codebook;
    for (int q = 0; q < 16; ++q) codebook.push_back(significand());
    expect_exact_nested(codebook, significand(), significand(), significand(), static_cast<int>(random() % 45) - 20);
  }
}

/// (2^23 + 1) (2^23 - 1) is 2^46 - 1. With an offset whose unit is 2^47, the sum lies just below the middle of two floats, and
/// in double it would be the middle.
TEST(NestedScales, RoundOnceNearTheMiddleOfTwoFloats) {
  const std::vector<int32_t> codebook = {1,       -1, 2, 3, 5, 7, 11, 1023, 1025, 4095, 4097, (1 << 23) + 1, (1 << 23) - 1,
                                         1 << 23, 9,  0};
  for (const int32_t odd : {(1 << 23) + 1, (1 << 24) - 1, (1 << 23) + 4567, (1 << 23) + 4566})
    for (const int32_t less : {1, -1})
      for (const int32_t sign : {1, -1})
        for (const int shift : {46, 47, 48}) {
          expect_exact_nested(codebook, (1 << 23) + less, (1 << 23) - less, odd * sign, shift);
          expect_exact_nested(codebook, 1 << 23, 1 << 23, odd * sign, shift);
        }
}

/// The scale of a block of zeros may be negative.
TEST(NestedScales, AZeroHasTheSignOfItsFormula) {
  const NestedRow row = nested_row({0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, -3, 1, 2, 0);
  float values[16];
  decode_rows(row.meta, row.stripe, 0, 1, values);
  EXPECT_TRUE(values[0] == 0 && std::signbit(values[0]));
  EXPECT_EQ(values[1], -1);
}

TEST(NestedScales, NaNAndInfinityGiveWhatTheFormulaGives) {
  NestedRow row = nested_row(std::vector<int32_t>(16, 1), 1, 1, 0, 0);
  const auto value_with = [&](float unit, float factor, float offset) {
    row.meta.scale_map[77] = unit;
    store(row.stripe.scale_factors.data(), factor);
    store(row.stripe.scale_offsets.data(), offset);
    float values[16];
    decode_rows(row.meta, row.stripe, 0, 1, values);
    return values[0];
  };
  EXPECT_TRUE(std::isnan(value_with(NAN, 1, 1)));
  EXPECT_TRUE(std::isnan(value_with(1, 1, NAN)));
  EXPECT_TRUE(std::isnan(value_with(INFINITY, 1, -INFINITY)));
  EXPECT_EQ(value_with(INFINITY, 1, -5), INFINITY);
  EXPECT_EQ(value_with(1, -INFINITY, 5), -INFINITY);
  EXPECT_EQ(value_with(3e38f, 3e38f, 0), INFINITY);
}

// --- parts of a matrix
// ----------------------------------------------------------------------------------------------------------

std::unique_ptr<MemorySource> nested_source(int64_t n, int64_t k, int64_t group, int64_t factor_groups, std::mt19937& random) {
  auto source = std::make_unique<MemorySource>();
  WeightMeta& meta = source->mutable_meta();
  meta.format = MARLIN_FORMAT_NF4;
  meta.scale_type = ScaleType::nested;
  set_scale_map(meta);
  meta.n = n;
  meta.k = k;
  meta.group_size = group;
  set_groups(meta, Order::plain, random);
  meta.factor_groups = factor_groups;
  EXPECT_TRUE(check_meta(meta).ok()) << check_meta(meta).message();
  fill_randomly(*source, random, true);
  return source;
}

std::vector<float> decoded_nested(const WeightSource& source) {
  Stripe stripe;
  EXPECT_TRUE(source.read(0, source.meta().n, stripe).ok());
  std::vector<float> values(static_cast<size_t>(source.meta().n * source.meta().k));
  decode_rows(source.meta(), stripe, 0, source.meta().n, values.data());
  return values;
}

/// Whether the runs of groups that the meta promises have one factor each.
bool has_the_promised_runs(const WeightSource& source) {
  const WeightMeta& meta = source.meta();
  Stripe stripe;
  EXPECT_TRUE(source.read(0, meta.n, stripe).ok());
  for (int64_t i = 0; i < meta.n * meta.groups; ++i) {
    const int64_t in_row = i % meta.groups, first = i - in_row + in_row / meta.factor_groups * meta.factor_groups;
    if (load<uint32_t>(&stripe.scale_factors[static_cast<size_t>(4 * i)]) !=
        load<uint32_t>(&stripe.scale_factors[static_cast<size_t>(4 * first)]))
      return false;
  }
  return true;
}

TEST(NestedScales, ShardsAreTheWhole) {
  std::mt19937 random(20261127);
  for (const int64_t factor_groups : {1, 2, 3, 4, 8, 100})
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 256}, {256, 256}, {64, 448}, {192, 64}, {32, 100}}) {
      auto source = nested_source(7, 512, 64, factor_groups, random);
      const std::vector<float> whole = decoded_nested(*source);
      auto shard = must(make_shard(std::move(source), 2, 4, first, count));
      if (shard->meta().group_index.empty()) {
        EXPECT_TRUE(has_the_promised_runs(*shard));
      }
      const std::vector<float> part = decoded_nested(*shard);
      for (int64_t r = 0; r < 4; ++r)
        for (int64_t k = 0; k < count; ++k)
          ASSERT_EQ(part[static_cast<size_t>(r * count + k)], whole[static_cast<size_t>((r + 2) * 512 + first + k)]);
    }
}

TEST(NestedScales, PartsKeepTheirOffsets) {
  std::mt19937 random(20261128);
  std::vector<std::unique_ptr<WeightSource>> parts;
  std::vector<float> expected;
  for (const int64_t factor_groups : {4, 6}) {
    parts.push_back(nested_source(3, 512, 32, factor_groups, random));
    const std::vector<float> values = decoded_nested(*parts.back());
    expected.insert(expected.end(), values.begin(), values.end());
  }
  const auto joined = must(make_concat(std::move(parts)));
  EXPECT_EQ(joined->meta().factor_groups, 2);
  EXPECT_TRUE(has_the_promised_runs(*joined));
  EXPECT_EQ(decoded_nested(*joined), expected);
}

TEST(NestedScales, PartsWithOtherMapsAreRefused) {
  std::mt19937 random(20261129);
  std::vector<std::unique_ptr<WeightSource>> parts;
  parts.push_back(nested_source(3, 64, 32, 1, random));
  auto other = nested_source(3, 64, 32, 1, random);
  other->mutable_meta().scale_map[255] = 2;
  parts.push_back(std::move(other));
  const auto joined = make_concat(std::move(parts));
  EXPECT_THAT(joined.status(), Fails(MARLIN_E_SHAPE, HasSubstr("part 1: map of nested scales: expected that of part 0")));
}

TEST(NestedScales, WidenedScalesAreRounded) {
  std::mt19937 random(20261130);
  const auto source = nested_source(5, 192, 64, 2, random);
  const WidenedSource wide(*source);
  ASSERT_TRUE(check_meta(wide.meta()).ok()) << check_meta(wide.meta()).message();
  EXPECT_EQ(wide.meta().scale_type, ScaleType::f32);
  Stripe stripe;
  ASSERT_TRUE(wide.read(1, 3, stripe).ok());
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t g = 0; g < 3; ++g)
      EXPECT_EQ(decode_group(wide.meta(), stripe, r, g).scale, decode_group(source->meta(), source->all(), r + 1, g).scale);
}

/// Blocks of 64, of which 256 share a factor: the file has a byte for each block.
TEST(NestedScales, ThePanelsOfTheCpuHaveTheFilesSize) {
  std::mt19937 random(20261201);
  const auto source = nested_source(256, 4096, 64, 64, random);
  SequentialRunner runner;
  const auto packed = must(cpu::pack_weights(*source, Allocator::system(), runner));
  constexpr uint64_t kElements = 256 * 4096, kFile = kElements / 2 + kElements / 64 + kElements / 16384 * 4 + 256 * 4;
  EXPECT_LE(packed->bytes() * 100, kFile * 101);
}

TEST(NestedScales, CheckMetaNamesWhatIsMissing) {
  const auto refused = [](auto change, const char* what) {
    WeightMeta meta = nested_row(std::vector<int32_t>(16, 1), 1, 1, 0, 0).meta;
    change(meta);
    EXPECT_THAT(check_meta(meta), Fails(MARLIN_E_ARGUMENT, HasSubstr(what)));
  };
  refused([](WeightMeta& meta) { meta.scale_map.pop_back(); }, "take a map of 256 floats, found 255");
  refused([](WeightMeta& meta) { meta.scale_type = ScaleType::f32; }, "F32 scales take a map of 0 floats, found 256");
  refused([](WeightMeta& meta) { meta.factor_groups = 0; }, "found one for 0 of nested F32");
  refused(
      [](WeightMeta& meta) {
        meta.scale_type = ScaleType::f32;
        meta.scale_map.clear();
      },
      "found one for 1 of F32");
}

}  // namespace
}  // namespace metal_marlin
