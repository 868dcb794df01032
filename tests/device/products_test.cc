// Products through the C ABI on the real Metal shaders, over covering arrays of everything a caller can choose and of the
// kernel that does the work; each element against its own float64 bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backends/gpu/kernels.h"
#include "gpu.h"
#include "kernels/product_factors.h"
#include "kernels/special_values.h"

namespace {

using namespace device_test;
using covering::Row;
using metal_on_cpu::Contraction;
using mm::gpu::CodeKind;
using mm::gpu::ProductKernel;

constexpr uint32_t kArraySeed = 20240601;

/// Levels of the factors that fix the type of A as a kernel gets it.
bool allowed(const Row& row) {
  const int kernel = row[trial::kFactors];
  const bool takes_all = kernel < 0 || !mm::gpu::product_kernels()[static_cast<size_t>(kernel)].tensor;
  return trial::allowed(row) && (takes_all || (row[trial::kCompute] <= 0 && row[trial::kA] != 0));
}

/// The factors of a product, and which row of kernels computes it.
const std::vector<Row>& three_way() {
  static const std::vector<Row> rows = [] {
    std::vector<int> levels = trial::factor_levels();
    levels.push_back(static_cast<int>(mm::gpu::product_kernels().size()));
    return covering::three_way(levels, allowed, kArraySeed);
  }();
  return rows;
}

std::string kernel_name(const ProductKernel& kernel, const trial::Case& c) {
  const bool fp4 = c.format == MARLIN_FP4 || c.format == MARLIN_MXFP4 || c.format == MARLIN_NVFP4;
  const CodeKind codes = c.format == MARLIN_INT8 ? CodeKind::i8
                         : fp4                   ? (c.sparse ? CodeKind::fp4_sparse : CodeKind::fp4)
                                                 : (c.sparse ? CodeKind::u4_sparse : CodeKind::u4);
  const auto activation = c.compute == MARLIN_COMPUTE_INT8 ? mm::gpu::ActivationKind::i8
                          : c.a_type == MARLIN_F32         ? mm::gpu::ActivationKind::f32
                          : c.a_type == MARLIN_F16         ? mm::gpu::ActivationKind::f16
                                                           : mm::gpu::ActivationKind::bf16;
  return std::string(kernel.name(codes, activation));
}

/// How much was run, and how near it came to its bounds.
struct Tally {
  int products = 0;
  double nearest = 0;
  void print(const char* name, size_t of) const {
    std::printf("%s: %d products of an array of %zu rows, nearest %.3f of its bound\n", name, products, of, nearest);
  }
};

/// The case of a row on a context of its own, which has no other kernel; `seeds` of the orders of commands, groups and lanes.
/// Then once more with NaN, infinity, -0 and subnormals in A and the scales, if asked.
void run_row(const std::shared_ptr<TestbedDevice>& device, const Row& row, uint32_t seed, std::vector<uint64_t> orders,
             bool special, Tally& tally) {
  const trial::Case c = trial::case_of(row, seed);
  const ProductKernel& kernel = mm::gpu::product_kernels()[static_cast<size_t>(row[trial::kFactors])];
  const std::string name = kernel_name(kernel, c);
  const Gpu gpu(device, {.probe = false}, {.kernel = name});
  for (const uint64_t order : orders) {
    device->set_seed(order);
    EXPECT_TRUE(trial::holds(c, &tally.nearest)) << "by " << kernel_name(kernel, c) << ", order " << order;
    ++tally.products;
  }
  if (!special) return;
  trial::Trial t(c);
  trial::poison_scales(t);
  trial::poison_activations(t);
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check()) << "special values, " << c.describe() << " by " << kernel_name(kernel, c);
  ++tally.products;
}

/// Whether what takes long is wanted, too.
bool all_wanted() {
  const char* const wanted = std::getenv("METAL_MARLIN_THREE_WAY");
  return wanted != nullptr && std::string(wanted) == "all";
}

/// What a GPU and its compiler are free to do.
struct Freedom {
  const char* name;
  bool flush_to_zero;
  Contraction contraction;
  int orders;
  bool always;  ///< else only with METAL_MARLIN_THREE_WAY=all
};
void PrintTo(const Freedom& freedom, std::ostream* out) { *out << freedom.name; }
constexpr Freedom kFreedoms[] = {{"fused_floats", false, Contraction::kFloat, 2, true},
                                 {"flushed_unfused", true, Contraction::kOff, 1, false},
                                 {"flushed_all_fused", true, Contraction::kAll, 1, true}};

/// Every pair of choices, every access checked. METAL_MARLIN_PAIRS limits how many.
class Pairs : public testing::TestWithParam<Freedom> {};

TEST_P(Pairs, StayWithinTheirBounds) {
  const Freedom& freedom = GetParam();
  if (!freedom.always && !all_wanted()) GTEST_SKIP() << "METAL_MARLIN_THREE_WAY is not all";
  const char* const most = std::getenv("METAL_MARLIN_PAIRS");
  std::vector<Row> rows = trial::pairwise(three_way());
  if (most != nullptr) rows.resize(std::min(rows.size(), static_cast<size_t>(std::atoi(most))));
  const auto device = std::make_shared<TestbedDevice>(
      TestbedOptions{.flush_to_zero = freedom.flush_to_zero, .contraction = freedom.contraction, .changes = {}});
  Tally tally;
  for (uint32_t i = 1; i <= rows.size(); ++i) {
    std::vector<uint64_t> orders = {2 * i, 2 * i + 1};
    orders.resize(static_cast<size_t>(freedom.orders));
    run_row(device, rows[i - 1], i, orders, true, tally);
  }
  tally.print(freedom.name, rows.size());
}

INSTANTIATE_TEST_SUITE_P(Freedoms, Pairs, testing::ValuesIn(kFreedoms),
                         [](const auto& i) { return std::string(i.param.name); });

/// Every three choices, unchecked. A part of the array, of which METAL_MARLIN_THREE_WAY=all runs the whole.
TEST(Triples, StayWithinTheirBounds) {
  constexpr uint32_t kParts = 8, kPart = 3;
  const bool all = all_wanted();
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}});
  Tally tally;
  for (uint32_t i = 1; i <= three_way().size(); ++i)
    if (all || i % kParts == kPart) run_row(device, three_way()[i - 1], i, {0}, false, tally);
  tally.print("triples", three_way().size());
}

}  // namespace
