// The packed order of codes for mma.m16n8k16, read back by the words of shaders/common/layout.h.
#include "backends/cuda/policy.h"
#include "backends/gpu/pack.h"
#include "core/thread_pool.h"
#include "formats/format_table.h"
#include "test.h"

namespace cuda_packing_tests {
namespace {

using namespace metal_marlin;

/// One group a row; code number i of the matrix is a function of i.
class Codes final : public WeightSource {
 public:
  Codes(marlin_format format, int64_t n, int64_t k, bool sparse = false) {
    meta_.sparse = sparse;
    meta_.format = format;
    meta_.n = n;
    meta_.k = k;
    meta_.group_size = k;
    meta_.groups = 1;
    meta_.scale_type = ScaleType::f32;
  }
  uint8_t code(int64_t row, int64_t k) const {
    const auto mixed = static_cast<uint8_t>((row * meta_.k + k) * 37 >> 2);
    return format_row(meta_.format)->code_bits >= 8 ? mixed : mixed & 15;
  }
  /// Of 2:4 weights; all six pairs of positions occur.
  bool keeps(int64_t row, int64_t k) const { return (mask_of(row, k) >> (k % 4) & 1) != 0; }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.clear();
    const size_t bytes = format_row(meta_.format)->code_bytes();  // a float has its code in each
    for (int64_t i = 0; i < count * meta_.k; ++i)
      out.codes.insert(out.codes.end(), bytes, code(first + i / meta_.k, i % meta_.k));
    out.kept.clear();
    for (int64_t i = 0; meta_.sparse && i < count * meta_.k; i += 4)
      out.kept.push_back(mask_of(first + i / meta_.k, i % meta_.k));
    const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
    out.scales.resize(ones.size() * sizeof(float));
    std::memcpy(out.scales.data(), ones.data(), out.scales.size());
    return {};
  }

 private:
  static uint8_t mask_of(int64_t row, int64_t k) {
    constexpr uint8_t kPairs[] = {3, 5, 6, 9, 10, 12};
    return kPairs[(row * 7 + k / 4 * 5 + row / 8) % 6];
  }
};

struct Packed {
  gpu::RowBlockLayout layout;
  std::vector<std::byte> bytes;
};
Packed pack(const Codes& codes) {
  auto plan = gpu::plan_packing(codes.meta(), gpu::Exponents::bytes, cuda::policy().order);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  Packed packed{plan.value().layout, std::vector<std::byte>(plan.value().layout.bytes)};
  BackendOptions options;
  options.threads = 1;
  const auto runner = make_task_runner(options);
  const auto fits = gpu::pack_weights(codes, plan.value(), packed.bytes, *runner);
  EXPECT_TRUE(fits.ok() && fits.value());
  return packed;
}

/// The word of a unit of 32 slots for a row: with 8-bit codes the first or second.
uint32_t word_of(const Packed& packed, int words, int64_t row, int64_t unit, int j, int number) {
  const int lane = 4 * static_cast<int>(row % 8) + j, tile = static_cast<int>(row % 32 / 8);
  const int64_t at =
      row / 32 * packed.layout.row_block_code_bytes() + 4 * mma_word(static_cast<int>(unit), words, lane, tile, number);
  uint32_t word = 0;
  std::memcpy(&word, packed.bytes.data() + at, 4);
  return word;
}

/// Calls `check(row, k, word, t, p)` for every code, with the word that holds it.
template <class Check>
void for_every_code(const Packed& packed, int words, const Check& check) {
  for (int64_t row = 0; row < packed.layout.n; ++row)
    for (int64_t unit = 0; unit < packed.layout.slots / 32; ++unit)
      for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 8; ++e) {
          const int t = e % 4, p = e / 4;
          const int64_t k = 32 * unit + mma_slot(j, t, p);
          const int number = words == 8 ? 2 * t + p : words == 4 ? t : words == 2 ? t / 2 : 0;
          if (k < packed.layout.k) check(row, k, word_of(packed, words, row, unit, j, number), t, p);
        }
}

constexpr int64_t kN = 70, kK = 128 + 64 + 32 - 5;  // every kind of block, and padding

TEST(CudaPacking, PutsInt4WhereTheKernelsReadIt) {
  const Codes codes(MARLIN_FORMAT_INT4, kN, kK);
  for_every_code(pack(codes), 1, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
    EXPECT_EQ(word >> (16 * p + 4 * t) & 15, codes.code(row, k)) << row << ' ' << k;
  });
}

