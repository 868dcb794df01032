// Each kernel forced in turn, for every number of rows that a tile can be left with: M = 1..70 and the numbers around 128 and
// 256, or all of M = 1..257 in a long campaign.
#include "backends/cpu/kernels.h"
#include "campaigns.h"
#include "formats_under_test.h"
#include "test.h"

namespace {

using metal_marlin::cpu::KernelRow;
using trial::Kind;
using trial::Trial;

constexpr int64_t kMost = 257;
bool is_wanted(int64_t m) { return m <= 70 || m % 128 <= 1 || m % 128 == 127 || whole_campaigns(); }

/// Names the one kernel to use while it lives.
class Forced {
 public:
  explicit Forced(const std::string& name) { setenv("METAL_MARLIN_KERNEL", name.c_str(), 1); }
  ~Forced() { unsetenv("METAL_MARLIN_KERNEL"); }
};

class KernelRows : public testing::TestWithParam<size_t> {};

/// The rows of A are the same for every M, so the oracle multiplies once, and a row's bits may never change.
void check_every_m(const Kind& kind, marlin_compute compute, const std::string& kernel, int* products) {
  Trial t(trial::case_of(kind, compute, kMost, 70, 150));
  ASSERT_TRUE(t.pack());
  ASSERT_EQ(t.explained("kernel"), kernel);
  ASSERT_TRUE(t.run());
  ASSERT_TRUE(t.check()) << t.spec.describe();
  const std::vector<uint8_t> expected = t.c.raw();
  for (int64_t m = 1; m < kMost; ++m) {
    if (!is_wanted(m)) continue;
    ++*products;
    t.spec.m = m;
    ASSERT_TRUE(t.run());
    const std::vector<uint8_t> got = t.c.raw();
    const auto bytes = static_cast<std::ptrdiff_t>(m * t.spec.n * oracle::bytes_of(t.spec.c_type));
    ASSERT_TRUE(std::equal(got.begin(), got.begin() + bytes, expected.begin())) << t.spec.describe();
  }
}

TEST_P(KernelRows, EveryM) {
  const KernelRow& row = metal_marlin::cpu::kernel_rows()[GetParam()];
  const std::string name(row.name);
  const Forced forced(name);
  const marlin_compute compute =
      row.form == metal_marlin::cpu::ActivationForm::int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
  int products = 0, kinds = 0;
  std::string why;
  for (const Kind& kind : trial::kKinds) {
    Trial probe(trial::case_of(kind, compute, 1, 70, 150));
    ASSERT_TRUE(probe.pack());
    if (const std::string text = probe.explain(); !text.starts_with("kernel: ")) {
      why = text;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(check_every_m(kind, compute, name, &products)) << name << " " << kind.name;
    ++kinds;
  }
  if (kinds == 0) GTEST_SKIP() << why;
  std::printf("%s: %d kinds of weights, %d products, M up to %d\n", name.c_str(), kinds, products, static_cast<int>(kMost));
}

INSTANTIATE_TEST_SUITE_P(Kernel, KernelRows, testing::Range<size_t>(0, metal_marlin::cpu::kernel_rows().size()),
                         [](const auto& info) { return std::string(metal_marlin::cpu::kernel_rows()[info.param].name); });

}  // namespace
