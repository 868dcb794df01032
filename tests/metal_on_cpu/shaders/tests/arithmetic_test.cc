// half, bfloat and simdgroup_matrix against float64 rounded to nearest even once; contraction and flushing of subnormals.
#include "support.h"

namespace metal_on_cpu {
namespace {

// The nearest number with `digits` binary digits and exponents from `lowest` on, ties to even; overflow to infinity.
double round_to(double x, int digits, int lowest, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), lowest);
  const double unit = std::ldexp(1.0, exponent - digits + 1), rounded = std::nearbyint(x / unit) * unit;
  return std::fabs(rounded) > largest ? std::copysign(INFINITY, x) : rounded;
}
double half_round(double x) { return round_to(x, 11, -14, 65504); }
double bfloat_round(double x) { return round_to(x, 8, -126, 0x1.fep127); }

double half_value(uint16_t bits) {
  const int e = bits >> 10 & 31, m = bits & 1023;
  const double magnitude = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return bits >> 15 ? -magnitude : magnitude;
}
double bfloat_value(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

constexpr const char* kShader = R"(
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
template <typename T> kernel void arithmetic(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device const T* c [[buffer(2)]],
                                             device T* y [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  y[5 * i] = a[i] + b[i];
  y[5 * i + 1] = a[i] - b[i];
  y[5 * i + 2] = a[i] * b[i];
  y[5 * i + 3] = a[i] / b[i];
  y[5 * i + 4] = fma(a[i], b[i], c[i]);
}
template [[host_name("half")]] kernel decltype(arithmetic<half>) arithmetic<half>;
template [[host_name("bfloat")]] kernel decltype(arithmetic<bfloat>) arithmetic<bfloat>;
kernel void convert(device const float* x [[buffer(0)]], device half* h [[buffer(1)]], device bfloat* b [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  h[i] = half(x[i]);
  b[i] = bfloat(x[i]);
}
kernel void widen(device const ushort* bits [[buffer(0)]], device float* h [[buffer(1)]], device float* b [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  h[i] = float(as_type<half>(bits[i]));
  b[i] = float(as_type<bfloat>(bits[i]));
}
kernel void multiply_add(device const float* x [[buffer(0)]], device float* y [[buffer(1)]]) { y[0] = x[0] * x[1] + x[2]; }
template <typename T> kernel void forms(device const vec<T, 4>* x [[buffer(0)]], device vec<T, 4>* y [[buffer(1)]]) {
  const vec<T, 4> a = x[0], c = x[1], p = a * a;
  y[0] = a * a + c;
  y[1] = c - a * a;
  vec<T, 4> sum = c;
  sum += a * a;
  y[2] = sum;
  y[3] = p + c;
}
template [[host_name("forms_float")]] kernel decltype(forms<float>) forms<float>;
template [[host_name("forms_half")]] kernel decltype(forms<half>) forms<half>;
template [[host_name("forms_bfloat")]] kernel decltype(forms<bfloat>) forms<bfloat>;
template <typename T> static T twice(T x) { T y = x; y += x; return y; }
static float total(float4 v) { return v.x + v.y + v.z + v.w; }
kernel void products(device const float4* x [[buffer(0)]], device float* y [[buffer(1)]]) {
  const float4 a = *x;
  y[0] = total(a * a) + simd_sum(4 * total(a * a));
  y[1] = (a * a).x + float(as_type<int4>(a * 0).y) + max(a * 1, 3).y;
  y[2] = (a * a).zw.x + simd_sum(a * a * 9).z;
  y[3] = twice(a * a).w + 1;
}
template <typename T> kernel void product(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]], device float* y [[buffer(2)]],
                                          uint lane [[thread_index_in_simdgroup]]) {
  const uint at = (((lane / 4) & 4) + (lane / 2) % 4) * 8 + ((lane / 4) & 2) * 2 + (lane % 2) * 2;
  simdgroup_matrix<T, 8, 8> ma, mb;
  for (uint e = 0; e < 2; e++) ma.thread_elements()[e] = a[at + e], mb.thread_elements()[e] = b[at + e];
  simdgroup_float8x8 mc = make_filled_simdgroup_matrix<float, 8, 8>(0.5f);
  simdgroup_multiply_accumulate(mc, ma, mb, mc);
  for (uint e = 0; e < 2; e++) y[at + e] = mc.thread_elements()[e];
}
template [[host_name("product_half")]] kernel decltype(product<half>) product<half>;
template [[host_name("product_bfloat")]] kernel decltype(product<bfloat>) product<bfloat>;
template [[host_name("product_float")]] kernel decltype(product<float>) product<float>;
)";

Library library(Contraction contraction = Contraction::kFloat) {
  CompileOptions options;
  options.contraction = contraction;
  auto l = Library::from_source(kShader, options);
  EXPECT_TRUE(l.ok()) << l.message();
  return l.take();
}

Report run(Dispatch d) {
  auto report = d.run();
  EXPECT_TRUE(report.ok()) << report.message();
  return report.ok() ? report.take() : Report();
}

struct Format {
  const char* kernel;
  double (*value)(uint16_t);
  double (*round)(double);
};
class SixteenBits : public ::testing::TestWithParam<Format> {};
TEST_P(SixteenBits, EachOperationRoundsOnce) {
  const Format& f = GetParam();
  constexpr uint32_t kCount = 32768;
  std::mt19937 random(1);
  std::vector<uint16_t> a(kCount), b(kCount), c(kCount), y(5 * kCount);
  for (auto* v : {&a, &b, &c})
    for (uint16_t& x : *v) x = static_cast<uint16_t>(random());
  run(library()
          .kernel(f.kernel)
          .dispatch()
          .buffer(0, a)
          .buffer(1, b)
          .buffer(2, c)
          .buffer(3, y)
          .groups(kCount / 256)
          .threads(256));
  for (uint32_t i = 0; i < kCount; ++i) {
    const double p = f.value(a[i]), q = f.value(b[i]), r = f.value(c[i]);
    // Sums and products of bfloat may need more than 53 digits; float64 then is no oracle for the last of 8 digits only in
    // ties.
    const double want[] = {f.round(p + q), f.round(p - q), f.round(p * q), f.round(p / q)};
    for (int k = 0; k < 4; ++k) {
      const double got = f.value(y[5 * i + k]);
      if (std::isnan(want[k])) {
        ASSERT_TRUE(std::isnan(got));
      } else {
        ASSERT_EQ(got, want[k]) << p << " and " << q << ", operation " << k;
      }
    }
    // Where float64 holds the sum without rounding, it is the oracle.
    const double exact = p * q + r, got = f.value(y[5 * i + 4]);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(got));
    } else if (exact - p * q == r && exact - r == p * q) {
      ASSERT_EQ(got, f.round(exact)) << p << " * " << q << " + " << r;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         ::testing::Values(Format{"half", half_value, half_round},
                                           Format{"bfloat", bfloat_value, bfloat_round}),
                         [](const auto& p) { return p.param.kernel; });

TEST(Conversions, OfFloatsRoundToNearestEven) {
  std::mt19937 random(2);
  std::vector<float> x(65536);
  for (float& v : x) v = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (size_t i = 0; i < 4096; ++i)
    x[i] = static_cast<float>(half_value(static_cast<uint16_t>(i * 8)) * (1 + std::ldexp(1.0, -11)));  // ties
  std::vector<uint16_t> h(x.size()), b(x.size());
  run(library().kernel("convert").dispatch().buffer(0, x).buffer(1, h).buffer(2, b).groups(256).threads(256));
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(half_value(h[i])) && std::isnan(bfloat_value(b[i])));
      continue;
    }
    ASSERT_EQ(half_value(h[i]), half_round(x[i])) << x[i];
    ASSERT_EQ(bfloat_value(b[i]), bfloat_round(x[i])) << x[i];
  }
}

