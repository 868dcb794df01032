// Functions and operators of the Metal library that few shaders use, against the same in float64 or in wide integers.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "support.h"

namespace metal_on_cpu {
namespace {

constexpr size_t kValues = 16;

// One thread of a kernel with this body: x are its numbers, y its results.
template <class T>
std::vector<T> results(const std::string& type, const std::string& body, const std::vector<T>& x) {
  const auto library =
      Library::from_source("#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device const " + type +
                           "* x [[buffer(0)]], device " + type + "* y [[buffer(1)]]) {\n" + body + "\n}\n");
  EXPECT_TRUE(library.ok()) << library.message();
  std::vector<T> y(kValues);
  if (!library) return y;
  const auto report = library.value().kernel("k").dispatch().buffer(0, x).buffer(1, y).check().run();
  EXPECT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report ? report.value().text() : "", "");
  return y;
}

std::vector<float> numbers() {
  std::mt19937 random(20261124);
  std::uniform_real_distribution<float> values(-2, 2);
  std::vector<float> x(kValues);
  for (float& v : x) v = values(random);
  return x;
}

TEST(Functions, OfVectors) {
  const std::vector<float> x = numbers();
  const auto y = results<float>("float", R"(
  const float3 c = cross(float3(x[0], x[1], x[2]), float3(x[3], x[4], x[5]));
  y[0] = c.x, y[1] = c.y, y[2] = c.z;
  const half3 h = cross(half3(1, 2, 3), half3(4, 5, 7));
  y[3] = h.x, y[4] = h.y, y[5] = h.z;)",
                                x);
  for (size_t i = 0; i < 3; ++i) {
    const size_t j = (i + 1) % 3, k = (i + 2) % 3;
    EXPECT_NEAR(y[i], double{x[j]} * x[3 + k] - double{x[k]} * x[3 + j], 1e-6) << i;
  }
  EXPECT_EQ(std::vector<float>(y.begin() + 3, y.begin() + 6), (std::vector<float>{-1, 5, -3}));
}

using Matrix = std::array<std::array<double, 4>, 4>;  // by columns

double determinant(const Matrix& m, size_t n) {  // by elimination, which the library does not use
  Matrix a = m;
  double product = 1;
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c; r < n; ++r)
      if (std::fabs(a[c][r]) > std::fabs(a[c][pivot])) pivot = r;
    for (size_t k = 0; k < n; ++k) std::swap(a[k][c], a[k][pivot]);
    product *= pivot == c ? a[c][c] : -a[c][c];
    for (size_t r = c + 1; r < n; ++r) {
      const double factor = a[c][r] / a[c][c];
      for (size_t k = c; k < n; ++k) a[k][r] -= factor * a[k][c];
    }
  }
  return product;
}

TEST(Functions, DeterminantsOfMatrices) {
  const std::vector<float> x = numbers();
  const auto y = results<float>("float", R"(
  y[0] = determinant(float2x2(x[0], x[1], x[2], x[3]));
  y[1] = determinant(float3x3(float3(x[0], x[1], x[2]), float3(x[3], x[4], x[5]), float3(x[6], x[7], x[8])));
  y[2] = determinant(float4x4(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15]));
  y[3] = determinant(half2x2(3));)",
                                x);
  for (size_t n = 2; n <= 4; ++n) {
    Matrix m{};
    for (size_t i = 0; i < n * n; ++i) m[i / n][i % n] = x[i];
    EXPECT_NEAR(y[n - 2], determinant(m, n), 2e-5) << n;
  }
  EXPECT_EQ(y[3], 9);
}

