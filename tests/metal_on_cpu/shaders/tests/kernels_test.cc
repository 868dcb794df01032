// Correct kernels of many styles: right results against float64, not one finding, and the same bits in fast and checked mode
// and in any order of lanes, simdgroups and threadgroups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

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

class Sums : public ::testing::TestWithParam<const char*> {};
TEST_P(Sums, AddUp) {
  constexpr uint32_t kCount = 1000;
  const std::vector<float> x = randoms(kCount, 1);
  const Trial t{
      kernel_of("reduce.metal", GetParam()).constant(0, uint64_t{kCount}), {1, 1, 1}, {256, 1, 1}, {bytes_of(x), Bytes(4)}};
  expect_near(values_of<float>(t.everywhere()[1]), {std::accumulate(x.begin(), x.end(), 0.0)}, 1e-5);
}
INSTANTIATE_TEST_SUITE_P(Reduce, Sums, ::testing::Values("sum_tree", "sum_simd", "sum_shuffle"),
                         [](const auto& p) { return p.param; });

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

class Scans : public ::testing::TestWithParam<const char*> {};
TEST_P(Scans, Exclusive) {
  std::vector<int> x(256), want(256);
  for (int i = 0; i < 256; ++i) x[i] = i * 7919 % 101 - 50;
  std::exclusive_scan(x.begin(), x.end(), want.begin(), 0);
  const Trial t{kernel_of("reduce.metal", GetParam()), {1, 1, 1}, {256, 1, 1}, {bytes_of(x), Bytes(1024)}};
  EXPECT_EQ(values_of<int>(t.everywhere()[1]), want);
}
INSTANTIATE_TEST_SUITE_P(Scan, Scans, ::testing::Values("scan", "scan_doubling"), [](const auto& p) { return p.param; });

TEST(Transpose, Ragged) {
  const uint32_t width = 37, height = 21;
  const std::vector<float> x = randoms(width * height, 2);
  const Trial t{kernel_of("reduce.metal", "transpose"),
                {3, 2, 1},
                {16, 16, 1},
                {bytes_of(x), Bytes(x.size() * 4), bytes_of(std::vector<uint32_t>{width, height})}};
  const auto y = values_of<float>(t.everywhere()[1]);
  for (uint32_t r = 0; r < height; ++r)
    for (uint32_t c = 0; c < width; ++c) ASSERT_EQ(y[c * height + r], x[r * width + c]);
}

TEST(Sort, Ascending) {
  std::mt19937 random(5);
  std::vector<uint32_t> x(256);
  for (uint32_t& v : x) v = static_cast<uint32_t>(random());
  const Trial t{kernel_of("reduce.metal", "bitonic_sort"), {1, 1, 1}, {256, 1, 1}, {bytes_of(x), Bytes(1024)}};
  std::sort(x.begin(), x.end());
  EXPECT_EQ(values_of<uint32_t>(t.everywhere()[1]), x);
}

TEST(Linear, AxpyInThreeTypes) {
  const std::vector<float> x = randoms(64, 3), a = {2};
  const Trial t{kernel_of("linear.metal", "axpy_float"), {1, 1, 1}, {64, 1, 1}, {bytes_of(x), bytes_of(x), bytes_of(a)}};
  const auto y = values_of<float>(t.everywhere()[1]);
  for (size_t i = 0; i < 64; ++i) ASSERT_FLOAT_EQ(y[i], 3 * x[i]);
  const std::vector<uint16_t> half_x(64, 0x3c00), half_y(64, 0x4000);  // 1 and 2 as half; 0.0078125 and 2 as bfloat
  const Trial h{
      kernel_of("linear.metal", "axpy_half"), {1, 1, 1}, {64, 1, 1}, {bytes_of(half_x), bytes_of(half_y), bytes_of(a)}};
  EXPECT_EQ(values_of<uint16_t>(h.everywhere()[1]), std::vector<uint16_t>(64, 0x4400));
  const Trial b{
      kernel_of("linear.metal", "axpy_bfloat"), {1, 1, 1}, {64, 1, 1}, {bytes_of(half_x), bytes_of(half_y), bytes_of(a)}};
  EXPECT_EQ(values_of<uint16_t>(b.everywhere()[1]), std::vector<uint16_t>(64, 0x4001));
}

