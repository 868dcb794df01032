// MARLIN_GEMM_ROW_INVARIANT through the C ABI: a row has the bits that it has alone in any batch and under any routing.
// For every M: tests/unit/kernels_row_invariance_test.cc. Beside any rows, with any number of threads: Rows of kernels_test.
#include "formats_under_test.h"
#include "mixture.h"
#include "slice.h"
#include "test.h"

namespace {

using trial::Case;
using trial::Mix;
using trial::Pick;
using trial::slice;
using trial::Trial;

constexpr marlin_compute kComputes[] = {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8};

std::vector<uint8_t> row_bits(const trial::Matrix& c, int64_t row) {
  const uint8_t* const begin = c.bytes(row);
  return {begin, begin + c.view().cols * oracle::bytes_of(c.view().dtype)};
}

class RowInvariance : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = trial::without_threads(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }

  static Case spec(marlin_compute compute, int64_t m, int64_t n, int64_t k) {
    Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, n, k);
    c.row_invariant = true;
    return c;
  }
  /// A computation that a kind does not have is an error, and no silent lie.
  static bool is_served(const Trial& t) { return t.explain().starts_with("kernel: "); }

  /// Fills C as it was before.
  static void clear(Trial& t) {
    for (int64_t r = 0; r < t.spec.m; ++r)
      for (int64_t n = 0; n < t.spec.columns(); ++n)
        t.c.set(r, n, t.spec.accumulate ? t.c_before[static_cast<size_t>(r * t.spec.columns() + n)] : NAN);
  }
  /// Multiplies rows [first, first + count) alone.
  static void multiply(Trial& t, int64_t first, int64_t count) {
    marlin_gemm_desc d = t.gemm_desc();
    d.a = slice(d.a, first, count);
    d.c = slice(d.c, first, count);
    marlin_error err{};
    err.struct_size = sizeof err;
    ASSERT_EQ(marlin_gemm(nullptr, &d, &err), MARLIN_OK) << err.message << " " << t.spec.describe();
  }
  /// The bits of every row alone.
  static std::vector<std::vector<uint8_t>> alone(Trial& t) {
    clear(t);
    std::vector<std::vector<uint8_t>> bits;
    for (int64_t r = 0; r < t.spec.m; ++r) {
      multiply(t, r, 1);
      bits.push_back(row_bits(t.c, r));
    }
    return bits;
  }
};

/// Bias, epilogues, types, strides, act-order and what C held.
TEST_P(RowInvariance, HoldsForEveryChoiceOfACaller) {
  constexpr marlin_epilogue kEpilogues[] = {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SILU, MARLIN_EPILOGUE_SWIGLU,
                                            MARLIN_EPILOGUE_GELU_ERF, MARLIN_EPILOGUE_GEGLU_TANH};
  const bool named = std::getenv("METAL_MARLIN_ISA") != nullptr;  // there are several such runs
  const uint32_t seeds = !whole_campaigns() ? 6 : named ? 20 : 60;
  int products = 0;
  for (const marlin_compute compute : kComputes)
    for (uint32_t seed = 1; seed <= seeds; ++seed) {
      constexpr int64_t kWidths[] = {70, 64, 2, 130}, kDepths[] = {150, 36, 128, 1700};
      Case c = spec(compute, 2 + static_cast<int64_t>(seed * 7 % 30), kWidths[seed % 4], kDepths[seed / 2 % 4]);
      trial::vary(c, seed);
      c.epilogue = kEpilogues[seed % 5];
      if (!c.sparse && c.group < c.k && seed % 3 == 1) c.order = trial::Order::shuffled;
      Trial t(c);
      ASSERT_TRUE(t.pack());
      if (!is_served(t)) continue;
      const auto expected = alone(t);
      clear(t);
      multiply(t, 0, c.m);
      for (int64_t r = 0; r < c.m; ++r)
        ASSERT_EQ(row_bits(t.c, r), expected[static_cast<size_t>(r)]) << "row " << r << ", " << c.describe() << t.explain();
      ASSERT_TRUE(t.c.gaps_untouched());
      ++products;
    }
  std::printf("%s: %d products, every row with the bits that it has alone\n", trial::kKinds[GetParam()].name, products);
}

