// Correct kernels of many styles: right results against float64, not one finding, and the same bits in fast and checked mode,
// on several host threads and in any order of lanes, simdgroups and threadgroups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
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

TEST(Reduce, Atomics) {
  std::vector<int> x(1000);
  std::iota(x.begin(), x.end(), -300);
  const Trial t{
      kernel_of("reduce.metal", "sum_atomic").constant(0, uint64_t{1000}), {8, 1, 1}, {128, 1, 1}, {bytes_of(x), Bytes(4)}};
  EXPECT_EQ(values_of<int>(t.everywhere()[1])[0], std::accumulate(x.begin(), x.end(), 0));
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

TEST(Histogram, OfBytes) {
  std::vector<uint8_t> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint8_t>(i * i / 7);
  std::vector<uint32_t> want(256);
  for (const uint8_t v : x) want[v]++;
  const Trial t{
      kernel_of("reduce.metal", "histogram").constant(0, uint64_t{1000}), {4, 1, 1}, {256, 1, 1}, {bytes_of(x), Bytes(1024)}};
  EXPECT_EQ(values_of<uint32_t>(t.everywhere()[1]), want);
}

class Sorts : public ::testing::TestWithParam<const char*> {};
TEST_P(Sorts, Ascending) {
  std::mt19937 random(5);
  std::vector<uint32_t> x(256);
  for (uint32_t& v : x) v = static_cast<uint32_t>(random());
  const Trial t{kernel_of("reduce.metal", GetParam()),
                {1, 1, 1},
                {256, 1, 1},
                {bytes_of(x), Bytes(1024)},
                std::string(GetParam()) == "bitonic_sort" ? 1024u : 0u};
  std::sort(x.begin(), x.end());
  EXPECT_EQ(values_of<uint32_t>(t.everywhere()[1]), x);
}
INSTANTIATE_TEST_SUITE_P(Sort, Sorts, ::testing::Values("radix_sort", "bitonic_sort"), [](const auto& p) { return p.param; });

TEST(Compact, KeepsOrder) {
  std::vector<int> x(100), want;
  for (int i = 0; i < 100; ++i) x[i] = i * 37 % 11 - 5;
  std::copy_if(x.begin(), x.end(), std::back_inserter(want), [](int v) { return v > 0; });
  const Trial t{kernel_of("reduce.metal", "compact").constant(0, uint64_t{100}),
                {1, 1, 1},
                {32, 1, 1},
                {bytes_of(x), Bytes(400), Bytes(4)}};
  const auto after = t.everywhere();
  auto y = values_of<int>(after[1]);
  y.resize(values_of<uint32_t>(after[2])[0]);
  EXPECT_EQ(y, want);
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
  t.kernel = kernel_of("linear.metal", "gemv").constant("has_bias", true).constant("alpha", 0.5);
  t.buffers.push_back(bytes_of(bias));
  for (int r = 0; r < n; ++r) want[r] = want[r] / 2 + bias[r];
  expect_near(values_of<float>(t.everywhere()[2]), want, 1e-5);
}

TEST(Linear, GemvOfFourBitCodes) {
  const int n = 5, k = 256;
  std::mt19937 random(9);
  std::vector<uint32_t> codes(n * k / 8);
  for (uint32_t& c : codes) c = static_cast<uint32_t>(random());
  const std::vector<uint16_t> scales(n * k / 32, 0x3800), x(k, 0xbc00);  // 0.5 and -1
  std::vector<double> want(n);
  for (int r = 0; r < n; ++r)
    for (int i = 0; i < k; ++i) want[r] -= 0.5 * (static_cast<int>(codes[(r * k + i) / 8] >> 4 * (i % 8) & 15) - 8);
  const Trial t{kernel_of("linear.metal", "gemv_q4"),
                {n, 1, 1},
                {32, 1, 1},
                {bytes_of(codes), bytes_of(scales), bytes_of(x), Bytes(n * 4), bytes_of(std::vector<int>{1, n, k})}};
  expect_near(values_of<float>(t.everywhere()[3]), want, 0);
}

struct Product {
  const char* kernel;
  int m, n, k;
  Size3 groups, threads;
  int type;  // 0 float, 1 half, 2 bfloat
};
class Products : public ::testing::TestWithParam<Product> {};
TEST_P(Products, AgreeWithFloat64) {
  const Product& p = GetParam();
  std::vector<float> a = randoms(p.m * p.k, 10), b = randoms(p.k * p.n, 11);
  // Eighths are exact in all three types.
  for (auto* v : {&a, &b})
    for (float& x : *v) x = std::round(x * 8) / 8;
  std::vector<double> want(p.m * p.n);
  for (int i = 0; i < p.m; ++i)
    for (int j = 0; j < p.n; ++j)
      for (int k = 0; k < p.k; ++k) want[i * p.n + j] += static_cast<double>(a[i * p.k + k]) * b[k * p.n + j];
  const auto packed = [&](const std::vector<float>& v) {
    if (p.type == 0) return bytes_of(v);
    std::vector<uint16_t> bits;
    for (const float x : v) {
      uint32_t u = 0;
      std::memcpy(&u, &x, 4);
      const uint32_t exponent = (u >> 23 & 255);
      bits.push_back(static_cast<uint16_t>(p.type == 2 ? u >> 16
                                           : x == 0    ? 0
                                                       : (u >> 16 & 0x8000) | (exponent - 112) << 10 | (u >> 13 & 1023)));
    }
    return bytes_of(bits);
  };
  const Trial t{kernel_of("linear.metal", p.kernel),
                p.groups,
                p.threads,
                {packed(a), packed(b), Bytes(want.size() * 4), bytes_of(std::vector<int>{p.m, p.n, p.k})}};
  expect_near(values_of<float>(t.everywhere()[2]), want, 0);  // sums of 64ths are exact, too
}
INSTANTIATE_TEST_SUITE_P(Gemm, Products,
                         ::testing::Values(Product{"gemm_naive", 8, 16, 24, {1, 1, 1}, {16, 8, 1}, 0},
                                           Product{"gemm_tiled", 19, 33, 21, {3, 2, 1}, {16, 16, 1}, 0},
                                           Product{"gemm_matrix_float", 32, 64, 24, {2, 1, 1}, {128, 1, 1}, 0},
                                           Product{"gemm_matrix_half", 64, 32, 16, {1, 2, 1}, {128, 1, 1}, 1},
                                           Product{"gemm_matrix_bfloat", 32, 32, 40, {1, 1, 1}, {128, 1, 1}, 2}),
                         [](const auto& p) { return p.param.kernel; });

TEST(Matrix, TransposedLoad) {
  const std::vector<float> x = randoms(64, 12);
  const Trial t{kernel_of("linear.metal", "matrix_transpose"), {1, 1, 1}, {32, 1, 1}, {bytes_of(x), Bytes(256)}};
  const auto y = values_of<float>(t.everywhere()[1]);
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < 8; ++c) ASSERT_EQ(y[r * 8 + c], x[c * 8 + r]);
}

