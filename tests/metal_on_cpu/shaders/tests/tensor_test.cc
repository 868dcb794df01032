// Operations on tensors: right results for whole numbers, whose sums no order changes, and what a seed does change.
#include "trial.h"

namespace metal_on_cpu {
namespace {

struct Case {
  const char* kernel;
  enum Type : uint8_t { kHalf, kBfloat, kFloat } type;
  uint32_t threads;
  int m = 32, n = 64, k = 48;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.kernel; }

std::vector<int> whole_numbers(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int> v(static_cast<size_t>(count));
  for (int& x : v) x = static_cast<int>(random() % 17) - 8;
  return v;
}
Bytes encoded(Case::Type type, const std::vector<int>& values) {
  std::vector<float> floats(values.begin(), values.end());
  if (type == Case::kFloat) return bytes_of(floats);
  std::vector<uint16_t> bits;
  for (const float f : floats)
    bits.push_back(type == Case::kHalf ? std::bit_cast<uint16_t>(static_cast<_Float16>(f))
                                       : static_cast<uint16_t>(std::bit_cast<uint32_t>(f) >> 16));
  return bytes_of(bits);
}

Trial trial_of(const Case& c, const Bytes& a, const Bytes& b) {
  const auto tiles = [](int size, int tile) { return static_cast<uint32_t>((size + tile - 1) / tile); };
  return {kernel_of("tensor.metal", c.kernel),
          {tiles(c.n, 32), tiles(c.m, 16), 1},
          {c.threads, 1, 1},
          {a, b, Bytes(static_cast<size_t>(4 * c.m * c.n)), bytes_of(std::vector<int>{c.m, c.n, c.k})}};
}

class Products : public ::testing::TestWithParam<Case> {};

TEST_P(Products, AreExactInEveryOrder) {
  const Case& c = GetParam();
  const std::vector<int> a = whole_numbers(c.m * c.k, 1), b = whole_numbers(c.k * c.n, 2);
  std::vector<float> want;
  for (int m = 0; m < c.m; ++m)
    for (int n = 0; n < c.n; ++n) {
      int sum = 0;
      for (int k = 0; k < c.k; ++k) sum += a[m * c.k + k] * b[n * c.k + k];
      want.push_back(static_cast<float>(sum));
    }
  EXPECT_EQ(values_of<float>(trial_of(c, encoded(c.type, a), encoded(c.type, b)).everywhere()[2]), want);
}

constexpr Case kCases[] = {{"half_1", Case::kHalf, 32},
                           {"bfloat_2", Case::kBfloat, 64},
                           {"float_3", Case::kFloat, 96},
                           {"staged", Case::kHalf, 64, 13, 27, 70}};
INSTANTIATE_TEST_SUITE_P(Tensor, Products, ::testing::ValuesIn(kCases), [](const auto& p) { return p.param.kernel; });

TEST(Tensor, SumsDependOnTheSeedWithinTheirBound) {
  const Case c{"float_3", Case::kFloat, 96};
  std::mt19937 random(3);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> a(static_cast<size_t>(c.m * c.k)), b(static_cast<size_t>(c.k * c.n));
  for (float& x : a) x = distribution(random);
  for (float& x : b) x = distribution(random);
  const Trial trial = trial_of(c, bytes_of(a), bytes_of(b));
  std::set<std::vector<float>> seen;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    std::vector<Bytes> memory = trial.buffers;
    Report report;
    trial.run(memory, true, seed, report);
    EXPECT_EQ(report.text(), "");
    EXPECT_EQ(report.counters.tensor_multiply_adds, 2u * 2 * 16 * 32 * 48);
    EXPECT_EQ(report.counters.threadgroup_barriers, 0u);
    const auto got = values_of<float>(memory[2]);
    for (int m = 0; m < c.m; ++m)
      for (int n = 0; n < c.n; ++n) {
        double sum = 0, size = 0;
        for (int k = 0; k < c.k; ++k) {
          const double product = double{a[static_cast<size_t>(m * c.k + k)]} * b[static_cast<size_t>(n * c.k + k)];
          sum += product, size += std::fabs(product);
        }
        EXPECT_NEAR(got[static_cast<size_t>(m * c.n + n)], sum, c.k * 0x1p-24 * size);
      }
    seen.insert(got);
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Tensor, ArrangementsDifferAndAreWhole) {
  const Trial trial{kernel_of("tensor.metal", "arrangement"), {1, 1, 1}, {64, 1, 1}, {Bytes(16 * 32 * 4), Bytes(64 * 4)}};
  std::set<std::vector<int>> seen;
  std::set<int> capacities;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    std::vector<Bytes> memory = trial.buffers;
    Report report;
    trial.run(memory, true, seed, report);
    EXPECT_EQ(report.text(), "");
    const auto holders = values_of<int>(memory[0]);
    EXPECT_EQ(std::set<int>(holders.begin(), holders.end()).size(), 512u);
    EXPECT_EQ(std::count(holders.begin(), holders.end(), 0), 0);
    seen.insert(holders);
    capacities.insert(values_of<int>(memory[1])[0]);
  }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_THAT(capacities, ::testing::ElementsAre(8, 9, 10));
}

/// Row and column of slot i of a lane in tensors of so many columns: four neighbors of two rows, and then the next 16 x 16.
int published(uint32_t lane, int i, int columns) {
  const int row = static_cast<int>((lane / 4 & 4) | (lane / 2 & 3)) + i % 8 / 4 * 8;
  const int column = 4 * static_cast<int>((lane / 4 & 2) | (lane & 1)) + i % 4, next = i / 8 * 16;
  return columns == 16 ? (row + next) * 16 + column : row * columns + column + next;
}

TEST(Tensor, OperandsInRegistersAreMultipliedWhereverTheyAre) {
  const std::vector<int> a = whole_numbers(16 * 16, 1), b = whole_numbers(32 * 16, 2);
  std::vector<float> want;
  for (size_t m = 0; m < 16; ++m)
    for (size_t n = 0; n < 32; ++n) {
      int sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += a[m * 16 + k] * b[n * 16 + k];
      want.push_back(static_cast<float>(sum));
    }
  const Kernel kernel = kernel_of("tensor.metal", "fragments");
  for (const bool publishes : {true, false})
    for (const uint64_t seed : {0, 1, 2}) {
      Bytes left = encoded(Case::kHalf, a), right = encoded(Case::kHalf, b);
      std::vector<float> c(16 * 32);
      std::vector<int> places(1280, -1);
      Dispatch d = kernel.dispatch();
      d.buffer(0, left).buffer(1, right).buffer(2, c).buffer(3, places).groups(1).threads(32);
      const Report report = must(d.count().seed(seed).publish_fragments(publishes).run());
      EXPECT_EQ(report.text(), "");
      EXPECT_EQ(report.counters.tensor_multiply_adds, 16u * 32 * 16);
      EXPECT_EQ(c, want) << publishes << seed;
      size_t as_published = 0;
      for (uint32_t lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 40; ++i) {
          const int slot = i < 8 ? i : (i - 8) % 16, columns = i < 24 ? 16 : 32;
          const size_t at = i < 8 ? 8 * lane : i < 24 ? 256 + 16 * lane : 768 + 16 * lane;
          as_published += places[at + static_cast<size_t>(slot)] == published(lane, slot, columns);
        }
      EXPECT_EQ(as_published == 1280, publishes) << as_published;
    }
}

TEST(Tensor, NeedsMetal4) {
  auto library = Library::from_source(
      "#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\nkernel void k() {}\n", {}, "t.metal");
  EXPECT_THAT(library.message(), ::testing::HasSubstr("the language of Metal 4"));
}

}  // namespace
}  // namespace metal_on_cpu
