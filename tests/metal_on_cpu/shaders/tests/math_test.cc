// How accurate the runtime's mathematical functions are: no standard fixes their bits, so shaders' tests rely on these bounds.
// The unit is the distance of neighboring floats at the exact result, which long double stands for.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "support.h"

namespace metal_on_cpu {
namespace {

constexpr long double kPi = std::numbers::pi_v<long double>;

struct Function {
  const char* name;
  long double (*exact)(long double, long double);
  float least, most;  // of the argument's magnitude
  float ulps;         // the greatest error that is allowed
  bool binary = false;
  bool positive = false;  // no argument below zero
};
// The bounds are what the C library of Debian 12 needs for 2^16 arguments each, in whole units. sinpi and its like multiply by
// a float that is not pi, and rsqrt rounds twice.
const Function kFunctions[] = {
    {"exp", [](long double x, long double) { return std::exp(x); }, 1e-6f, 80, 1},
    {"exp2", [](long double x, long double) { return std::exp2(x); }, 1e-6f, 120, 1},
    {"exp10", [](long double x, long double) { return std::pow(10.0L, x); }, 1e-6f, 36, 1},
    {"log", [](long double x, long double) { return std::log(x); }, 1e-30f, 1e30f, 1, false, true},
    {"log2", [](long double x, long double) { return std::log2(x); }, 1e-30f, 1e30f, 1, false, true},
    {"log10", [](long double x, long double) { return std::log10(x); }, 1e-30f, 1e30f, 2, false, true},
    {"sqrt", [](long double x, long double) { return std::sqrt(x); }, 1e-30f, 1e30f, 0.5f, false, true},
    {"rsqrt", [](long double x, long double) { return 1 / std::sqrt(x); }, 1e-30f, 1e30f, 2, false, true},
    {"sin", [](long double x, long double) { return std::sin(x); }, 1e-6f, 1e6f, 1},
    {"cos", [](long double x, long double) { return std::cos(x); }, 1e-6f, 1e6f, 1},
    {"tan", [](long double x, long double) { return std::tan(x); }, 1e-6f, 1e6f, 1},
    {"sinh", [](long double x, long double) { return std::sinh(x); }, 1e-6f, 80, 2},
    {"cosh", [](long double x, long double) { return std::cosh(x); }, 1e-6f, 80, 2},
    {"tanh", [](long double x, long double) { return std::tanh(x); }, 1e-6f, 20, 3},
    {"asin", [](long double x, long double) { return std::asin(x); }, 1e-6f, 1, 1},
    {"acos", [](long double x, long double) { return std::acos(x); }, 1e-6f, 1, 1},
    {"atan", [](long double x, long double) { return std::atan(x); }, 1e-6f, 1e6f, 1},
    {"asinh", [](long double x, long double) { return std::asinh(x); }, 1e-6f, 1e6f, 2},
    {"acosh", [](long double x, long double) { return std::acosh(x); }, 1, 1e6f, 2, false, true},
    {"atanh", [](long double x, long double) { return std::atanh(x); }, 1e-6f, 0.999f, 2},
    {"sinpi", [](long double x, long double) { return std::sin(kPi * x); }, 1e-6f, 0.5f, 2},
    {"cospi", [](long double x, long double) { return std::cos(kPi * x); }, 1e-6f, 0.25f, 2},
    {"tanpi", [](long double x, long double) { return std::tan(kPi * x); }, 1e-6f, 0.25f, 3},
    {"pow", [](long double x, long double y) { return std::pow(x, y); }, 1e-3f, 1e3f, 1, true, true},
    {"powr", [](long double x, long double y) { return std::pow(x, y); }, 1e-3f, 1e3f, 1, true, true},
    {"fmod", [](long double x, long double y) { return std::fmod(x, y); }, 1e-3f, 1e3f, 0, true},
    {"atan2", [](long double x, long double y) { return std::atan2(x, y); }, 1e-6f, 1e6f, 2, true},
};

std::string shader() {
  std::string text = "#include <metal_stdlib>\nusing namespace metal;\n";
  for (const Function& f : kFunctions) {
    text += std::string("kernel void k_") + f.name +
            "(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]], device float* z [[buffer(2)]], "
            "uint i [[thread_position_in_grid]]) { z[i] = " +
            f.name + (f.binary ? "(x[i], y[i]); }\n" : "(x[i]); }\n");
  }
  return text;
}

const Result<Library>& functions() {
  static const Result<Library> library = Library::from_source(shader());
  return library;
}

// Their logarithms are spread evenly.
std::vector<float> arguments(const Function& f, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(std::log(f.least), std::log(f.most));
  std::vector<float> all(65536);
  for (float& x : all) {
    x = std::min(std::max(std::exp(exponent(random)), f.least), f.most);
    if (!f.positive && random() & 1) x = -x;
  }
  return all;
}

double error_in_ulps(float got, long double exact) {
  const int exponent = std::max(std::ilogb(static_cast<double>(exact)), -126);
  return static_cast<double>(std::fabs(got - exact) / std::ldexp(1.0L, exponent - 23));
}

class Accuracy : public ::testing::TestWithParam<Function> {};

TEST_P(Accuracy, IsWithinItsBound) {
  const Function& f = GetParam();
  ASSERT_TRUE(functions().ok()) << functions().message();
  const std::vector<float> x = arguments(f, 1);
  std::vector<float> y = arguments(f, 2), z(x.size());
  if (f.exact(2, 3) == 8) {  // powers neither overflow nor vanish
    for (size_t i = 0; i < y.size(); ++i) y[i] = std::fmod(y[i], 12.0f);
  }
  auto report = functions()
                    .value()
                    .kernel(std::string("k_") + f.name)
                    .dispatch()
                    .buffer(0, x)
                    .buffer(1, y)
                    .buffer(2, z)
                    .groups(256)
                    .threads(256)
                    .run();
  ASSERT_TRUE(report.ok()) << report.message();
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double exact = f.exact(x[i], y[i]);
    const double error = exact == 0 ? (z[i] == 0 ? 0 : INFINITY) : error_in_ulps(z[i], exact);
    if (!(error <= worst)) worst = error, at = i;
  }
  std::printf("%-6s %.3f ulp (bound %g)\n", f.name, worst, static_cast<double>(f.ulps));
  EXPECT_LE(worst, f.ulps) << f.name << "(" << x[at] << (f.binary ? ", " + std::to_string(y[at]) : "") << ") = " << z[at];
}
INSTANTIATE_TEST_SUITE_P(Float, Accuracy, ::testing::ValuesIn(kFunctions), [](const auto& p) { return p.param.name; });

TEST(Functions, OfHalfAndBfloatAreTheFloatsRoundedOnce) {
  auto library = Library::from_source(R"(
#include <metal_stdlib>
using namespace metal;
template <typename T> kernel void k(device const T* x [[buffer(0)]], device int* wrong [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  const float f = x[i];
  wrong[i] = as_type<ushort>(exp(x[i])) != as_type<ushort>(T(exp(f))) || as_type<ushort>(sin(x[i])) != as_type<ushort>(T(sin(f))) ||
             as_type<ushort>(tanh(x[i])) != as_type<ushort>(T(tanh(f))) || as_type<ushort>(sqrt(x[i])) != as_type<ushort>(T(sqrt(f)));
}
template [[host_name("half")]] kernel decltype(k<half>) k<half>;
template [[host_name("bfloat")]] kernel decltype(k<bfloat>) k<bfloat>;
)");
  ASSERT_TRUE(library.ok()) << library.message();
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const char* const kernel : {"half", "bfloat"}) {
    std::vector<int> wrong(all.size(), 1);
    auto report = library.value().kernel(kernel).dispatch().buffer(0, all).buffer(1, wrong).groups(256).threads(256).run();
    ASSERT_TRUE(report.ok()) << report.message();
    EXPECT_EQ(wrong, std::vector<int>(all.size(), 0)) << kernel;
  }
}

TEST(Functions, OfFastAndPreciseGiveFloats) {
  auto library = Library::from_source(R"(
#include <metal_stdlib>
using namespace metal;
static_assert(is_same_v<decltype(exp(half(1))), half>, "");
static_assert(is_same_v<decltype(fast::exp(half(1))), float>, "");
static_assert(is_same_v<decltype(precise::exp(half(1))), float>, "");
static_assert(is_same_v<decltype(precise::pow(half(1), half(2))), float>, "");
kernel void k(device float* y [[buffer(0)]]) { y[0] = precise::exp(half(y[1])) - fast::exp(float(half(y[1]))); }
)");
  ASSERT_TRUE(library.ok()) << library.message();
  std::vector<float> y = {1, 2};
  auto report = library.value().kernel("k").dispatch().buffer(0, y).groups(1).threads(1).run();
  ASSERT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(y[0], 0);
}

// Out of the integer's range: the nearest that it has. A NaN gives 0.
TEST(Conversions, OfFloatsToIntegersSaturate) {
  auto library = Library::from_source(R"(
#include <metal_stdlib>
using namespace metal;
kernel void k(device const float* x [[buffer(0)]], device int* i32 [[buffer(1)]], device uint* u32 [[buffer(2)]], device char* i8 [[buffer(3)]],
              device ulong* u64 [[buffer(4)]], device short* of_half [[buffer(5)]], device uchar* of_bfloat [[buffer(6)]], uint i [[thread_position_in_grid]]) {
  i32[i] = x[i];
  u32[i] = uint(x[i]);
  i8[i] = static_cast<char>(x[i]);
  u64[i] = (ulong)x[i];
  of_half[i] = short(half(x[i]));
  of_bfloat[i] = uchar(bfloat(x[i]));
}
)");
  ASSERT_TRUE(library.ok()) << library.message();
  const std::vector<float> x = {-2.75f, 1e30f, -1e30f, NAN, INFINITY, -INFINITY, 300, 100.9f};
  std::vector<int32_t> i32(8);
  std::vector<uint32_t> u32(8);
  std::vector<int8_t> i8(8);
  std::vector<uint64_t> u64(8);
  std::vector<int16_t> of_half(8);
  std::vector<uint8_t> of_bfloat(8);
  for (const bool checked : {false, true}) {
    auto report = library.value()
                      .kernel("k")
                      .dispatch()
                      .buffer(0, x)
                      .buffer(1, i32)
                      .buffer(2, u32)
                      .buffer(3, i8)
                      .buffer(4, u64)
                      .buffer(5, of_half)
                      .buffer(6, of_bfloat)
                      .groups(1)
                      .threads(8)
                      .check(checked)
                      .run();
    ASSERT_TRUE(report.ok()) << report.message();
    EXPECT_EQ(report.value().text(), "");
    EXPECT_EQ(i32, (std::vector<int32_t>{-2, INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MIN, 300, 100}));
    EXPECT_EQ(u32, (std::vector<uint32_t>{0, UINT32_MAX, 0, 0, UINT32_MAX, 0, 300, 100}));
    EXPECT_EQ(i8, (std::vector<int8_t>{-2, 127, -128, 0, 127, -128, 127, 100}));
    EXPECT_EQ(u64, (std::vector<uint64_t>{0, UINT64_MAX, 0, 0, UINT64_MAX, 0, 300, 100}));
    EXPECT_EQ(of_half, (std::vector<int16_t>{-2, INT16_MAX, INT16_MIN, 0, INT16_MAX, INT16_MIN, 300, 100}));
    EXPECT_EQ(of_bfloat, (std::vector<uint8_t>{0, 255, 0, 0, 255, 0, 255, 101}));
  }
}

}  // namespace
}  // namespace metal_on_cpu
