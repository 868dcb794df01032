// How accurate the runtime's mathematical functions are: no standard fixes their bits, so shaders' tests rely on these bounds.
// The unit is the distance of neighboring floats at the exact result, which long double stands for.
#include "support.h"

namespace metal_on_cpu {
namespace {

struct Function {
  const char* name;
  long double (*exact)(long double);
  float least, most;      // of the argument's magnitude
  float ulps;             // the greatest error that is allowed
  bool positive = false;  // no argument below zero
  float more = 0;         // of that error for each unit of the argument's magnitude
  float wrong = 0;        // the worst error is not below this
};
// The bounds are what the C library of Debian 12 needs for 2^16 arguments each, in whole units.
const Function kFunctions[] = {
    {"exp", [](long double x) { return std::exp(x); }, 1e-6f, 80, 1},
    {"log2", [](long double x) { return std::log2(x); }, 1e-30f, 1e30f, 1, true},
    {"sqrt", [](long double x) { return std::sqrt(x); }, 1e-30f, 1e30f, 0.5f, true},
    {"tanh", [](long double x) { return std::tanh(x); }, 1e-6f, 20, 3},
    {"rint", [](long double x) { return std::rint(x); }, 1e-3f, 1e6f, 0},
    {"fabs", [](long double x) { return std::fabs(x); }, 1e-30f, 1e30f, 0},
    {"limited", [](long double x) { return std::min(std::max(x, -3.0L), 7.0L); }, 1e-3f, 1e3f, 0},
    // As wrong as they may be: 3 + floor(2 |x|) units.
    {"fast_exp", [](long double x) { return std::exp(x); }, 1e-6f, 80, 4, false, 2, 80},
    {"fast_log2", [](long double x) { return std::log2(x); }, 1e-30f, 1e30f, 3, true, 0, 1},
    {"fast_sqrt", [](long double x) { return std::sqrt(x); }, 1e-30f, 1e30f, 3, true, 0, 1},
    {"fast_tanh", [](long double x) { return std::tanh(x); }, 0.01f, 4, 4000, false, 0, 100},
};

/// fast::exp of fast_exp.
std::string in_metal(const Function& f) {
  std::string name = f.name;
  if (name.starts_with("fast_")) name.replace(4, 1, "::");
  return name;
}

std::string shader() {
  std::string text =
      "#include <metal_stdlib>\nusing namespace metal;\nfloat limited(float x) { return clamp(x, -3.0f, 7.0f); }\n";
  for (const Function& f : kFunctions) {
    text +=
        std::string("kernel void k_") + f.name +
        "(device const float* x [[buffer(0)]], device float* z [[buffer(1)]], uint i [[thread_position_in_grid]]) { z[i] = " +
        in_metal(f) + "(x[i]); }\n";
  }
  return text;
}

const Library& functions() {
  static const Library library = must(Library::from_source(shader()));
  return library;
}

// Their logarithms are spread evenly.
std::vector<float> arguments(const Function& f) {
  std::mt19937 random(1);
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
  const std::vector<float> x = arguments(f);
  std::vector<float> z(x.size());
  auto report =
      must(functions().kernel(std::string("k_") + f.name).dispatch().buffer(0, x).buffer(1, z).groups(256).threads(256).run());
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double exact = f.exact(x[i]);
    const double error = exact == 0 ? (z[i] == 0 ? 0 : INFINITY) : error_in_ulps(z[i], exact);
    if (!(error <= worst)) worst = error, at = i;
    EXPECT_LE(error, f.ulps + f.more * std::fabs(x[i])) << f.name << "(" << x[i] << ") = " << z[i];
  }
  std::printf("%-6s %.3f ulp (bound %g)\n", f.name, worst, static_cast<double>(f.ulps));
  EXPECT_GE(worst, f.wrong) << f.name << "(" << x[at] << ") = " << z[at];
}
INSTANTIATE_TEST_SUITE_P(Float, Accuracy, ::testing::ValuesIn(kFunctions), [](const auto& p) { return p.param.name; });

TEST(Functions, OfHalfAndBfloatAreTheFloatsRoundedOnce) {
  const auto library = must(Library::from_source(R"(
#include <metal_stdlib>
using namespace metal;
template <typename T> kernel void k(device const T* x [[buffer(0)]], device int* wrong [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  const float f = x[i];
  wrong[i] = as_type<ushort>(exp(x[i])) != as_type<ushort>(T(exp(f))) ||
             as_type<ushort>(tanh(x[i])) != as_type<ushort>(T(tanh(f))) || as_type<ushort>(sqrt(x[i])) != as_type<ushort>(T(sqrt(f)));
}
template [[host_name("half")]] kernel decltype(k<half>) k<half>;
template [[host_name("bfloat")]] kernel decltype(k<bfloat>) k<bfloat>;
)"));
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const char* const kernel : {"half", "bfloat"}) {
    std::vector<int> wrong(all.size(), 1);
    auto report = must(library.kernel(kernel).dispatch().buffer(0, all).buffer(1, wrong).groups(256).threads(256).run());
    EXPECT_EQ(wrong, std::vector<int>(all.size(), 0)) << kernel;
  }
}

TEST(Functions, OfPreciseGiveFloats) {
  const auto library = must(Library::from_source(R"(
#include <metal_stdlib>
using namespace metal;
static_assert(is_same_v<decltype(exp(half(1))), half>, "");
static_assert(is_same_v<decltype(precise::exp(half(1))), float>, "");
kernel void k(device float* y [[buffer(0)]]) { y[0] = precise::exp(half(y[1])) - exp(float(half(y[1]))); }
)"));
  std::vector<float> y = {1, 2};
  auto report = must(library.kernel("k").dispatch().buffer(0, y).groups(1).threads(1).run());
  EXPECT_EQ(y[0], 0);
}

// Out of the integer's range: the nearest that it has. A NaN gives 0.
TEST(Conversions, OfFloatsToIntegersSaturate) {
  const auto library = must(Library::from_source(R"(
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
)"));
  const std::vector<float> x = {-2.75f, 1e30f, -1e30f, NAN, INFINITY, -INFINITY, 300, 100.9f};
  std::vector<int32_t> i32(8);
  std::vector<uint32_t> u32(8);
  std::vector<int8_t> i8(8);
  std::vector<uint64_t> u64(8);
  std::vector<int16_t> of_half(8);
  std::vector<uint8_t> of_bfloat(8);
  for (const bool checked : {false, true}) {
    auto report = must(library.kernel("k")
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
                           .run());
    EXPECT_EQ(report.text(), "");
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