TEST(Linear, GemvWithAndWithoutBias) {
  const int n = 9, k = 192;
  const std::vector<float> w = randoms(n * k, 4), x = randoms(k, 5), bias = randoms(n, 6);
  std::vector<double> want(n);
  for (int r = 0; r < n; ++r)
    for (int i = 0; i < k; ++i) want[r] += static_cast<double>(w[r * k + i]) * x[i];
  const std::vector<Bytes> buffers = {bytes_of(w), bytes_of(x), Bytes(n * 4), bytes_of(std::vector<int>{1, n, k})};
  Trial t{kernel_of("linear.metal", "gemv").constant(1, false), {n, 1, 1}, {32, 1, 1}, buffers};
  expect_near(values_of<float>(t.everywhere()[2]), want, 1e-5);  // the bias need not be given
  t.kernel = kernel_of("linear.metal", "gemv").constant(1, true).constant(2, 0.5);
  t.buffers.push_back(bytes_of(bias));
  for (int r = 0; r < n; ++r) want[r] = want[r] / 2 + bias[r];
  expect_near(values_of<float>(t.everywhere()[2]), want, 1e-5);
}

struct Product {
  const char* kernel;
  int m, n, k;
  Size3 groups, threads;
};
class Products : public ::testing::TestWithParam<Product> {};
TEST_P(Products, AgreeWithFloat64) {
  const Product& p = GetParam();
  const std::vector<float> a = randoms(p.m * p.k, 10), b = randoms(p.k * p.n, 11);
  std::vector<double> want(p.m * p.n);
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j)
      for (int k = 0; k < p.k; ++k) want[i * p.n + j] += static_cast<double>(a[i * p.k + k]) * b[k * p.n + j];
  const Trial t{kernel_of("linear.metal", p.kernel),
                p.groups,
                p.threads,
                {bytes_of(a), bytes_of(b), Bytes(want.size() * 4), bytes_of(std::vector<int>{p.m, p.n, p.k})}};
  expect_near(values_of<float>(t.everywhere()[2]), want, 1e-5);
}
INSTANTIATE_TEST_SUITE_P(Gemm, Products,
                         ::testing::Values(Product{"gemm_naive", 8, 16, 24, {1, 1, 1}, {16, 8, 1}},
                                           Product{"gemm_tiled", 19, 33, 21, {3, 2, 1}, {16, 16, 1}}),
                         [](const auto& p) { return p.param.kernel; });

TEST(Rows, Attention) {
  const int n = 20;
  const std::vector<float> q = randoms(2 * 32, 14), keys = randoms(n * 32, 15), values = randoms(n * 32, 16);
  std::vector<double> want(64);
  for (int r = 0; r < 2; ++r) {
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      double score = 0;
      for (int d = 0; d < 32; ++d) score += static_cast<double>(q[r * 32 + d]) * keys[i * 32 + d];
      const double weight = std::exp(score / std::sqrt(32.0));
      sum += weight;
      for (int d = 0; d < 32; ++d) want[r * 32 + d] += weight * values[i * 32 + d];
    }
    for (int d = 0; d < 32; ++d) want[r * 32 + d] /= sum;
  }
  const Trial t{kernel_of("linear.metal", "attention"),
                {2, 1, 1},
                {32, 1, 1},
                {bytes_of(q), bytes_of(keys), bytes_of(values), Bytes(256), bytes_of(std::vector<int>{n})}};
  expect_near(values_of<float>(t.everywhere()[3]), want, 1e-5);
}

TEST(Elementwise, Quantize) {
  const std::vector<float> x = randoms(64, 17);
  const Trial t{kernel_of("linear.metal", "quantize"), {1, 1, 1}, {64, 1, 1}, {bytes_of(x), Bytes(32), Bytes(8)}};
  const auto after = t.everywhere();
  const auto codes = values_of<uint8_t>(after[1]);
  const auto scales = values_of<float>(after[2]);
  for (int i = 0; i < 64; ++i)
    ASSERT_NEAR(((codes[i / 2] >> 4 * (i % 2) & 15) - 8) * scales[i / 32], x[i], scales[i / 32] * 0.501);
}

TEST(Elementwise, ConvolveWithHalo) {
  const int n = 150;
  const std::vector<float> x = randoms(n, 18), taps = {1, 2, 4, 8, 16};
  std::vector<double> want(192);
  for (int i = 0; i < 192; ++i)
    for (int k = 0; k < 5; ++k) want[i] += i + k - 2 >= 0 && i + k - 2 < n ? static_cast<double>(taps[k]) * x[i + k - 2] : 0;
  const Trial t{kernel_of("linear.metal", "convolve"),
                {3, 1, 1},
                {64, 1, 1},
                {bytes_of(x), Bytes(768), bytes_of(taps), bytes_of(std::vector<int>{n})}};
  expect_near(values_of<float>(t.everywhere()[1]), want, 1e-5);
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
