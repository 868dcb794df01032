// What the packer of the simdgroup order writes, read back by the words of shaders/common/layout.h, and the rows that it
// refuses.
#include "backends/gpu/pack.h"
#include "core/thread_pool.h"
#include "recorded.h"
#include "test.h"

namespace gpu_packing_tests {
namespace {

using namespace device_test;
using mm::ScaleType;
using mm::Stripe;
using mm::WeightMeta;

/// Weights of one-byte or float32 scales, which a test fills as it likes.
struct Source final : mm::WeightSource {
  Source(marlin_format format, int64_t n, int64_t k, int64_t group_size, ScaleType scale_type) {
    meta_.format = format;
    meta_.n = n;
    meta_.k = k;
    meta_.group_size = group_size;
    meta_.groups = (k + group_size - 1) / group_size;
    meta_.scale_type = scale_type;
    scales.assign(static_cast<size_t>(n * meta_.groups) * mm::scale_bytes(scale_type), 0);
  }
  WeightMeta& change() { return meta_; }
  static uint8_t code(int64_t row, int64_t k) { return static_cast<uint8_t>((row * 5 + k * 7 + k / 16) % 16); }
  uint8_t zero(int64_t row, int64_t group) const { return static_cast<uint8_t>((row + 3 * group + 1) % 16); }
  mm::Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.clear();
    out.zeros.clear();
    for (int64_t row = first; row < first + count; ++row) {
      for (int64_t k = 0; k < meta_.k; ++k) out.codes.push_back(code(row, k));
      for (int64_t g = 0; g < meta_.groups && meta_.zero_kind == mm::ZeroKind::integer; ++g) out.zeros.push_back(zero(row, g));
    }
    const auto bytes = static_cast<std::ptrdiff_t>(static_cast<size_t>(meta_.groups) * mm::scale_bytes(meta_.scale_type));
    out.scales.assign(scales.begin() + first * bytes, scales.begin() + (first + count) * bytes);
    return {};
  }
  std::vector<uint8_t> scales;  // [n][groups]
};

struct Packed {
  gpu::RowBlockLayout layout;
  std::vector<std::byte> bytes;
  bool fits = false;
};
Packed packed(const Source& source, gpu::Exponents exponents = gpu::Exponents::bytes) {
  auto plan = gpu::plan_packing(source.meta(), exponents);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  Packed out{plan.value().layout, std::vector<std::byte>(plan.value().layout.bytes), false};
  mm::BackendOptions options;
  options.threads = 1;
  const auto runner = mm::make_task_runner(options);
  const auto fits = gpu::pack_weights(source, plan.value(), out.bytes, *runner);
  EXPECT_TRUE(fits.ok()) << fits.status().message();
  out.fits = fits.ok() && fits.value();
  return out;
}

/// The INT4 code of a slot.
uint32_t code_at(const Packed& p, int64_t row, int slot) {
  const auto slots = static_cast<int>(p.layout.slots);
  int64_t at = row / kRowBlock * p.layout.row_block_code_bytes();
  int block = 0;
  for (; block_begin(slots, block) + block_slots(slots, block) <= slot; ++block)
    at += block_slots(slots, block) * kRowBlock / 2;
  const int in_block = slot - block_begin(slots, block), units = block_slots(slots, block) / 32;
  const int unit = in_block / kUnitSlots, lane = lane_at(static_cast<int>(row % 8), unit / units);
  uint32_t word = 0;
  std::memcpy(&word, p.bytes.data() + at + ((unit % units * kLanes + lane) * 4 + row % kRowBlock / 8) * 4, 4);
  const int e = slot % kUnitSlots;
  return word >> (16 * (e / 4) + 4 * (e % 4)) & 15;
}

/// All kinds of blocks, and rows beyond one row block.
TEST(GpuPacking, PutsCodesWhereTheKernelsReadThem) {
  const Source source(MARLIN_FORMAT_INT4, 2 * kRowBlock + 3, 2 * kBlockSlots + 64 + 32, 32, ScaleType::f32);
  const Packed p = packed(source);
  ASSERT_TRUE(p.fits);
  ASSERT_EQ(p.layout.slots, source.meta().k);
  for (int64_t row = 0; row < source.meta().n; ++row)
    for (int slot = 0; slot < p.layout.slots; ++slot)
      ASSERT_EQ(code_at(p, row, slot), Source::code(row, slot)) << "row " << row << ", slot " << slot;
}

/// A padded slot decodes to 0 only if its code is the zero point of its own group.
TEST(GpuPacking, PadsWithTheZeroOfTheGroup) {
  for (const auto& [k, group] : {std::pair<int64_t, int64_t>{40, 32}, {300, 256}, {150, 128}}) {
    Source source(MARLIN_FORMAT_INT4, 5, k, group, ScaleType::f32);
    source.change().zero_kind = mm::ZeroKind::integer;
    const Packed p = packed(source);
    ASSERT_TRUE(p.fits);
    ASSERT_GT(p.layout.slots, k);
    for (int64_t row = 0; row < 5; ++row)
      for (auto slot = static_cast<int>(k); slot < p.layout.slots; ++slot) {
        if (slot / group == (k - 1) / group)
          EXPECT_EQ(code_at(p, row, slot), source.zero(row, slot / group)) << k << ' ' << slot;
      }
  }
}

/// Exponents `lo` and `hi` in one row of four, the third.
Source exponents(marlin_format format, int lo, int hi) {
  Source source(format, 4, 64, 32, ScaleType::e8m0);
  std::fill(source.scales.begin(), source.scales.end(), uint8_t{127});
  source.scales[4] = static_cast<uint8_t>(lo);
  source.scales[5] = static_cast<uint8_t>(hi);
  return source;
}

/// The smallest number of a code times its scale must be a normal float when the row's exponents are moved down by `moved`.
TEST(GpuPacking, RefusesRowsWhoseExponentsAreTooFarApart) {
  struct Case {
    marlin_format format;
    int usual;     // shift of the stored exponents
    int smallest;  // log2 of the smallest code
  };
  for (const Case& c : {Case{MARLIN_FORMAT_FP4, kFp4Exponent, -1}, Case{MARLIN_FORMAT_FP8, kE4m3Exponent, -9}})
    for (const int moved : {1, 5}) {
      const int hi = kLargestExponent - c.usual + moved;
      if (hi > 254) continue;
      const int least = 1 - c.smallest + moved;  // where 2^(least - 127 + smallest - moved) is 2^-126
      EXPECT_TRUE(packed(exponents(c.format, least, hi)).fits) << c.format << ' ' << moved;
      EXPECT_FALSE(packed(exponents(c.format, least - 1, hi)).fits) << c.format << ' ' << moved;
      EXPECT_TRUE(packed(exponents(c.format, least - 1, hi), gpu::Exponents::floats).fits);
      EXPECT_TRUE(packed(exponents(c.format, 0, hi - moved)).fits) << "nothing is moved";
    }
}

/// A tensor scale times the power of two of a row that was moved is exact, or the row is refused.
TEST(GpuPacking, RefusesATensorScaleThatLeavesTheNormalNumbers) {
  const int top = kLargestExponent - kFp4Exponent;
  const auto fits = [](int hi, float tensor) {
    Source source = exponents(MARLIN_FORMAT_FP4, 120, hi);
    source.change().tensor_scales = {{0, tensor, false, 1}};
    return packed(source).fits;
  };
  const float tiny = std::ldexp(1.0f, -130), large = std::ldexp(1.5f, 127);
  EXPECT_TRUE(fits(top, tiny)) << "nothing is moved";
  EXPECT_TRUE(fits(top, large));
  EXPECT_FALSE(fits(top + 1, tiny));
  EXPECT_FALSE(fits(top + 1, large));
  EXPECT_TRUE(fits(top + 1, 0.75f));
}

/// A factor of a row costs a multiplication in each kernel, which a tensor scale of 1 does not need.
TEST(GpuPacking, HasRowFactorsOnlyWhereTheyDoSomething) {
  const auto factor = [](std::vector<mm::TensorScale> scales) {
    Source source(MARLIN_FORMAT_INT4, 64, 64, 32, ScaleType::f32);
    source.change().tensor_scales = std::move(scales);
    const auto plan = gpu::plan_packing(source.meta());
    EXPECT_TRUE(plan.ok());
    return plan.value().layout.row_factor;
  };
  EXPECT_EQ(factor({}), kRowFactorNone);
  EXPECT_EQ(factor({{0, 1, false, 1}}), kRowFactorNone);
  EXPECT_EQ(factor({{0, 1, false, 1}, {32, 2, false, 1}}), kRowFactorMultiply);
  EXPECT_EQ(factor({{0, 2, true, 1}}), kRowFactorDivide);
}

/// Experts of one layout lie in one buffer, one behind the other, and each has its own codes.
TEST(GpuPacking, PutsExpertsBehindEachOther) {
  for (const bool unified : {true, false}) {
    World world;
    world.device->change().unified_memory = unified;
    constexpr int64_t kN = 40, kK = 64;
    std::vector<std::vector<float>> values;
    std::vector<marlin_pack_desc> parts;
    for (unsigned e = 0; e < 3; ++e) values.push_back(abi_test::numbers(kN * kK, 20 + e));
    for (const auto& each : values) parts.push_back(abi_test::pack_desc(each, kN, kK));
    const mm::weights all = mm::pack(world.context, parts, 3);
    const auto& experts = all.get()->experts;
    ASSERT_EQ(experts.size(), 3u);
    const auto part_of = [](const mm::PackedWeights& w) { return static_cast<const gpu::GpuWeights&>(w).part(0); };
    const uint64_t stride = part_of(*experts[1]).offset;
    EXPECT_GE(stride, layout_of(all).bytes);
    for (size_t e = 0; e < 3; ++e) {
      const auto place = part_of(*experts[e]);
      EXPECT_EQ(place.buffer, part_of(*experts[0]).buffer);
      EXPECT_EQ(place.offset, e * stride);
      const mm::weights alone = mm::pack(world.context, parts[e]);
      const auto bytes_at = [](const gpu::DevicePointer& at) {
        return static_cast<const HostBuffer&>(*at.buffer).data() + at.offset;
      };
      EXPECT_EQ(std::memcmp(bytes_at(place), bytes_at(part_of(*alone.get()->experts.front())), layout_of(all).scales_at), 0)
          << e;
    }
  }
}

}  // namespace
}  // namespace gpu_packing_tests