/// Parts of a batch are products of one call, or calls one after another.
TEST_P(RowInvariance, HoldsHoweverABatchIsCut) {
  for (const marlin_compute compute : kComputes)
    for (const int64_t k : {150, 1700}) {
      if (k == 1700 && compute == kComputes[GetParam() % 2] && !whole_campaigns()) continue;
      Trial t(spec(compute, 75, 70, k));
      ASSERT_TRUE(t.pack());
      if (!is_served(t)) continue;
      const auto expected = alone(t);
      clear(t);
      std::vector<marlin_gemm_desc> descs;
      int64_t first = 0;
      for (const int64_t count : {1, 2, 7, 64, 1}) {
        descs.push_back(t.gemm_desc());
        descs.back().a = slice(descs.back().a, first, count);
        descs.back().c = slice(descs.back().c, first, count);
        first += count;
      }
      std::vector<const marlin_gemm_desc*> many;
      for (const marlin_gemm_desc& d : descs) many.push_back(&d);
      ASSERT_EQ(marlin_gemm_many(nullptr, many.data(), static_cast<uint32_t>(many.size()), nullptr), MARLIN_OK);
      for (int64_t r = 0; r < t.spec.m; ++r)
        ASSERT_EQ(row_bits(t.c, r), expected[static_cast<size_t>(r)]) << "row " << r << ", " << t.spec.describe();
    }
}

/// The tokens of a mixture, alone and in parts: other tokens take other experts, and as many rows of the same ones.
TEST_P(RowInvariance, HoldsForAnyRouting) {
  constexpr Mix kMixes[] = {{40, 3, 2, Pick::random, false, 0},
                            {40, 3, 2, Pick::outside, true, 0},
                            {70, 9, 4, Pick::skewed, false, MARLIN_F32},
                            {33, 5, 3, Pick::repeated, true, MARLIN_BF16}};
  for (const marlin_compute compute : kComputes)
    for (const Mix& mix : kMixes) {
      Case c = spec(compute, 1, 70, 150);
      trial::vary(c, static_cast<uint32_t>(mix.tokens));
      c.accumulate = false;
      c.row_invariant = true;
      trial::Mixture m(c, mix);
      if (m.pack(2) != MARLIN_OK || !m.run()) continue;
      ASSERT_TRUE(m.check()) << c.describe();
      const std::vector<uint8_t> together = m.result();
      marlin_gemm_desc d = m.desc();
      const int64_t a_rows = d.a.rows / mix.tokens, c_rows = d.c.rows / mix.tokens;
      for (const int64_t part : {1, 2, 7}) {
        ASSERT_TRUE(m.run());  // so that every row is written again
        for (int64_t first = 0; first < mix.tokens; first += part) {
          const int64_t count = std::min(part, mix.tokens - first);
          marlin_gemm_desc some = d;
          some.a = slice(d.a, first * a_rows, count * a_rows);
          some.c = slice(d.c, first * c_rows, count * c_rows);
          some.expert_ids = slice(d.expert_ids, first, count);
          if (d.expert_scales.data != nullptr) some.expert_scales = slice(d.expert_scales, first, count);
          ASSERT_EQ(marlin_gemm(nullptr, &some, nullptr), MARLIN_OK);
        }
        ASSERT_EQ(m.result(), together) << "in parts of " << part << " tokens, " << c.describe();
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Format, RowInvariance, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

/// `explain` names the kernels of the order for every M, and the one that would run without the flag.
TEST(RowInvariant, IsExplained) {
  Case c = trial::case_of(trial::kKinds[5], MARLIN_COMPUTE_DEFAULT, 128, 70, 160);
  Trial without(c);
  ASSERT_TRUE(without.pack());
  EXPECT_EQ(without.explained("row_invariant"), "");
  c.row_invariant = true;
  Trial with(c);
  ASSERT_TRUE(with.pack());
  const std::string kernel = with.explained("kernel"), usual = without.explained("kernel");
  EXPECT_TRUE(with.explained("row_invariant").starts_with("the same bits for any M, by cpu_")) << with.explain();
  EXPECT_NE(with.explained("row_invariant").find(kernel), std::string::npos) << with.explain();
  EXPECT_EQ(with.explained("instead_of"), kernel == usual ? "" : usual);
}

}  // namespace
