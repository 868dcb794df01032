// Products through the C ABI on the real Metal shaders, over covering arrays of everything a caller can choose and of the
// kernel that does the work; each element against its own float64 bound.
#include "backends/gpu/kernels.h"
#include "campaigns.h"
#include "gpu.h"
#include "kernels/formats_under_test.h"
#include "kernels/product_factors.h"
#include "kernels/special_values.h"
#include "test.h"

namespace {

using namespace device_test;
using covering::Row;
using metal_on_cpu::Contraction;
using mm::gpu::ProductKernel;

constexpr uint32_t kArraySeed = 20240601;

/// Levels that a kernel takes.
bool allowed(const Row& row) {
  const int kernel = row[trial::kFactors];
  return trial::allowed(row) &&
         (kernel < 0 || trial::takes(mm::gpu::simdgroup_policy().kernels[static_cast<size_t>(kernel)], row));
}

/// The factors of a product, and which row of kernels computes it.
const std::vector<Row>& three_way() {
  static const std::vector<Row> rows = [] {
    std::vector<int> levels = trial::factor_levels();
    levels.push_back(static_cast<int>(mm::gpu::simdgroup_policy().kernels.size()));
    return covering::three_way(levels, allowed, kArraySeed);
  }();
  return rows;
}

/// Rows in which each choice meets each of the others. The short form has the first ones, in which the most choices meet.
std::vector<Row> pairs() {
  constexpr size_t kShort = 20;
  std::vector<int> levels = trial::factor_levels();
  levels.push_back(static_cast<int>(mm::gpu::simdgroup_policy().kernels.size()));
  std::vector<Row> rows = covering::two_way(levels, allowed, kArraySeed);
  if (!whole_campaigns()) rows.resize(kShort);
  return rows;
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
  const ProductKernel& kernel = mm::gpu::simdgroup_policy().kernels[static_cast<size_t>(row[trial::kFactors])];
  const std::string name = trial::kernel_name(kernel, c);
  constexpr int64_t kBlocks[] = {mm::gpu::kMostRows, 1, 24};  // of rows: one, of a tile each, or a few
  const Gpu gpu(device, {.probe = false, .most_rows = kBlocks[seed % std::size(kBlocks)]}, {.kernel = name});
  for (const uint64_t order : orders) {
    device->set_seed(order);
    EXPECT_TRUE(trial::holds(c, &tally.nearest)) << "by " << name << ", order " << order;
    ++tally.products;
  }
  if (!special) return;
  trial::Trial t(c);
  trial::put_special_scales(t);
  trial::put_special_activations(t);
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check()) << "special values, " << c.describe() << " by " << name;
  ++tally.products;
}

/// What a GPU and its compiler are free to do.
struct Freedom {
  const char* name;
  bool flush_to_zero;
  Contraction contraction;
  int orders;
  uint32_t step;  ///< of the pairs: all, one of so many, or with 0 none. A long campaign runs all.
};
void PrintTo(const Freedom& freedom, std::ostream* out) { *out << freedom.name; }
constexpr Freedom kFreedoms[] = {{"fused_floats", false, Contraction::kFloat, 2, 1},
                                 {"flushed_unfused", true, Contraction::kOff, 1, 0},
                                 {"flushed_all_fused", true, Contraction::kAll, 1, 8}};

/// All of pairs(), every access checked.
class Pairs : public testing::TestWithParam<Freedom> {};

TEST_P(Pairs, StayWithinTheirBounds) {
  const Freedom& freedom = GetParam();
  const uint32_t step = whole_campaigns() ? 1 : freedom.step;
  if (step == 0) GTEST_SKIP() << "METAL_MARLIN_WHOLE is not set";
  const std::vector<Row> rows = pairs();
  const auto device = std::make_shared<TestbedDevice>(
      TestbedOptions{.flush_to_zero = freedom.flush_to_zero, .contraction = freedom.contraction, .changes = {}});
  Tally tally;
  for (uint32_t i = 1; i <= rows.size(); i += step) {
    std::vector<uint64_t> orders = {2 * i, 2 * i + 1};
    orders.resize(static_cast<size_t>(freedom.orders));
    run_row(device, rows[i - 1], i, orders, true, tally);
  }
  tally.print(freedom.name, rows.size());
}

INSTANTIATE_TEST_SUITE_P(Freedoms, Pairs, testing::ValuesIn(kFreedoms),
                         [](const auto& i) { return std::string(i.param.name); });

/// Products of few rows and many in one call, in blocks of 16 rows. They have the same A, but for its number of rows, or each
/// their own.
class Together : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Together, ProductsOfAnyRowsAreRight) {
  const bool int8 = std::get<0>(GetParam()), shared = std::get<1>(GetParam());
  const Gpu gpu(std::make_shared<TestbedDevice>(TestbedOptions{.seed = 9, .changes = {}}), {.probe = false, .most_rows = 16},
                {.kernel = int8 ? "gemv_u4_i8_m4" : "gemv_u4_bf16_m4"});
  std::vector<std::unique_ptr<trial::Trial>> trials;
  for (const int64_t m : {3, 40, 21, 40}) {
    const int64_t i = static_cast<int64_t>(trials.size());
    trial::Case c = trial::case_of(trial::kKinds[0], int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT, m, 34 + 2 * i, 200);
    c.order = i == 2 ? trial::Order::plain : trial::Order::shuffled;
    c.group = 32;
    c.seed = static_cast<uint32_t>(i == 2 ? 2 : 1);  // of the order: who shares A in another order gathers it anew
    if (i == 1) c.epilogue = MARLIN_EPILOGUE_SWIGLU;
    trials.push_back(std::make_unique<trial::Trial>(c));
  }
  std::vector<marlin_gemm_desc> descs;
  const trial::Matrix& a = trials[1]->a;  // which has the most rows
  for (const auto& t : trials) {
    for (int64_t r = 0; shared && r < t->spec.m; ++r)
      for (int64_t k = 0; k < t->spec.k; ++k) t->a.set(r, k, a.get(r, k));
    ASSERT_TRUE(t->pack());
    descs.push_back(t->gemm_desc());
    if (!shared) continue;
    descs.back().a = a.view();
    descs.back().a.rows = t->spec.m;
  }
  const marlin_gemm_desc* const many[] = {&descs[0], &descs[1], &descs[2], &descs[3]};
  EXPECT_OK(marlin_gemm_many, nullptr, many, 4u);
  for (const auto& t : trials) EXPECT_TRUE(t->check()) << t->spec.describe();
}

INSTANTIATE_TEST_SUITE_P(Forms, Together, testing::Combine(testing::Bool(), testing::Bool()), [](const auto& i) {
  return std::string(std::get<0>(i.param) ? "int8" : "as_given") + (std::get<1>(i.param) ? "_shared" : "_apart");
});

/// Every three choices, unchecked. A part of the array, of which a long campaign runs the whole.
TEST(Triples, StayWithinTheirBounds) {
  constexpr uint32_t kParts = 96, kPart = 3;
  const bool all = whole_campaigns();
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}});
  Tally tally;
  for (uint32_t i = 1; i <= three_way().size(); ++i)
    if (all || i % kParts == kPart) run_row(device, three_way()[i - 1], i, {0}, false, tally);
  tally.print("triples", three_way().size());
}

}  // namespace
