// The same bits for any number of threads, whatever the other rows of the batch hold.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "formats_under_test.h"

namespace {

using trial::Case;
using trial::Trial;

class Determinism : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
    if (const std::string why = trial::without_threads(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(Determinism, ThreadsDoNotMatter) {
  int runs = 0;
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const int64_t m : {1, 3, 13, 65}) {
      for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SWIGLU}) {
        std::vector<uint8_t> expected;
        for (const uint32_t threads : {1, 2, 3, 5}) {
          Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, 330, 150);
          c.threads = threads;
          c.epilogue = epilogue;
          c.a_type = m % 2 == 0 ? MARLIN_F32 : MARLIN_BF16;
          Trial t(c);
          ASSERT_TRUE(t.pack());
          for (int repeat = 0; repeat < (whole_campaigns() ? 6 : 5); ++repeat, ++runs) {
            ASSERT_TRUE(t.run());
            if (expected.empty()) expected = t.c.raw();
            ASSERT_EQ(t.c.raw(), expected) << c.describe();
          }
        }
      }
    }
  }
  std::printf("%s: %d runs with 1, 2, 3 and 5 threads, all with the same bits\n", trial::kKinds[GetParam()].name, runs);
  RecordProperty("cases", runs);
}

/// A row alone in a batch of NaN, zeros and huge numbers.
TEST_P(Determinism, NeighborsDoNotMatter) {
  constexpr double kOthers[] = {NAN, 0.0, 1e30};
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const int64_t m : {2, 7, 40}) {
      const Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, 70, 150);
      Trial all(c);
      ASSERT_TRUE(all.pack());
      ASSERT_TRUE(all.run());
      const std::vector<uint8_t> expected = all.c.raw();
      const size_t row_bytes = expected.size() / static_cast<size_t>(m);
      for (int64_t keep = 0; keep < m; keep += m < 10 ? 1 : 7) {
        for (const double other : kOthers) {
          Trial t(c);
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t k = 0; r != keep && k < c.k; ++k) t.a.set(r, k, other);
          }
          ASSERT_TRUE(t.pack());
          ASSERT_TRUE(t.run());
          const std::vector<uint8_t> got = t.c.raw();
          const auto at = static_cast<std::ptrdiff_t>(row_bytes) * keep;
          ASSERT_TRUE(
              std::equal(got.begin() + at, got.begin() + at + static_cast<std::ptrdiff_t>(row_bytes), expected.begin() + at))
              << c.describe() << ", row " << keep << " among " << other;
        }
      }
    }
  }
}

/// Products in one submission, two of them with the same A, which is prepared once for both.
TEST_P(Determinism, CompanyDoesNotMatter) {
  for (const int64_t m : {1, 9, 40}) {
    Trial first(trial::case_of(trial::kKinds[GetParam()], MARLIN_COMPUTE_INT8, m, 70, 152));
    Trial second(trial::case_of(trial::kKinds[(GetParam() + 1) % trial::kKindCount], MARLIN_COMPUTE_INT8, m, 330, 152));
    Trial third(trial::case_of(trial::kKinds[(GetParam() + 2) % trial::kKindCount], MARLIN_COMPUTE_DEFAULT, m, 64, 97));
    std::vector<std::vector<uint8_t>> expected;
    for (Trial* t : {&first, &second, &third}) ASSERT_TRUE(t->pack());
    marlin_gemm_desc descs[] = {first.gemm_desc(), second.gemm_desc(), third.gemm_desc()};
    const marlin_gemm_desc* const pointers[] = {&descs[0], &descs[1], &descs[2]};
    descs[1].a = descs[0].a;
    for (const marlin_gemm_desc& d : descs) ASSERT_EQ(marlin_gemm(nullptr, &d, nullptr), MARLIN_OK);
    for (Trial* t : {&first, &second, &third}) {
      expected.push_back(t->c.raw());
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t n = 0; n < t->spec.n; ++n) t->c.set(r, n, NAN);
      }
    }
    marlin_error err{};
    err.struct_size = sizeof err;
    ASSERT_EQ(marlin_gemm_many(nullptr, pointers, 3, &err), MARLIN_OK) << err.message;
    EXPECT_EQ(first.c.raw(), expected[0]);
    EXPECT_EQ(second.c.raw(), expected[1]);
    EXPECT_EQ(third.c.raw(), expected[2]);
  }
}

INSTANTIATE_TEST_SUITE_P(Format, Determinism, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

}  // namespace