TEST(Conversions, OfEveryHalfAndBfloat) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> h(bits.size()), b(bits.size());
  run(library().kernel("widen").dispatch().buffer(0, bits).buffer(1, h).buffer(2, b).groups(256).threads(256));
  for (size_t i = 0; i < bits.size(); ++i) {
    if (!std::isnan(half_value(bits[i]))) {
      ASSERT_EQ(h[i], half_value(bits[i]));
    }
    if (!std::isnan(bfloat_value(bits[i]))) {
      ASSERT_EQ(b[i], bfloat_value(bits[i]));
    }
  }
}

TEST(Modes, Contraction) {
  const std::vector<float> x = {1 + 0x1p-12f, 1 + 0x1p-12f, -(1 + 0x1p-11f)};
  std::vector<float> y(1);
  run(library().kernel("multiply_add").dispatch().buffer(0, x).buffer(1, y));
  EXPECT_EQ(y[0], 0x1p-24f);
  run(library(Contraction::kOff).kernel("multiply_add").dispatch().buffer(0, x).buffer(1, y));
  EXPECT_EQ(y[0], 0);
}

// a * b + c, c - a * b, c += a * b, and a product that has a name, which is rounded first.
template <class T>
std::vector<double> forms(const char* kernel, Contraction contraction, T a, T c, bool checked) {
  const std::vector<T> x = {a, a, a, a, c, c, c, c};
  std::vector<T> y(16, T(7));
  run(library(contraction).kernel(kernel).dispatch().buffer(0, x).buffer(1, y).check(checked));
  std::vector<double> values;
  for (size_t i = 0; i < 16; i += 4) {
    EXPECT_EQ(y[i], y[i + 3]);
    if constexpr (sizeof(T) == 2)
      values.push_back(std::string(kernel) == "forms_half" ? half_value(y[i]) : bfloat_value(y[i]));
    else
      values.push_back(y[i]);
  }
  return values;
}