TEST(Rows, OnlineSoftmax) {
  const int rows = 3, n = 150;
  std::vector<float> x = randoms(rows * n, 13);
  for (float& v : x) v *= 20;
  std::vector<double> want(x.size());
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += want[r * n + i] = std::exp(static_cast<double>(x[r * n + i]) - 20);
    for (int i = 0; i < n; ++i) want[r * n + i] /= sum;
  }
  const Trial t{kernel_of("linear.metal", "softmax_online"),
                {rows, 1, 1},
                {64, 1, 1},
                {bytes_of(x), Bytes(x.size() * 4), bytes_of(std::vector<int>{n})}};
  expect_near(values_of<float>(t.everywhere()[1]), want, 1e-5);
}

TEST(Rows, RmsNormOfOnes) {
  const std::vector<uint16_t> ones(2 * 64, 0x3c00);
  const Trial t{kernel_of("linear.metal", "rms_norm"),
                {2, 1, 1},
                {32, 1, 1},
                {bytes_of(ones), Bytes(256), bytes_of(std::vector<int>{64})}};
  EXPECT_EQ(values_of<uint16_t>(t.everywhere()[1]), ones);
}

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

TEST(Elementwise, RotaryPositions) {
  const std::vector<float> x = randoms(64, 19);
  std::vector<double> want(64);
  for (int i = 0; i < 32; ++i) {
    const double angle = 3 * std::exp2(-i / 8.0);
    want[2 * i] = x[2 * i] * std::cos(angle) - x[2 * i + 1] * std::sin(angle);
    want[2 * i + 1] = x[2 * i] * std::sin(angle) + x[2 * i + 1] * std::cos(angle);
  }
  const Trial t{kernel_of("linear.metal", "rope"), {1, 1, 1}, {32, 1, 1}, {bytes_of(x), bytes_of(std::vector<int>{3})}};
  expect_near(values_of<float>(t.everywhere()[0]), want, 1e-5);
}

