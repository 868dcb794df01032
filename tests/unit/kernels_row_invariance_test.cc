// Row-invariant products for every M, at every instruction set that this processor has: the plan's own choice of kernels, and
// the promise of the table that kernels of one order give the same bits.
#include "campaigns.h"
#include "kernels_problem.h"
#include "test.h"

namespace metal_marlin::cpu {
namespace {

/// Every width of codes, kind of scales and of zeros, with group sizes in turn.
std::vector<WeightKind> kinds() {
  std::vector<WeightKind> kinds = {kMxfp4, kNvfp4, {MARLIN_FORMAT_FP8, ScaleType::e8m0, ZeroKind::none, 32}};
  const int groups[] = {128, 32, 64, 16};
  const auto add = [&](marlin_format format, ScaleType scale, ZeroKind zero, bool act_order = false) {
    for (int i = 0; i < (whole_campaigns() ? 4 : 1); ++i)
      kinds.push_back({format, scale, zero, groups[(kinds.size() + static_cast<size_t>(i)) % 4], false, act_order});
  };
  for (const ZeroKind zero : {ZeroKind::none, ZeroKind::integer, ZeroKind::additive})
    for (const marlin_format format : {MARLIN_FORMAT_INT2, MARLIN_FORMAT_INT3, MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT5,
                                       MARLIN_FORMAT_INT6, MARLIN_FORMAT_UINT8})
      add(format, zero == ZeroKind::integer ? ScaleType::bf16 : ScaleType::f16, zero, format == MARLIN_FORMAT_INT5);
  add(MARLIN_FORMAT_INT8, ScaleType::f16, ZeroKind::none);
  add(MARLIN_FORMAT_INT8, ScaleType::f32, ZeroKind::additive);
  add(MARLIN_FORMAT_FP4, ScaleType::f32, ZeroKind::none, true);
  add(MARLIN_FORMAT_FP8, ScaleType::f32, ZeroKind::none);
  add(MARLIN_FORMAT_NF4, ScaleType::f32, ZeroKind::none);
  add(MARLIN_FORMAT_NF4, ScaleType::nested, ZeroKind::none);
  add(MARLIN_FORMAT_CODEBOOK4, ScaleType::f16, ZeroKind::none);
  add(MARLIN_FORMAT_IQ4, ScaleType::f16, ZeroKind::none);
  add(MARLIN_FORMAT_IQ4, ScaleType::s6, ZeroKind::none);
  for (const marlin_format format : {MARLIN_FORMAT_FLOAT32, MARLIN_FORMAT_FLOAT16, MARLIN_FORMAT_BFLOAT16})
    add(format, ScaleType::e8m0, ZeroKind::none);
  add(MARLIN_FORMAT_INT2, ScaleType::u4, ZeroKind::additive);
  add(MARLIN_FORMAT_INT4, ScaleType::u6, ZeroKind::additive);
  add(MARLIN_FORMAT_INT3, ScaleType::s6, ZeroKind::none);
  add(MARLIN_FORMAT_INT6, ScaleType::s8, ZeroKind::none);
  for (size_t i = 0, dense = kinds.size(); i < dense; ++i)
    if (kinds[i].format <= MARLIN_FORMAT_NVFP4 && !is_two_level(kinds[i].scale) && !kinds[i].act_order)
      kinds.push_back(sparsely(kinds[i]));
  return kinds;
}

/// The levels of METAL_MARLIN_ISA that this processor has, each with another set of features.
std::vector<CpuFeatures> levels() {
  std::vector<CpuFeatures> levels;
  std::set<uint32_t> seen;
  for (const char* const isa :
       {"generic", "avx2", "avx512", "avx512-vnni", "avx512-vnni-bf16", "neon", "dotprod", "i8mm", ""}) {
    std::string warning;
    const CpuFeatures level = detect_cpu_features(*isa != '\0' ? isa : nullptr, &warning);
    if (warning.empty() && seen.insert(level.bits).second) levels.push_back(level);
  }
  return levels;
}

/// Rows of A and C of which the first m are multiplied at a time.
class Batch {
 public:
  Batch(const WeightKind& kind, int64_t most, int64_t n, int64_t k, marlin_compute compute, marlin_dtype a_type)
      : rng_(static_cast<uint32_t>(n * k)),
        weights_(random_weights(kind, n, k, rng_)),
        operands_(make_operands(weights_, most, a_type, MARLIN_F32, rng_)) {
    operands_.problem.compute = compute;
    operands_.problem.row_invariant = true;
  }
  std::string describe() const { return weights_.spec.describe(); }
  GemmProblem& problem() { return operands_.problem; }

