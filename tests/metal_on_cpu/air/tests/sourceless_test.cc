// Kernels of the wheel that it has no header for: what Apple's compiler made of them, against references in float64 or, of
// integers, exact ones.
#include <gtest/gtest.h>
#include <metal_on_cpu/metal_on_cpu.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "wheel.h"

namespace metal_on_cpu {
namespace {

// A float's type: its name in kernels' names, the distance of its neighbors at 1, and at 0.
struct Float {
  const char* name;
  size_t bytes;
  double unit, least;
};
constexpr Float kFloats[] = {
    {"float32", 4, 0x1p-23, 0x1p-149}, {"float16", 2, 0x1p-10, 0x1p-24}, {"bfloat16", 2, 0x1p-7, 0x1p-133}};

// An array of them.
class Array {
 public:
  Array(const Float& type, size_t count) : type_(type), bytes_(count * type.bytes) {}
  static Array random(const Float& type, size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> value(-2, 2);
    Array a(type, count);
    for (size_t i = 0; i < count; ++i) {
      const float x = value(random);
      const auto half = static_cast<_Float16>(x);
      const uint32_t bits = std::bit_cast<uint32_t>(x);  // its upper half is a bfloat
      if (type.bytes == 4)
        std::memcpy(&a.bytes_[4 * i], &x, 4);
      else
        std::memcpy(&a.bytes_[2 * i],
                    type.unit == 0x1p-10 ? static_cast<const void*>(&half) : reinterpret_cast<const char*>(&bits) + 2, 2);
    }
    return a;
  }
  double operator[](size_t i) const {
    if (type_.bytes == 4) return read<float>(i);
    if (type_.unit == 0x1p-10) return static_cast<double>(read<_Float16>(i));
    return std::bit_cast<float>(static_cast<uint32_t>(read<uint16_t>(i)) << 16);
  }
  std::vector<unsigned char>& bytes() { return bytes_; }