TEST(CudaPacking, PutsFp4WhereTheKernelsReadIt) {
  const Codes codes(MARLIN_FORMAT_FP4, kN, kK);
  for_every_code(pack(codes), 1, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
    uint32_t code = 0;
    for (int b = 0; b < 4; ++b) code |= (word >> ((fp4_mma_bit(t, b) + 16 * p) & 31) & 1) << b;
    EXPECT_EQ(code, codes.code(row, k)) << row << ' ' << k;
  });
}

TEST(CudaPacking, PutsInt8WhereTheKernelsReadIt) {
  const Codes codes(MARLIN_FORMAT_INT8, kN, kK);
  for_every_code(pack(codes), 2, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
    EXPECT_EQ(word >> (16 * p + 8 * (t % 2)) & 255, static_cast<uint8_t>(codes.code(row, k) ^ 128)) << row << ' ' << k;
  });
}

TEST(CudaPacking, PutsOtherBytesAndFloatsWhereTheKernelsReadThem) {
  for (const marlin_format format : {MARLIN_FORMAT_UINT8, MARLIN_FORMAT_FP8}) {
    const Codes codes(format, kN, kK);
    for_every_code(pack(codes), 2, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
      EXPECT_EQ(word >> (16 * p + 8 * (t % 2)) & 255, codes.code(row, k)) << row << ' ' << k;
    });
  }
  for (const marlin_format format : {MARLIN_FORMAT_FLOAT16, MARLIN_FORMAT_BFLOAT16, MARLIN_FORMAT_FLOAT32}) {
    const Codes codes(format, kN, kK);
    const bool wide = format == MARLIN_FORMAT_FLOAT32;
    for_every_code(pack(codes), wide ? 8 : 4, [&](int64_t row, int64_t k, uint32_t word, int, int p) {
      EXPECT_EQ(wide ? word : word >> (16 * p) & 0xFFFF, codes.code(row, k) * (wide ? 0x01010101u : 0x0101u))
          << row << ' ' << k;
    });
  }
}

/// Each step of 16 slots has neighbors only, so that groups of 16 have sums of their own.
TEST(CudaPacking, KeepsTheSlotsOfAGroupTogether) {
  for (int half = 0; half < 2; ++half) {
    std::vector<bool> seen(16);
    for (int j = 0; j < 4; ++j)
      for (int t = 2 * half; t < 2 * half + 2; ++t)
        for (int p = 0; p < 2; ++p) {
          const int slot = mma_slot(j, t, p) - 16 * half;
          ASSERT_GE(slot, 0);
          ASSERT_LT(slot, 16);
          EXPECT_FALSE(seen[static_cast<size_t>(slot)]);
          seen[static_cast<size_t>(slot)] = true;
        }
  }
}

/// 2:4: the word and the position bits that lane 4 r + j's operands come from, for every slot.
TEST(CudaPacking, PutsKeptCodesAndTheirPositionsWhereTheKernelsReadThem) {
  for (const marlin_format format : {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4}) {
    const Codes codes(format, kN, 224, true);
    const Packed packed = pack(codes);
    ASSERT_EQ(packed.layout.slots, 256);
    for (int64_t row = 0; row < kN; ++row)
      for (int64_t k = 0; k < 256; ++k) {
        const int in_block = static_cast<int>(row % 32), r = in_block % 8, i = in_block / 8;
        const int chunk = static_cast<int>(k / 64), t = static_cast<int>(k % 64 / 16), j = static_cast<int>(k % 16 / 4);
        const auto word_at = [&](int number) {
          uint32_t word = 0;
          std::memcpy(&word, packed.bytes.data() + row / 32 * packed.layout.row_block_code_bytes() + 4 * number, 4);
          return word;
        };
        const uint32_t positions = word_at(mma_positions_word(chunk, 4 * r + t, i / 2)) >> (16 * (i % 2) + 4 * j) & 15;
        ASSERT_LT(positions & 3, positions >> 2) << "positions rise";
        const bool first = (positions & 3) == k % 4, second = positions >> 2 == k % 4;
        ASSERT_EQ(first || second, k < 224 ? codes.keeps(row, k) : k % 4 < 2) << row << ' ' << k;
        if (k >= 224 || (!first && !second)) continue;
        const int p = second ? 1 : 0;
        const uint32_t word = word_at(mma_kept_word(chunk, 4 * r + j, i));
        uint32_t code = word >> (16 * p + 4 * t) & 15;
        if (format == MARLIN_FORMAT_FP4) {
          code = 0;
          for (int b = 0; b < 4; ++b) code |= (word >> ((fp4_mma_bit(t, b) + 16 * p) & 31) & 1) << b;
        }
        EXPECT_EQ(code, codes.code(row, k)) << row << ' ' << k;
      }
  }
}

}  // namespace
}  // namespace cuda_packing_tests