TEST(Functions, OperatorsOfMatrices) {
  const auto y = results<float>("float", R"(
  float2x2 m(1, 2, 3, 4);           // columns (1, 2) and (3, 4)
  const float2 v = float2(5, 7) * m;
  y[0] = v.x, y[1] = v.y;
  float2x3 wide(1, 2, 3, 4, 5, 6);
  const float2 w = float3(1, 10, 100) * wide;
  y[2] = w.x, y[3] = w.y;
  m *= 2;
  m *= float2x2(0, 1, 1, 0);
  m -= float2x2(1);
  y[4] = m[0][0], y[5] = m[0][1], y[6] = m[1][0], y[7] = m[1][1];
  const float2x2 n = -m - float2x2(1) + m;
  y[8] = n[0][0], y[9] = n[0][1];
  const half4x4 h = half4x4(float4x4(0.1f));
  y[10] = h[3][3], y[11] = h[3][2];
  y[12] = (m == m) + 2 * (m != n);
  m += n;
  y[13] = m[0][0];)",
                                numbers());
  EXPECT_EQ(y, (std::vector<float>{19, 43, 321, 654, 5, 8, 2, 3, -1, 0, 0.0999755859375f, 0, 3, 4, 0, 0}));
}

TEST(Functions, OfIntegers) {
  const std::vector<int> x = {INT32_MAX, INT32_MIN, 3, -4, 7, 0, -1, 5};
  const auto y = results<int>("int", R"(
  y[0] = madsat(x[0], x[2], x[3]);
  y[1] = madsat(x[1], x[2], x[3]);
  y[2] = madsat(x[2], x[3], x[4]);
  y[3] = madsat(uint(x[0]), 4u, 1u) == UINT_MAX;
  y[4] = madsat(ulong(1) << 63, ulong(2), ulong(0)) == ULONG_MAX && madsat(ulong(3), ulong(4), ulong(5)) == 17;
  y[5] = madsat(LONG_MAX, long(2), long(0)) == LONG_MAX && madsat(LONG_MAX, long(-2), long(0)) == -LONG_MAX - 1;
  y[6] = rhadd(x[2], x[4] - 3), y[7] = rhadd(x[3], x[6]), y[8] = rhadd(x[0], x[0]), y[9] = hadd(x[2], x[4] - 3);
  y[10] = madhi(x[0], 4, 1);
  y[11] = madsat(short(300), short(300), short(0)), y[12] = madsat(char(-100), char(2), char(0));)",
                              x);
  EXPECT_EQ(y, (std::vector<int>{INT32_MAX, INT32_MIN, -5, 1, 1, 1, 4, -2, INT32_MAX, 3, 2, 32767, -128, 0, 0, 0}));
}

TEST(Functions, PackAndUnpackNormalizedNumbers) {
  const auto y = results<float>("float", R"(
  const uint s = pack_float_to_snorm2x16(float2(0.5f, -2)), u = pack_float_to_unorm2x16(float2(0.25f, 3));
  y[0] = short(s & 0xffff), y[1] = short(s >> 16), y[2] = u & 0xffff, y[3] = u >> 16;
  const float2 back = unpack_snorm2x16_to_float(0x80007fffu), up = unpack_unorm2x16_to_float(0xffff0000u);
  y[4] = back.x, y[5] = back.y, y[6] = up.x, y[7] = up.y;
  const uint c = pack_float_to_snorm4x8(float4(1, -1, 0.5f, 0));
  y[8] = char(c), y[9] = char(c >> 8), y[10] = char(c >> 16), y[11] = char(c >> 24);
  y[12] = unpack_snorm4x8_to_float(0x80u).x, y[13] = pack_float_to_unorm4x8(float4(0, 0, 0, 1)) >> 24;
  y[14] = unpack_snorm4x8_to_half(c).x, y[15] = unpack_unorm2x16_to_half(u).y;)",
                                numbers());
  EXPECT_EQ(y, (std::vector<float>{16384, -32767, 16384, 65535, 1, -1, 0, 1, 127, -127, 64, 0, -1, 255, 1, 1}));
}

TEST(Functions, ConversionsOfBfloat) {
  const auto y = results<float>("float", R"(
  const bfloat a = x[0], b = 3;
  const bool more = a < b, same = a == a && !(a != a) && b >= a;
  int n = int(b);
  y[0] = more, y[1] = same, y[2] = n, y[3] = more ? b : 0, y[4] = (float)b + half(b), y[5] = bool(b), y[6] = uint(b * b);
  y[7] = b ? 1 : 2;)",
                                {-1});
  EXPECT_EQ(y, (std::vector<float>{1, 1, 3, 3, 6, 1, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace metal_on_cpu