TEST(Pointers, InABuffer) {
  for (const bool checked : {false, true}) {
    std::vector<float> in = randoms(64, 20), out(64);
    auto report = kernel_of("linear.metal", "through_pointers")
                      .dispatch()
                      .pointers(0, {std::as_writable_bytes(std::span(in)), std::as_writable_bytes(std::span(out))})
                      .threads(64)
                      .check(checked)
                      .run();
    ASSERT_TRUE(report.ok()) << report.message();
    EXPECT_EQ(report.value().text(), "");
    for (int i = 0; i < 64; ++i) ASSERT_EQ(out[i], 2 * in[i]);
  }
}

TEST(Constructs, OfTheLanguage) {
  Kernel k = kernel_of("constructs.metal", "constructs").constant(0, true).constant(7, 0.5).constant(8, 1.5);
  for (uint32_t i = 1; i <= 6; ++i) k.constant(i, uint64_t{i});
  const Trial t{k, {1, 1, 1}, {32, 1, 1}, {Bytes(64), Bytes(128), Bytes(256), Bytes(256), Bytes(4)}, 128};
  const std::vector<Bytes> after = t.everywhere();
  const std::vector<float> y = values_of<float>(after[1]);
  for (uint32_t l = 0; l < 32; ++l) {
    const bool diagonal = (l / 4 & 4) + l / 2 % 4 == (l / 4 & 2) * 2 + l % 2 * 2;
    EXPECT_EQ(y[l], static_cast<float>(115 + l % 4 + l * (l + 1) / 2 + diagonal + (l ^ 1))) << l;
  }
  EXPECT_EQ(values_of<float>(after[4])[0], 32);
}

// Parts of variables that never get a value, and that nothing depends on, are no finding.
class Variables : public ::testing::TestWithParam<const char*> {};
TEST_P(Variables, ThatAreSetWhereTheyAreUsed) {
  const auto& library = library_of("correct/variables.metal");
  ASSERT_TRUE(library.ok()) << library.message();
  std::vector<float> x(64), y(3 * 64);
  for (size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(i) - 20;
  const std::string name = GetParam();
  Dispatch d = library.value().kernel(name).dispatch();
  if (name == "padding")
    d.buffer(0, y);
  else
    d.buffer(0, std::as_const(x)).buffer(1, y).value(2, 13);
  const auto report = d.groups(2).threads(32).check().run();
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report.value().text(), "");
  for (uint32_t i = 0; i < 64; ++i) {
    // simdgroup_load: the first element of lane l is at row (l / 4 & 4) + l / 2 % 4, column (l / 4 & 2) * 2 + l % 2 * 2.
    const uint32_t l = i % 32, at = ((l / 4 & 4) + l / 2 % 4) * 8 + (l / 4 & 2) * 2 + l % 2 * 2;
    const float v = x[i], want = name == "guarded"    ? 78 + 14 * v + 1 + (v > 0 ? 2 * v : 0)
                                 : name == "tagged"   ? std::fabs(v)
                                 : name == "padded"   ? v
                                 : name == "shuffled" ? x[i ^ 1] + x[at]
                                 : name == "given"    ? x[i - l + 3] + x[i - l] + 2 + (l < 31 ? x[i + 1] : 0)
                                                      : static_cast<float>(i);
    EXPECT_EQ(y[name == "padding" ? 3 * i + 1 : name == "padded" ? 2 * i : i], want) << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Checked, Variables, ::testing::Values("padding", "padded", "guarded", "tagged", "given", "shuffled"),
                         [](const auto& p) { return p.param; });

}  // namespace
}  // namespace metal_on_cpu