  /// The bits of rows [first, first + count), multiplied together.
  std::vector<std::string> rows(int64_t first, int64_t count, const PlanRules& rules) {
    GemmProblem problem = operands_.problem;
    const size_t a_row = static_cast<size_t>(problem.a.stride) * float_bytes(problem.a.dtype),
                 c_row = static_cast<size_t>(problem.c.stride) * float_bytes(problem.c.dtype),
                 bytes = static_cast<size_t>(problem.c.cols) * float_bytes(problem.c.dtype);
    problem.a.data = operands_.a.data() + static_cast<size_t>(first) * a_row;
    problem.c.data = operands_.c.data() + static_cast<size_t>(first) * c_row;
    problem.a.rows = problem.c.rows = count;
    std::fill_n(operands_.c.data(), operands_.c.size(), std::byte{0x5a});
    const auto plan = must(plan_gemm(problem, count, rules));
    const PlannedGemm products[] = {{problem, Plan(plan)}};
    const guarded::Memory scratch(scratch_bytes(products), guarded::Edge::end);
    SerialRunner runner(1 + static_cast<uint32_t>(count % 3));
    run_gemm(products, {scratch.data(), scratch.size()}, runner);
    std::vector<std::string> bits;
    for (int64_t r = 0; r < count; ++r)
      bits.emplace_back(static_cast<const char*>(problem.c.data) + static_cast<size_t>(r) * c_row, bytes);
    kernels.insert(plan.row->name);
    return bits;
  }

  std::set<std::string_view> kernels;  ///< that ran

