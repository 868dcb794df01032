// Correct kernels: right results, not one finding, and the same bits in fast and checked mode and in any order of lanes,
// simdgroups and threadgroups. What the shaders of the library do is judged by their own tests.
#include "trial.h"

namespace metal_on_cpu {
namespace {

std::vector<float> randoms(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> v(n);
  for (float& x : v) x = distribution(random);
  return v;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i]))) << "element " << i;
}

TEST(ActiveLanes, AddUp) {
  const std::vector<float> x = randoms(70, 6);
  const Trial all{
      kernel_of("reduce.metal", "sum_of_active").constant(0, uint64_t{70}), {3, 1, 1}, {32, 1, 1}, {bytes_of(x), Bytes(12)}};
  const auto sum = [&](size_t from, size_t to) { return std::accumulate(&x[from], x.data() + to, 0.0); };
  expect_near(values_of<float>(all.everywhere()[1]), {sum(0, 32), sum(32, 64), sum(64, 70)}, 1e-5);
  const Trial some{kernel_of("reduce.metal", "sum_in_last_branch"), {1, 1, 1}, {32, 1, 1}, {bytes_of(x), Bytes(4)}};
  expect_near(values_of<float>(some.everywhere()[1]), {sum(0, 12)}, 1e-5);
}

TEST(ActiveLanes, Swap) {
  std::vector<int> x(64), want(64);
  for (int i = 0; i < 64; ++i) x[i] = i * i + 1;
  for (size_t i = 0; i < 64; ++i) want[i] = i % 32 < 16 ? x[i ^ 8] : -x[i ^ 1];
  const Trial t{kernel_of("reduce.metal", "swap_in_branch"), {2, 1, 1}, {32, 1, 1}, {bytes_of(x), Bytes(256)}};
  EXPECT_EQ(values_of<int>(t.everywhere()[1]), want);
}

TEST(Scan, Exclusive) {
  std::vector<int> x(256), want(256);
  for (int i = 0; i < 256; ++i) x[i] = i * 7919 % 101 - 50;
  std::exclusive_scan(x.begin(), x.end(), want.begin(), 0);
  const Trial t{kernel_of("reduce.metal", "scan"), {1, 1, 1}, {256, 1, 1}, {bytes_of(x), Bytes(1024)}};
  EXPECT_EQ(values_of<int>(t.everywhere()[1]), want);
}

// Parts of variables that never get a value, and that nothing depends on, are no finding.
class Variables : public ::testing::TestWithParam<const char*> {};
TEST_P(Variables, ThatAreSetWhereTheyAreUsed) {
  const auto& library = library_of("correct/variables.metal");
  std::vector<float> x(64), y(3 * 64);
  for (size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(i) - 20;
  const std::string name = GetParam();
  Dispatch d = library.kernel(name).dispatch();
  if (name == "padding")
    d.buffer(0, y);
  else
    d.buffer(0, std::as_const(x)).buffer(1, y).value(2, 13);
  const auto report = must(d.groups(2).threads(32).check().run());
  EXPECT_EQ(report.text(), "");
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t l = i % 32;
    const float v = x[i], want = name == "guarded"    ? 78 + 14 * v + 1 + (v > 0 ? 2 * v : 0)
                                 : name == "tagged"   ? std::fabs(v)
                                 : name == "padded"   ? v
                                 : name == "shuffled" ? x[i ^ 1]
                                 : name == "given"    ? x[i - l + 3] + x[i - l] + 2
                                                      : static_cast<float>(i);
    EXPECT_EQ(y[name == "padding" ? 3 * i + 1 : name == "padded" ? 2 * i : i], want) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Checked, Variables, ::testing::Values("padding", "padded", "guarded", "tagged", "given", "shuffled"),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace metal_on_cpu
