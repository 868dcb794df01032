// The packed order of codes for mma.m16n8k16, read back by the words of shaders/common/layout.h.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backends/cuda/policy.h"
#include "backends/gpu/pack.h"
#include "core/thread_pool.h"

namespace cuda_packing_tests {
namespace {

using namespace metal_marlin;

/// One group a row; code number i of the matrix is a function of i.
class Codes final : public WeightSource {
 public:
  Codes(marlin_format format, int64_t n, int64_t k) {
    meta_.format = format;
    meta_.n = n;
    meta_.k = k;
    meta_.group_size = k;
    meta_.groups = 1;
    meta_.scale_type = ScaleType::f32;
  }
  uint8_t code(int64_t row, int64_t k) const {
    const auto mixed = static_cast<uint8_t>((row * meta_.k + k) * 37 >> 2);
    return meta_.format == MARLIN_INT8 ? mixed : mixed & 15;
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.clear();
    for (int64_t i = 0; i < count * meta_.k; ++i) out.codes.push_back(code(first + i / meta_.k, i % meta_.k));
    const std::vector<float> ones(static_cast<size_t>(count), 1.0f);
    out.scales.resize(ones.size() * sizeof(float));
    std::memcpy(out.scales.data(), ones.data(), out.scales.size());
    return {};
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
          if (k < packed.layout.k) check(row, k, word_of(packed, words, row, unit, j, words == 2 ? t / 2 : 0), t, p);
        }
}

constexpr int64_t kN = 70, kK = 128 + 64 + 32 - 5;  // every kind of block, and padding

TEST(CudaPacking, PutsInt4WhereTheKernelsReadIt) {
  const Codes codes(MARLIN_INT4, kN, kK);
  for_every_code(pack(codes), 1, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
    EXPECT_EQ(word >> (16 * p + 4 * t) & 15, codes.code(row, k)) << row << ' ' << k;
  });
}

TEST(CudaPacking, PutsFp4WhereTheKernelsReadIt) {
  const Codes codes(MARLIN_FP4, kN, kK);
  for_every_code(pack(codes), 1, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
    uint32_t code = 0;
    for (int b = 0; b < 4; ++b) code |= (word >> ((fp4_mma_bit(t, b) + 16 * p) & 31) & 1) << b;
    EXPECT_EQ(code, codes.code(row, k)) << row << ' ' << k;
  });
}

TEST(CudaPacking, PutsInt8WhereTheKernelsReadIt) {
  const Codes codes(MARLIN_INT8, kN, kK);
  for_every_code(pack(codes), 2, [&](int64_t row, int64_t k, uint32_t word, int t, int p) {
    EXPECT_EQ(word >> (16 * p + 8 * (t % 2)) & 255, static_cast<uint8_t>(codes.code(row, k) ^ 128)) << row << ' ' << k;
  });
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

TEST(CudaPacking, RefusesSparseWeights) {
  Codes codes(MARLIN_INT4, kN, 224);
  WeightMeta meta = codes.meta();
  meta.sparse = true;
  const Status s = gpu::plan_packing(meta, gpu::Exponents::bytes, cuda::policy().order).status();
  EXPECT_EQ(s.code(), MARLIN_E_UNSUPPORTED);
  EXPECT_NE(std::string(s.message()).find("2:4"), std::string::npos) << s.message();
}

}  // namespace
}  // namespace cuda_packing_tests