TEST(Modes, ContractionOfVectors) {
  constexpr float kA = 1 + 0x1p-12f, kC = -(1 + 0x1p-11f);
  for (const bool checked : {false, true}) {
    EXPECT_EQ(forms<float>("forms_float", Contraction::kOff, kA, kC, checked), (std::vector<double>{0, 2 * kC, 0, 0}));
    for (const Contraction c : {Contraction::kFloat, Contraction::kAll})
      EXPECT_EQ(forms<float>("forms_float", c, kA, kC, checked), (std::vector<double>{0x1p-24, 2 * kC, 0x1p-24, 0}));
    // 1 + 2^-6 in half: its square is 1 + 2^-5 + 2^-12, of which the last is lost.
    constexpr uint16_t kHalf = 0x3c10, kHalfC = 0xbc20;
    for (const Contraction c : {Contraction::kOff, Contraction::kFloat})
      EXPECT_EQ(forms<uint16_t>("forms_half", c, kHalf, kHalfC, checked), (std::vector<double>{0, -2.0625, 0, 0}));
    EXPECT_EQ(forms<uint16_t>("forms_half", Contraction::kAll, kHalf, kHalfC, checked),
              (std::vector<double>{0x1p-12, -2.0625, 0x1p-12, 0}));
    // 1 + 2^-5 in bfloat: its square is 1 + 2^-4 + 2^-10.
    constexpr uint16_t kBfloat = 0x3f84, kBfloatC = 0xbf88;
    EXPECT_EQ(forms<uint16_t>("forms_bfloat", Contraction::kFloat, kBfloat, kBfloatC, checked),
              (std::vector<double>{0, -2.125, 0, 0}));
    EXPECT_EQ(forms<uint16_t>("forms_bfloat", Contraction::kAll, kBfloat, kBfloatC, checked),
              (std::vector<double>{0x1p-10, -2.125, 0x1p-10, 0}));
  }
}

// What products of vectors are besides the start of a sum.
TEST(Modes, ProductsAreVectors) {
  for (const Contraction c : {Contraction::kOff, Contraction::kFloat, Contraction::kAll}) {
    const std::vector<float> x = {1, 2, 3, 4};
    std::vector<float> y(4);
    run(library(c).kernel("products").dispatch().buffer(0, x).buffer(1, y).check());
    EXPECT_EQ(y, (std::vector<float>{30 + 4 * 30, 1 + 3, 9 + 81, 2 * 16 + 1}));
  }
}

TEST(Modes, FlushToZeroTakesFloatsButNotHalves) {
  const std::vector<float> x = {0x1p-100f, 0x1p-30f, 0};
  std::vector<float> y(1, 1);
  run(library().kernel("multiply_add").dispatch().buffer(0, x).buffer(1, y));
  EXPECT_EQ(y[0], 0x1p-130f);
  run(library().kernel("multiply_add").dispatch().buffer(0, x).buffer(1, y).flush_to_zero());
  EXPECT_EQ(y[0], 0);
  const std::vector<uint16_t> bits = {0x0001, 0x0200};
  std::vector<float> h(2), b(2);
  run(library().kernel("widen").dispatch().buffer(0, bits).buffer(1, h).buffer(2, b).threads(2).flush_to_zero());
  EXPECT_EQ(h[0], 0x1p-24f);
  EXPECT_EQ(h[1], 0x1p-15f);
}

TEST(SimdgroupMatrix, SumsInFloat) {
  std::mt19937 random(3);
  std::vector<uint16_t> a(64), b(64);
  for (auto* v : {&a, &b})
    for (uint16_t& x : *v) x = static_cast<uint16_t>(0x3800 + random() % 0x800);  // 0.5 to 2 as half, tiny as bfloat
  for (const Format& f :
       {Format{"product_half", half_value, half_round}, Format{"product_bfloat", bfloat_value, bfloat_round}}) {
    std::vector<float> y(64);
    run(library().kernel(f.kernel).dispatch().buffer(0, a).buffer(1, b).buffer(2, y).threads(32));
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j) {
        float want = 0.5f;
        for (int k = 0; k < 8; ++k)
          want = static_cast<float>(std::fma(f.value(a[i * 8 + k]), f.value(b[k * 8 + j]), static_cast<double>(want)));
        ASSERT_EQ(y[i * 8 + j], want) << f.kernel << " " << i << "," << j;
      }
  }
}

}  // namespace
}  // namespace metal_on_cpu
