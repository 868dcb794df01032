// Every kernel against a plain scalar computation, for small, ragged, strided shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "kernels_problem.h"

namespace metal_marlin::cpu {
namespace {

/// Runs tasks one after the other, backwards, claiming any width.
class SerialRunner : public TaskRunner {
 public:
  explicit SerialRunner(uint32_t width) : width_(width) {}
  void run(uint32_t tasks, TaskRef task) override {
    for (uint32_t i = tasks; i-- > 0;) task(i);
  }
  uint32_t width() const override { return width_; }

 private:
  uint32_t width_;
};

CpuFeatures this_machine() {
  CpuFeatures f;
  f.name = "test";
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) f.bits |= kAvx2;
  if (__builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vl")) f.bits |= kAvx512;
  if (__builtin_cpu_supports("avx512vnni")) f.bits |= kAvx512Vnni;
  if (__builtin_cpu_supports("avx512bf16")) f.bits |= kAvx512Bf16;
#endif
  return f;
}

/// Operands in memory that is exactly as large as it must be, with strides and gaps filled with NaN.
struct Operands {
  std::vector<std::vector<float>> rows;  ///< A as exact floats
  std::vector<std::byte> a, c, bias;
  std::vector<float> bias_values;
  GemmProblem problem;
};

size_t size_of(marlin_dtype t) { return t == MARLIN_F32 ? 4 : 2; }

Operands make_operands(const CpuWeights& w, int64_t m, marlin_dtype a_type, marlin_dtype c_type, std::mt19937& rng) {
  Operands o;
  const int64_t k = w.layout.k, n = w.layout.n, a_stride = k + rng() % 5, c_stride = n + rng() % 5;
  o.a.resize(static_cast<size_t>(m * a_stride) * size_of(a_type));
  const float nan = std::nanf("");
  for (int64_t i = 0; i < m * a_stride; ++i)
    encode_floats(a_type, &nan, 1, o.a.data() + static_cast<size_t>(i) * size_of(a_type));
  o.rows.resize(static_cast<size_t>(m), std::vector<float>(static_cast<size_t>(k)));
  std::normal_distribution<float> normal;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t i = 0; i < k; ++i) {
      float& x = o.rows[static_cast<size_t>(r)][static_cast<size_t>(i)];
      x = normal(rng);
      std::byte* p = o.a.data() + static_cast<size_t>(r * a_stride + i) * size_of(a_type);
      encode_floats(a_type, &x, 1, p);
      decode_floats(a_type, p, 1, &x);
    }
  o.c.resize(static_cast<size_t>(m * c_stride) * size_of(c_type), std::byte{0x5a});
  o.problem.weights = &w;
  o.problem.a = {o.a.data(), m, k, a_stride, a_type};
  o.problem.c = {o.c.data(), m, n, c_stride, c_type};
  return o;
}

void run(const GemmProblem& problem, const CpuFeatures& features, std::string_view kernel, uint32_t width) {
  auto plan = plan_gemm(problem, problem.a.rows, features, kernel);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const GemmPlan plans[] = {plan.value()};
  const GemmProblem problems[] = {problem};
  Block scratch = Block::allocate(Allocator::system(), scratch_bytes(plans, problems)).take();
  SerialRunner runner(width);
  run_gemm(plans, problems, {scratch.data(), scratch.size()}, runner);
}

float element(const MatrixView& view, int64_t row, int64_t column) {
  float x = 0;
  decode_floats(
      view.dtype,
      static_cast<const std::byte*>(view.data) + static_cast<size_t>(row * view.stride + column) * size_of(view.dtype), 1, &x);
  return x;
}

/// Half a unit in the last place of the output type, relative.
double rounding(marlin_dtype t) { return std::ldexp(1.0, t == MARLIN_F32 ? -24 : t == MARLIN_F16 ? -11 : -8); }

void check_sums(const Operands& o, const CpuWeights& w, int extra_roundings) {
  for (int64_t r = 0; r < o.problem.a.rows; ++r) {
    const std::vector<double> x = activations_in_slots(w, o.rows[static_cast<size_t>(r)], o.problem.compute);
    for (int64_t c = 0; c < w.layout.n; ++c) {
      const Expected e = expected_sum(w, x, c, extra_roundings);
      const double got = static_cast<double>(element(o.problem.c, r, c));
      const double bound = e.bound + rounding(o.problem.c.dtype) * (std::fabs(e.value) + e.bound) +
                           (o.problem.c.dtype == MARLIN_F16 ? std::ldexp(1.0, -25) : 0.0);
      ASSERT_LE(std::fabs(got - e.value), bound) << "row " << r << " column " << c << " expected " << e.value << " got " << got;
    }
  }
}

std::vector<WeightKind> all_kinds() {
  std::vector<WeightKind> kinds;
  for (int group : {16, 32, 64, 128}) {
    kinds.push_back({MARLIN_INT4, ScaleType::f16, ZeroKind::none, group});
    kinds.push_back({MARLIN_INT4, ScaleType::bf16, ZeroKind::integer, group});
    kinds.push_back({MARLIN_INT4, ScaleType::f16, ZeroKind::integer, group, false, true});
    kinds.push_back({MARLIN_INT4, ScaleType::f16, ZeroKind::additive, group});
    kinds.push_back({MARLIN_INT4, ScaleType::f32, ZeroKind::additive, group});
    kinds.push_back({MARLIN_FP4, ScaleType::f16, ZeroKind::none, group});
    kinds.push_back({MARLIN_FP4, ScaleType::f32, ZeroKind::none, group});
    kinds.push_back({MARLIN_INT8, ScaleType::f16, ZeroKind::none, group});
    kinds.push_back({MARLIN_INT8, ScaleType::bf16, ZeroKind::additive, group});
  }
  kinds.push_back({MARLIN_MXFP4, ScaleType::e8m0, ZeroKind::none, 32});
  kinds.push_back({MARLIN_NVFP4, ScaleType::e4m3, ZeroKind::none, 16, true});
  return kinds;
}

class EveryKernel : public testing::TestWithParam<const KernelRow*> {};

TEST_P(EveryKernel, AgreesWithScalarSums) {
  const KernelRow& row = *GetParam();
  const CpuFeatures features = this_machine();
  if ((row.features & ~features.bits) != 0) GTEST_SKIP() << "this processor lacks its instructions";
  const uint32_t seed = std::random_device{}();
  std::mt19937 rng(seed);
  int served = 0;
  for (const WeightKind& kind : all_kinds())
    for (const uint64_t rows : {uint64_t{1}, 2 + rng() % 3, 5 + rng() % 12, 17 + rng() % 20}) {
      const int64_t m = static_cast<int64_t>(rows), n = 1 + rng() % 150, k = rng() % 3 == 0 ? 1 + rng() % 40 : 1 + rng() % 500;
      const CpuWeights w = random_weights(kind, n, k, rng);
      const marlin_dtype dtypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
      Operands o = make_operands(w, m, row.bf16_only ? MARLIN_BF16 : dtypes[rng() % 3], dtypes[rng() % 3], rng);
      o.problem.compute = row.form == ActivationForm::int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
      if (!plan_gemm(o.problem, m, features, row.name).ok()) continue;
      ++served;
      SCOPED_TRACE(testing::Message() << row.name << " seed " << seed << " " << to_string(kind) << " m " << m << " n " << n
                                      << " k " << k << " a " << o.problem.a.dtype << " c " << o.problem.c.dtype);
      run(o.problem, features, row.name, 1 + rng() % 3);
      if (HasFatalFailure()) return;
      check_sums(o, w, row.features == 0 ? 0 : 2);
      if (HasFatalFailure()) return;
    }
  EXPECT_GT(served, 0) << "no weights that this kernel serves";
}

std::vector<const KernelRow*> all_rows() {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : kernel_rows()) rows.push_back(&row);
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryKernel, testing::ValuesIn(all_rows()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST(KernelNames, FollowTheGrammarAndAreUnique) {
  const std::regex grammar(
      "cpu_(generic|avx2|avx512|avx512vnni|avx512bf16)_(int8|bf16|f32)_(gemv|gemm|fold)_(w4sym|w4zero|w4add|fp4|w8sym|w8add|"
      "any)");
  std::vector<std::string> names;
  for (const KernelRow& row : kernel_rows()) {
    names.emplace_back(row.name);
    EXPECT_TRUE(std::regex_match(names.back(), grammar)) << names.back();
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace metal_marlin::cpu
