// Products of one call whose A begins at the same address: prepared once where the rows are the same, and only there.
#include "formats_under_test.h"
#include "test.h"

namespace {

using trial::Case;
using trial::Trial;

/// The same kind of weights twice, so that nothing but A tells the products apart.
class Pair {
 public:
  explicit Pair(const Case& c) : first_(c), second_(other_seed(c)) {}

  testing::AssertionResult pack() {
    if (const auto packed = first_.pack(); !packed) return packed;
    if (const auto packed = second_.pack(); !packed) return packed;
    descs[0] = first_.gemm_desc();
    descs[1] = second_.gemm_desc();
    descs[1].a = descs[0].a;
    return testing::AssertionSuccess();
  }
  /// The rows that are prepared at a time when there are so many.
  int64_t block_of(int64_t rows) const {
    marlin_gemm_desc d = descs[0];
    d.a.rows = d.c.rows = rows;
    char text[4000] = {};
    if (marlin_explain(&d, text, sizeof text, nullptr, nullptr) != MARLIN_OK) return 0;
    const char* const key = std::strstr(text, "m_block: ");
    return key != nullptr ? std::atoll(key + 9) : 0;
  }

  /// Together, in both orders, the bits of each alone.
  testing::AssertionResult same_together() {
    clear();
    for (const marlin_gemm_desc& d : descs)
      if (marlin_gemm(nullptr, &d, nullptr) != MARLIN_OK) return testing::AssertionFailure() << "a product failed";
    const std::vector<uint8_t> first = first_.c.raw(), second = second_.c.raw();
    for (const int leader : {0, 1}) {
      clear();
      const marlin_gemm_desc* const both[] = {&descs[leader], &descs[1 - leader]};
      if (marlin_gemm_many(nullptr, both, 2, nullptr) != MARLIN_OK) return testing::AssertionFailure() << "both failed";
      if (first_.c.raw() != first || second_.c.raw() != second)
        return testing::AssertionFailure() << "other bits when product " << leader << " leads";
    }
    return testing::AssertionSuccess();
  }

  marlin_gemm_desc descs[2] = {};

 private:
  static Case other_seed(Case c) {
    c.seed += 100;
    return c;
  }
  void clear() {
    for (Trial* t : {&first_, &second_})
      for (int64_t r = 0; r < t->spec.m; ++r)
        for (int64_t n = 0; n < t->spec.n; ++n) t->c.set(r, n, NAN);
  }

  Trial first_, second_;
};

class SharedActivations : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  }
  static Case spec(marlin_compute compute, int64_t m, int64_t n, int64_t k) {
    return trial::case_of(trial::kKinds[GetParam()], compute, m, n, k);
  }
};

constexpr marlin_compute kComputes[] = {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8};

TEST_P(SharedActivations, OfOneMatrix) {
  for (const marlin_compute compute : kComputes)
    for (const int64_t m : {1, 3, 40}) {
      Pair pair(spec(compute, m, 70, 160));
      ASSERT_TRUE(pair.pack());
      EXPECT_TRUE(pair.same_together()) << m;
    }
}

TEST_P(SharedActivations, OfOtherStrides) {
  for (const marlin_compute compute : kComputes)
    for (const int64_t m : {2, 3, 40}) {
      Pair pair(spec(compute, 2 * m, 70, 160));
      ASSERT_TRUE(pair.pack());
      for (marlin_gemm_desc& d : pair.descs) d.a.rows = d.c.rows = m;
      pair.descs[1].a.row_stride = 2 * pair.descs[1].a.cols;
      EXPECT_TRUE(pair.same_together()) << m;
    }
}

TEST_P(SharedActivations, OfOtherTypes) {
  for (const marlin_compute compute : kComputes)
    for (const int64_t m : {1, 3, 40}) {
      Case c = spec(compute, m, 70, 160);
      c.a_type = MARLIN_F16;  // numbers of up to about 1, which are finite as BF16, too
      Pair pair(c);
      ASSERT_TRUE(pair.pack());
      pair.descs[1].a.dtype = MARLIN_BF16;
      EXPECT_TRUE(pair.same_together()) << m;
    }
}

TEST_P(SharedActivations, OfOtherNumbersOfRows) {
  for (const marlin_compute compute : kComputes)
    for (const auto& [few, many] : {std::pair(1, 2), std::pair(3, 4), std::pair(11, 12), std::pair(39, 40)}) {
      Pair pair(spec(compute, many, 70, 160));
      ASSERT_TRUE(pair.pack());
      pair.descs[1].a.rows = pair.descs[1].c.rows = few;
      EXPECT_TRUE(pair.same_together()) << few << " and " << many;
    }
}

INSTANTIATE_TEST_SUITE_P(Format, SharedActivations, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

/// Rows in several blocks, which are as high for one row less.
TEST(SharedActivationsInBlocks, OfOtherNumbersOfRows) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  constexpr int64_t kN = 4, kK = 16384, kRows = 800;
  for (const marlin_compute compute : kComputes) {
    Pair pair(trial::case_of(trial::kKinds[0], compute, 1, kN, kK));
    ASSERT_TRUE(pair.pack());
    const int64_t block = pair.block_of(kRows), most = (kRows + block - 1) / block * block;
    ASSERT_LT(block, kRows);
    std::vector<uint16_t> a(static_cast<size_t>(most * kK));  // BF16 between 1 and 2
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint16_t>(0x3f80 + (i * 2654435761u >> 16) % 128);
    std::vector<float> c(static_cast<size_t>(2 * most * kN)), expected;
    for (int64_t i = 0; i < 2; ++i) {
      pair.descs[i].a = {a.data(), 0, most - i, kK, 0, MARLIN_BF16, MARLIN_MEM_HOST};
      pair.descs[i].c = {c.data() + i * most * kN, 0, most - i, kN, 0, MARLIN_F32, MARLIN_MEM_HOST};
    }
    ASSERT_EQ(pair.block_of(most), block);
    ASSERT_EQ(pair.block_of(most - 1), block);
    for (const marlin_gemm_desc& d : pair.descs) ASSERT_EQ(marlin_gemm(nullptr, &d, nullptr), MARLIN_OK);
    expected.swap(c);
    for (const int leader : {0, 1}) {
      c.assign(expected.size(), 0.0f);
      for (int64_t i = 0; i < 2; ++i) pair.descs[i].c.data = c.data() + i * most * kN;
      const marlin_gemm_desc* const both[] = {&pair.descs[leader], &pair.descs[1 - leader]};
      ASSERT_EQ(marlin_gemm_many(nullptr, both, 2, nullptr), MARLIN_OK);
      EXPECT_TRUE(c == expected) << "product " << leader << " leads";
    }
  }
}

/// Gate and up at the ends of what one task multiplies (192 rows).
TEST(GateAndUp, AtTheEndsOfATask) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  for (const marlin_compute compute : kComputes)
    for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_SWIGLU, MARLIN_EPILOGUE_GEGLU_TANH, MARLIN_EPILOGUE_SWIGLU_OAI})
      for (const int64_t m : {191, 192, 193, 384}) {
        Case c = trial::case_of(trial::kKinds[0], compute, m, 140, 64);
        c.epilogue = epilogue;
        c.interleaved = epilogue == MARLIN_EPILOGUE_SWIGLU_OAI;
        c.a_type = MARLIN_F32;
        EXPECT_TRUE(trial::holds(c)) << c.describe();
      }
}

}  // namespace
