// Every operand, the host's scratch included, against inaccessible pages, with rows that start anywhere.
#include "formats_under_test.h"
#include "guarded_stream.h"
#include "test.h"

namespace {

using trial::Case;
using trial::Trial;

class GuardPages : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  }
};

/// The product on a stream whose scratch is exactly what marlin_prepare asks for.
void run_with_host_scratch(Trial& t, guarded::Edge edge) {
  const marlin_gemm_desc desc = t.gemm_desc();
  const guarded::Stream stream(trial::context(t.spec.threads), desc, t.spec.m, edge);
  EXPECT_EQ(marlin_gemm(stream.get(), &desc, nullptr), MARLIN_OK);
}

TEST_P(GuardPages, NoStrayAccess) {
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (const trial::Strides strides : {trial::Strides::contiguous, trial::Strides::padded, trial::Strides::odd}) {
      for (const marlin_dtype type : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
        for (const int64_t m : {1, 2, 5, 19}) {
          for (const int64_t k : {1, 31, 129, 383}) {
            Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, k == 31 ? 64 : 67, k);
            c.strides = strides;
            c.a_type = c.c_type = c.bias_type = type;
            c.threads = m == 5 ? 2 : 1;
            Trial t(c);
            ASSERT_TRUE(t.pack());
            ASSERT_TRUE(t.run());
            run_with_host_scratch(t, k % 2 == 0 ? guarded::Edge::begin : guarded::Edge::end);
            ASSERT_TRUE(t.check()) << c.describe();
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Format, GuardPages, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

}  // namespace