 private:
  template <class T>
  T read(size_t i) const {
    T value;
    std::memcpy(&value, &bytes_[i * sizeof(T)], sizeof value);
    return value;
  }
  Float type_;
  std::vector<unsigned char> bytes_;
};

class Sourceless : public ::testing::TestWithParam<Float> {
 protected:
  void SetUp() override {
    if (!air::wheel().absent.empty()) GTEST_SKIP() << air::wheel().absent;
    setenv("METAL_ON_CPU_AIR_TO_NATIVE", METAL_ON_CPU_AIR_TO_NATIVE, 1);
    ASSERT_TRUE(library().ok()) << library().message();
  }
  static const Result<Library>& library() {
    static const Result<Library> found = Library::from_file(air::wheel().metallib);
    return found;
  }
  static Kernel kernel(const std::string& name) { return library().value().kernel(name); }
  // Runs it with checks; there must be nothing to find.
  static void run(Dispatch d) {
    auto report = d.check().run();
    ASSERT_TRUE(report.ok()) << report.message();
    EXPECT_EQ(report.value().text(), "");
  }
};

// In one step, and in several.
struct Rows {
  const char* infix;
  uint32_t rows, columns, threads;
};
constexpr Rows kRows[] = {{"", 3, 1021, 256}, {"_looped", 2, 5003, 1024}};
constexpr float kEpsilon = 1e-5f;

TEST_P(Sourceless, RootMeanSquareNorm) {
  const Float& t = GetParam();
  for (const Rows& r : kRows) {
    SCOPED_TRACE(r.infix);
    Array x = Array::random(t, r.rows * r.columns, 1), w = Array::random(t, r.columns, 2), y(t, r.rows * r.columns);
    run(kernel(std::string("rms") + r.infix + t.name)
            .dispatch()
            .buffer(0, x.bytes())
            .buffer(1, w.bytes())
            .output(2, y.bytes())
            .value(3, kEpsilon)
            .value(4, r.columns)
            .value(5, uint32_t{1})
            .groups(r.rows)
            .threads(r.threads));
    for (size_t row = 0; row < r.rows; ++row) {
      double squares = 0;
      for (size_t i = row * r.columns; i < (row + 1) * r.columns; ++i) squares += x[i] * x[i];
      const double by = 1 / std::sqrt(squares / r.columns + kEpsilon);
      for (size_t c = 0; c < r.columns; ++c) {
        const size_t i = row * r.columns + c;
        const double want = x[i] * by * w[c];
        // Two roundings to the type, and the sum's in float.
        ASSERT_NEAR(y[i], want, std::fabs(want) * (t.unit + 32 * 0x1p-23) + 2 * t.least) << i;
      }
    }
  }
}

TEST_P(Sourceless, LayerNorm) {
  const Float& t = GetParam();
  for (const Rows& r : kRows) {
    SCOPED_TRACE(r.infix);
    Array x = Array::random(t, r.rows * r.columns, 1), w = Array::random(t, r.columns, 2), b = Array::random(t, r.columns, 3),
          y(t, r.rows * r.columns);
    run(kernel(std::string("layer_norm") + r.infix + t.name)
            .dispatch()
            .buffer(0, x.bytes())
            .buffer(1, w.bytes())
            .buffer(2, b.bytes())
            .output(3, y.bytes())
            .value(4, kEpsilon)
            .value(5, r.columns)
            .value(6, uint32_t{1})
            .value(7, uint32_t{1})
            .groups(r.rows)
            .threads(r.infix[0] ? r.threads : r.columns / 8 + 1));
    for (size_t row = 0; row < r.rows; ++row) {
      double mean = 0, variance = 0;
      for (size_t i = row * r.columns; i < (row + 1) * r.columns; ++i) mean += x[i] / r.columns;
      for (size_t i = row * r.columns; i < (row + 1) * r.columns; ++i) variance += (x[i] - mean) * (x[i] - mean) / r.columns;
      const double by = 1 / std::sqrt(variance + kEpsilon);
      for (size_t c = 0; c < r.columns; ++c) {
        const size_t i = row * r.columns + c;
        const double normed = (x[i] - mean) * by, want = normed * w[c] + b[c];
        // Of the normed value, of the product and of the sum; the mean is exact to some units of float.
        const double bound = (std::fabs(normed * w[c]) + std::fabs(want) + std::fabs(w[c]) * 0x1p-12) * t.unit;
        ASSERT_NEAR(y[i], want, bound + std::fabs(w[c]) * 32 * 0x1p-23) << i;
      }
    }
  }
}

// A thread has eight elements, and takes those behind the row's end for the mean. One that has none begins before its array.
TEST_F(Sourceless, LayerNormWithIdleThreadsWritesBesideItsArray) {
  constexpr uint32_t kColumns = 1001, kThreads = 128;  // of which 126 have elements
  std::vector<float> x(kColumns, 1), y(kColumns);
  auto report = kernel("layer_normfloat32")
                    .dispatch()
                    .buffer(0, x)
                    .buffer(1, x)
                    .buffer(2, x)
                    .output(3, y)
                    .value(4, kEpsilon)
                    .value(5, kColumns)
                    .value(6, uint32_t{1})
                    .value(7, uint32_t{1})
                    .groups(1)
                    .threads(kThreads)
                    .check()
                    .run();
  ASSERT_TRUE(report.ok()) << report.message();
  ASSERT_EQ(report.value().findings.size(), 1u);
  EXPECT_EQ(report.value().findings[0].kind, "out-of-bounds-thread-array");
  EXPECT_EQ(report.value().findings[0].thread.x, 126u);
}

// Gradients by the input, and of each row by the weights.
TEST_P(Sourceless, GradientsOfLayerNorm) {
  const Float& t = GetParam();
  for (const Rows& r : kRows) {
    SCOPED_TRACE(r.infix);
    const size_t count = r.rows * r.columns;
    Array x = Array::random(t, count, 1), w = Array::random(t, r.columns, 2), g = Array::random(t, count, 3), gx(t, count),
          gw(t, count);
    run(kernel(std::string("vjp_layer_norm") + r.infix + t.name)
            .constant(20, true)
            .dispatch()
            .buffer(0, x.bytes())
            .buffer(1, w.bytes())
            .buffer(2, g.bytes())
            .output(3, gx.bytes())
            .output(4, gw.bytes())
            .value(5, kEpsilon)
            .value(6, r.columns)
            .value(7, uint32_t{1})
            .groups(r.rows)
            .threads(r.infix[0] ? r.threads : r.columns / 8 + 1));
    for (size_t row = 0; row < r.rows; ++row) {
      const size_t begin = row * r.columns, end = begin + r.columns;
      double mean = 0, variance = 0, of_g = 0, of_gx = 0;
      for (size_t i = begin; i < end; ++i) mean += x[i] / r.columns;
      for (size_t i = begin; i < end; ++i) variance += (x[i] - mean) * (x[i] - mean) / r.columns;
      const double by = 1 / std::sqrt(variance + kEpsilon);
      for (size_t i = begin; i < end; ++i) {
        of_g += g[i] * w[i - begin] / r.columns;
        of_gx += g[i] * w[i - begin] * (x[i] - mean) * by / r.columns;
      }
      for (size_t i = begin; i < end; ++i) {
        const double normed = (x[i] - mean) * by, gradient = by * (g[i] * w[i - begin] - of_g - normed * of_gx);
        ASSERT_NEAR(gx[i], gradient, 2 * t.unit * (std::fabs(gradient) + 0x1p-6) + 64 * 0x1p-23) << i;
        ASSERT_NEAR(gw[i], g[i] * normed, 2 * t.unit * (std::fabs(g[i] * normed) + 0x1p-6) + 64 * 0x1p-23) << i;
      }
    }
  }
}

// In one step, a threadgroup takes some rows and adds up what they want of the weights; in several it takes one.
TEST_P(Sourceless, GradientsOfRootMeanSquareNorm) {
  const Float& t = GetParam();
  for (const Rows& r : kRows) {
    SCOPED_TRACE(r.infix);
    const size_t count = r.rows * r.columns;
    const uint32_t of_group = r.infix[0] ? 1 : 2, groups = (r.rows + of_group - 1) / of_group;
    Array x = Array::random(t, count, 1), w = Array::random(t, r.columns, 2), g = Array::random(t, count, 3), gx(t, count),
          gw(t, groups * r.columns);
    run(kernel(std::string("vjp_rms") + r.infix + t.name)
            .constant(20, true)
            .dispatch()
            .buffer(0, x.bytes())
            .buffer(1, w.bytes())
            .buffer(2, g.bytes())
            .output(3, gx.bytes())
            .output(4, gw.bytes())
            .value(5, kEpsilon)
            .value(6, r.columns)
            .value(7, uint32_t{1})
            .value(8, r.rows)
            .value(9, of_group)
            .groups(groups)
            .threads(r.threads));
    std::vector<double> of_weights(groups * r.columns);
    for (size_t row = 0; row < r.rows; ++row) {
      const size_t begin = row * r.columns, end = begin + r.columns;
      double squares = 0, of_gx = 0;
      for (size_t i = begin; i < end; ++i) squares += x[i] * x[i] / r.columns, of_gx += g[i] * w[i - begin] * x[i] / r.columns;
      const double by = 1 / std::sqrt(squares + kEpsilon);
      for (size_t i = begin; i < end; ++i) {
        const double gradient = by * (g[i] * w[i - begin] - x[i] * by * by * of_gx);
        ASSERT_NEAR(gx[i], gradient, 2 * t.unit * (std::fabs(gradient) + 0x1p-6) + 64 * 0x1p-23) << i;
        of_weights[row / of_group * r.columns + i - begin] += g[i] * x[i] * by;
      }
    }
    for (size_t i = 0; i < of_weights.size(); ++i)
      ASSERT_NEAR(gw[i], of_weights[i], 4 * t.unit * (std::fabs(of_weights[i]) + 1) + 64 * 0x1p-23) << i;
  }
}

TEST_P(Sourceless, RotaryPositions) {
  const Float& t = GetParam();
  constexpr uint32_t kHalf = 32, kHeads = 3;
  constexpr int kOffset = 17;
  constexpr float kLog2Base = 13.2877124f, kScale = 0.75f;
  for (const bool traditional : {false, true}) {
    Array x = Array::random(t, kHeads * 2 * kHalf, 1), y(t, kHeads * 2 * kHalf);
    run(kernel(std::string("rope_single_") + t.name)
            .constant(1, true)
            .constant(2, traditional)
            .constant(3, false)
            .dispatch()
            .buffer(0, x.bytes())
            .output(1, y.bytes())
            .value(2, kOffset)
            .value(3, kScale)
            .value(4, int64_t{2 * kHalf})
            .value(10, kLog2Base)
            .grid(kHalf, kHeads)
            .threads(kHalf, 1));
    for (size_t head = 0; head < kHeads; ++head) {
      for (size_t i = 0; i < kHalf; ++i) {
        const size_t first = head * 2 * kHalf + (traditional ? 2 * i : i), second = first + (traditional ? 1 : kHalf);
        const double angle = kScale * kOffset * std::exp2(-static_cast<double>(i) / kHalf * kLog2Base),
                     bound = (std::fabs(x[first]) + std::fabs(x[second])) * (t.unit + (angle + 1) * 16 * 0x1p-23);
        ASSERT_NEAR(y[first], x[first] * std::cos(angle) - x[second] * std::sin(angle), bound) << first;
        ASSERT_NEAR(y[second], x[first] * std::sin(angle) + x[second] * std::cos(angle), bound) << second;
      }
    }
  }
}

// The first of the least, or greatest.
TEST_P(Sourceless, IndexOfLeastAndGreatest) {
  const Float& t = GetParam();
  constexpr uint32_t kOuter = 5, kSize = 1003;
  Array x = Array::random(t, kOuter * kSize, 1);
  for (const bool greatest : {false, true}) {
    std::vector<uint32_t> y(kOuter);
    run(kernel(std::string(greatest ? "argmax_" : "argmin_") + t.name)
            .dispatch()
            .buffer(0, x.bytes())
            .output(1, y)
            .value(2, int{kOuter})
            .value(3, int64_t{kSize})
            .value(4, int64_t{1})
            .value(5, uint64_t{1})
            .value(6, int64_t{1})
            .value(7, uint64_t{kSize})
            .groups(1, kOuter)
            .threads(256));
    for (size_t row = 0; row < kOuter; ++row) {
      size_t want = 0;
      for (size_t i = 1; i < kSize; ++i) {
        const double a = x[row * kSize + i], b = x[row * kSize + want];
        if (greatest ? a > b : a < b) want = i;
      }
      EXPECT_EQ(y[row], want) << row;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Floats, Sourceless, ::testing::ValuesIn(kFloats), [](const auto& p) { return p.param.name; });

// Threefry-2x32 of 20 rounds: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 2> threefry(std::array<uint32_t, 2> key, std::array<uint32_t, 2> x) {
  constexpr int kRotations[] = {13, 15, 26, 6, 17, 29, 16, 24};
  const uint32_t schedule[] = {key[0], key[1], 0x1bd11bda ^ key[0] ^ key[1]};
  x[0] += schedule[0], x[1] += schedule[1];
  for (uint32_t round = 0; round < 20; ++round) {
    x[0] += x[1];
    x[1] = std::rotl(x[1], kRotations[round % 8]) ^ x[0];
    if (round % 4 != 3) continue;
    const uint32_t n = round / 4 + 1;
    x[0] += schedule[n % 3], x[1] += schedule[(n + 1) % 3] + n;
  }
  return x;
}

TEST_F(Sourceless, RandomBits) {
  EXPECT_EQ(threefry({0, 0}, {0, 0}), (std::array<uint32_t, 2>{0x6b200159, 0x99ba4efe}));  // the authors' known answer
  const std::vector<uint32_t> keys = {0, 0, 0xffffffff, 0x13198a2e, 7, 0x85a308d3};
  constexpr uint32_t kPairs = 37;
  for (const bool odd : {false, true}) {
    SCOPED_TRACE(odd);
    const uint32_t grid = kPairs + odd, words = 2 * kPairs + odd;
    std::vector<uint32_t> y(keys.size() / 2 * words);
    run(kernel("rbitsc")
            .dispatch()
            .buffer(0, keys)
            .output(1, y)
            .value(2, odd)
            .value(3, uint64_t{4 * words})
            .grid(static_cast<uint32_t>(keys.size() / 2), grid)
            .threads(1, 32));
    for (size_t k = 0; k < keys.size() / 2; ++k) {
      for (uint32_t i = 0; i < grid; ++i) {
        const bool alone = odd && i == kPairs;
        const auto want = threefry({keys[2 * k], keys[2 * k + 1]}, {i, alone ? 0 : i + grid});
        EXPECT_EQ(y[k * words + i], want[0]) << i;
        if (!alone) {
          EXPECT_EQ(y[k * words + i + grid], want[1]) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace metal_on_cpu