 private:
  std::mt19937 rng_;
  const TestWeights weights_;
  Operands operands_;
};

constexpr int64_t kMost = 257;
bool is_wanted(int64_t m) { return m <= 40 || m % 64 <= 1 || m % 64 == 63 || m == 97 || whole_campaigns(); }

/// The first M, of those wanted up to `most`, whose rows are not those of M = 1; 0: there is none. In a short campaign the rows
/// behind the first ones are those of the largest M instead, whose first ones are those of M = 1.
int64_t first_that_differs(Batch& batch, int64_t most, const PlanRules& one, const PlanRules& many, int* products) {
  std::vector<std::string> alone = batch.rows(0, most, many);
  for (int64_t r = 0; r < (whole_campaigns() ? most : std::min<int64_t>(most, 14)); ++r)
    alone[static_cast<size_t>(r)] = batch.rows(r, 1, one).front();
  for (int64_t m = 1; m <= most; ++m) {
    if (!is_wanted(m)) continue;
    ++*products;
    const std::vector<std::string> rows = batch.rows(0, m, many);
    if (!std::equal(rows.begin(), rows.end(), alone.begin())) return m;
  }
  return 0;
}

struct Form {
  marlin_compute compute;
  marlin_dtype a_type;
};
/// The forms of activations and computes. A short campaign takes a fourth of all that there is.
constexpr Form kForms[] = {
    {MARLIN_COMPUTE_DEFAULT, MARLIN_BF16}, {MARLIN_COMPUTE_DEFAULT, MARLIN_F32}, {MARLIN_COMPUTE_INT8, MARLIN_F16}};

/// Four is no multiple of the three forms: neighboring kinds have different ones.
bool is_in_turn(size_t turn) { return whole_campaigns() || turn % 4 == 0; }

TEST(RowInvariantKernels, GiveTheBitsOfOneRowForEveryM) {
  size_t turn = 0;
  for (const CpuFeatures& level : levels()) {
    int products = 0;
    std::set<std::string_view> kernels;
    for (const WeightKind& kind : kinds())
      for (const Form& form : kForms) {
        if (!is_in_turn(turn++)) continue;
        Batch batch(kind, kMost, 70, 150, form.compute, form.a_type);
        ASSERT_EQ(first_that_differs(batch, kMost, {level}, {level}, &products), 0)
            << level.name << ", " << batch.describe() << ", compute " << form.compute << ", A " << form.a_type;
        kernels.merge(batch.kernels);
      }
    std::printf("%s: %d products of %zu kernels, M up to %d, all rows with the bits of M = 1\n", level.name.c_str(), products,
                kernels.size(), static_cast<int>(kMost));
  }
}

/// Few columns and a long K: K is cut for every M as it is for one row.
TEST(RowInvariantKernels, KeepTheirPartsOfK) {
  constexpr int64_t kFew = 50;
  size_t turn = 0;
  for (const CpuFeatures& level : levels()) {
    int products = 0;
    for (const WeightKind& kind : kinds())
      for (const Form& form : kForms) {
        if (!is_in_turn(turn++)) continue;
        Batch batch(kind, kFew, 20, 1700, form.compute, form.a_type);
        for (const int64_t m : {1, 50}) {
          const auto plan = must(plan_gemm(batch.problem(), m, {level}));
          ASSERT_EQ(plan.k_parts, 2);
        }
        ASSERT_EQ(first_that_differs(batch, kFew, {level}, {level}, &products), 0)
            << level.name << ", " << batch.describe() << ", compute " << form.compute << ", A " << form.a_type;
      }
    std::printf("%s: %d products in two parts of K\n", level.name.c_str(), products);
  }
}

/// The map of orders: kernels that the table says to be of one order agree, whatever they multiply.
TEST(RowInvariantKernels, OfOneOrderAgree) {
  const CpuFeatures level = this_machine();
  int pairs = 0;
  std::map<std::pair<std::string_view, std::string_view>, int> others;  // kernels of other orders that differ
  for (const WeightKind& kind : kinds())
    for (const Form& form : kForms) {
      Batch batch(kind, 30, 70, 700, form.compute, form.a_type);
      std::vector<std::pair<const KernelRow*, std::vector<std::string>>> results;
      for (const KernelRow& row : kernel_rows()) {
        const PlanRules forced{level, row.name};
        if (!plan_gemm(batch.problem(), 30, forced).ok()) continue;
        results.emplace_back(&row, batch.rows(0, 30, forced));
        for (const auto& [before, bits] : results) {
          const bool same = bits == results.back().second;
          const bool one_order = before->order == row.order && row.order != AddOrder::own && before->features != 0;
          if (one_order && row.features != 0) {
            ++pairs;
            ASSERT_TRUE(same) << before->name << " and " << row.name << ", " << batch.describe();
          } else if (!same) {
            ++others[{before->name, row.name}];
          }
        }
      }
    }
  std::printf("%d pairs of kernels of one order agree; pairs that differ:\n", pairs);
  for (const auto& [names, kinds] : others)
    std::printf("  %.*s, %.*s: %d kinds\n", static_cast<int>(names.first.size()), names.first.data(),
                static_cast<int>(names.second.size()), names.second.data(), kinds);
}

/// The comparison sees another kernel for M = 1, and parts of K for one M only.
TEST(RowInvariantKernels, AnotherOrderForOneRowIsSeen) {
  const CpuFeatures level = this_machine();
  int products = 0;
  Batch planted(kInt4, 40, 70, 700, MARLIN_COMPUTE_DEFAULT, MARLIN_F32);
  const auto own = must(plan_gemm(planted.problem(), 1, {level}));
  if (own.row->order != AddOrder::portable) {
    const PlanRules another{level, "cpu_generic_gemv_any_f32"};
    EXPECT_EQ(first_that_differs(planted, 40, another, {level}, &products), 1);
  }
  Batch cut(kInt4, 40, 70, 1700, MARLIN_COMPUTE_DEFAULT, MARLIN_F32);
  cut.problem().row_invariant = false;
  EXPECT_NE(first_that_differs(cut, 40, {level}, {level}, &products), 0);
}

/// Where the usual kernel for many rows adds in the order of that for one, it serves: row-invariance costs nothing there.
TEST(RowInvariantKernels, OfManyRowsAreTheUsualOnesIfTheirOrderIsThatOfOne) {
  const CpuFeatures level = this_machine();
  int compared = 0;
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
    for (const int64_t m : {2, 16, 64, 300}) {
      Batch batch(kInt4, 300, 70, 700, compute, MARLIN_F32);
      const auto one = plan_gemm(batch.problem(), 1, {level}), invariant = plan_gemm(batch.problem(), m, {level});
      batch.problem().row_invariant = false;
      const auto usual = plan_gemm(batch.problem(), m, {level});
      ASSERT_TRUE(one.ok() && invariant.ok() && usual.ok());
      const KernelRow& row = *usual.value().row;
      if (row.order == AddOrder::own || row.order != one.value().row->order || &row == one.value().row) continue;
      EXPECT_EQ(invariant.value().row, &row) << invariant.value().row->name << " instead of " << row.name << " for M = " << m;
      ++compared;
    }
  if (compared == 0) GTEST_SKIP() << "this processor has one kernel of that order";
}

}  // namespace
}  // namespace metal_marlin::cpu
