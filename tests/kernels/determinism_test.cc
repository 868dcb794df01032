// The same bits for any number of threads.
#include "formats_under_test.h"
#include "test.h"

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

INSTANTIATE_TEST_SUITE_P(Format, Determinism, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

}  // namespace
