// What surrounds the kernels: epilogues, many products, blocks of rows, special values, the plan.
#include "kernels_problem.h"
#include "test.h"

namespace metal_marlin::cpu {
namespace {

void check_epilogue(marlin_epilogue epilogue, bool interleaved, const CpuFeatures& features, std::mt19937& rng) {
  const int64_t m = 1 + rng() % 7, n = 2 * (1 + rng() % 100), k = 33 + rng() % 100;
  problem::Case drawn = case_of(rng() % 2 ? kNvfp4 : kInt4, n, k, rng);
  drawn.interleaved = interleaved;
  drawn.epilogue = epilogue;
  const TestWeights w = random_weights(drawn, rng);
  const marlin_dtype dtypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
  Operands o = make_operands(w, m, MARLIN_F32, dtypes[rng() % 3], rng);
  const marlin_dtype bias_type = dtypes[rng() % 3];
  std::vector<float> bias(static_cast<size_t>(n));
  o.bias = guarded::Memory(bias.size() * float_bytes(bias_type), any_edge(rng));
  for (size_t i = 0; i < bias.size(); ++i) {
    bias[i] = static_cast<float>(static_cast<int>(rng() % 33) - 16) / 8;  // exact in all three types
    encode_floats(bias_type, &bias[i], 1, o.bias.data() + i * float_bytes(bias_type));
  }
  const oracle::Gate gate = drawn.gate();
  set_epilogue(o.problem, epilogue, {gate.gate_limit, gate.up_limit, gate.gate_alpha, gate.up_offset});
  o.problem.bias = {o.bias.data(), 1, n, n, bias_type};
  o.problem.c.cols = is_two_input(epilogue) ? n / 2 : n;
  o.problem.accumulate = rng() % 2;
  const float two = 2;
  for (int64_t r = 0; r < m && o.problem.accumulate; ++r)
    for (int64_t c = 0; c < o.problem.c.cols; ++c)
      encode_floats(o.problem.c.dtype, &two, 1,
                    o.c.data() + static_cast<size_t>(r * o.problem.c.stride + c) * float_bytes(o.problem.c.dtype));
  run(o.problem, features, "", 2);

  const std::vector<double> old(o.problem.accumulate ? static_cast<size_t>(m * o.problem.c.cols) : 0, 2);
  const oracle::Gate by = epilogue == MARLIN_EPILOGUE_SWIGLU_OAI ? oracle::Gate{7, 7, 1.702f, 1} : gate;
  ASSERT_TRUE(check(o, w, bias, old, by)) << "epilogue " << epilogue << " " << w.spec.describe();
}

TEST(Epilogues, MatchTheirFormulas) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 rng(seed);
  CpuFeatures portable;
  portable.name = "generic";
  for (const CpuFeatures& features : {portable, this_machine()})
    for (marlin_epilogue e = MARLIN_EPILOGUE_NONE; e <= MARLIN_EPILOGUE_SITU; ++e)
      for (int round = 0; round < 4; ++round) {
        check_epilogue(e, round % 2 == 1, features, rng);
        if (HasFatalFailure()) return;
      }
}

/// Sums of chosen values: A is 1 x 1, the only weight is 1, the bias is the value.
float epilogue_of(marlin_epilogue epilogue, float value, const CpuFeatures& features) {
  std::mt19937 rng(1);
  const TestWeights w = random_weights(kInt4, 1, 32, rng);
  Operands o = make_operands(w, 1, MARLIN_F32, MARLIN_F32, rng);
  std::fill_n(reinterpret_cast<float*>(o.a.data()), 32, 0.0f);
  GemmProblem p = o.problem;
  p.epilogue = epilogue;
  p.bias = {&value, 1, 1, 1, MARLIN_F32};
  run(p, features, "", 1);
  return element(p.c, 0, 0);
}

TEST(Epilogues, KeepNanAndGoToTheirLimits) {
  CpuFeatures portable;
  const float inf = std::numeric_limits<float>::infinity();
  for (const CpuFeatures& features : {portable, this_machine()})
    for (marlin_epilogue e : {MARLIN_EPILOGUE_SILU, MARLIN_EPILOGUE_GELU_TANH, MARLIN_EPILOGUE_GELU_ERF}) {
      SCOPED_TRACE(testing::Message() << "epilogue " << e << " features " << features.bits);
      EXPECT_TRUE(std::isnan(epilogue_of(e, std::nanf(""), features)));
      EXPECT_EQ(epilogue_of(e, inf, features), inf);
      EXPECT_EQ(epilogue_of(e, -inf, features), 0.0f);
      EXPECT_EQ(epilogue_of(e, 1e30f, features), 1e30f);
      EXPECT_EQ(epilogue_of(e, -1e30f, features), 0.0f);
      EXPECT_EQ(epilogue_of(e, 0.0f, features), 0.0f);
    }
}

class Rows : public OnEachKernel {};

TEST_P(Rows, DoNotDependOnBatchThreadsOrNeighbors) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 rng(seed);
  for (const WeightKind& kind : {kInt4, kMxfp4, kNvfp4, WeightKind{MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::additive, 16},
                                 WeightKind{MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::integer, 128},
                                 WeightKind{MARLIN_FORMAT_FP8, ScaleType::f32, ZeroKind::none, 128},
                                 WeightKind{MARLIN_FORMAT_NF4, ScaleType::f32, ZeroKind::none, 64},
                                 WeightKind{MARLIN_FORMAT_INT3, ScaleType::s6, ZeroKind::none, 16},
                                 WeightKind{MARLIN_FORMAT_UINT8, ScaleType::bf16, ZeroKind::integer, 32},
                                 WeightKind{MARLIN_FORMAT_INT8, ScaleType::f16, ZeroKind::none, 32},
                                 WeightKind{MARLIN_FORMAT_INT8, ScaleType::f32, ZeroKind::additive, 64}, sparsely(kInt4),
                                 sparsely(kMxfp4), sparsely({MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::additive, 16}),
                                 sparsely({MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::integer, 128})}) {
    const int64_t m = 2 + rng() % 40, n = 1 + rng() % 200, k = 1 + rng() % 700;
    const TestWeights w = random_weights(kind, n, k, rng);
    SCOPED_TRACE(testing::Message() << row.name << " seed " << seed << " " << w.spec.describe());
    Operands o = make_operands(w, m, MARLIN_BF16, MARLIN_F32, rng);
    o.problem.compute = compute_of(row);
    if (!plan_gemm(o.problem, m, {features, row.name}).ok()) continue;
    run(o.problem, features, row.name, 1);
    const std::vector<float> all = results(o.problem);
    run(o.problem, features, row.name, 7);
    ASSERT_EQ(all, results(o.problem)) << "depends on the number of threads";
    for (int64_t r = 0; r < m; r += 1 + rng() % 5) {
      GemmProblem one = o.problem;
      one.a.data = o.a.data() + static_cast<size_t>(r * one.a.stride) * 2;
      one.a.rows = one.c.rows = 1;
      run(one, features, row.name, 2);
      for (int64_t c = 0; c < n; ++c)
        ASSERT_EQ(element(one.c, 0, c), all[static_cast<size_t>(r * n + c)]) << "row " << r << " of " << m << " column " << c;
    }
    const int64_t kept = rng() % m;
    for (const float other : {1e30f, 0.0f, std::nanf("")}) {
      for (int64_t r = 0; r < m; ++r)
        for (int64_t i = 0; r != kept && i < w->layout.k; ++i)
          encode_floats(MARLIN_BF16, &other, 1, o.a.data() + static_cast<size_t>(r * o.problem.a.stride + i) * 2);
      run(o.problem, features, row.name, 3);
      for (int64_t c = 0; c < n; ++c)
        ASSERT_EQ(element(o.problem.c, kept, c), all[static_cast<size_t>(kept * n + c)])
            << "row " << kept << " of " << m << " among " << other << " column " << c;
    }
  }
}

TEST_P(Rows, WithNanOrInfinityGiveNothingElse) {
  std::mt19937 rng(7);
  for (const WeightKind& kind : {kInt4, kMxfp4, WeightKind{MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::integer, 64},
                                 WeightKind{MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::additive, 32},
                                 WeightKind{MARLIN_FORMAT_INT8, ScaleType::f16, ZeroKind::none, 32},
                                 WeightKind{MARLIN_FORMAT_INT8, ScaleType::f16, ZeroKind::additive, 32}, sparsely(kInt4),
                                 sparsely(kMxfp4), sparsely({MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::integer, 64}),
                                 sparsely({MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::additive, 32})}) {
    const TestWeights w = random_weights(kind, 70, 200, rng);
    Operands o = make_operands(w, 5, MARLIN_BF16, MARLIN_F32, rng);
    o.problem.compute = compute_of(row);
    if (!plan_gemm(o.problem, 5, {features, row.name}).ok()) continue;
    const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity()};
    for (int64_t r : {1, 3})
      encode_floats(MARLIN_BF16, &bad[r / 2], 1, o.a.data() + static_cast<size_t>(r * o.problem.a.stride + 150) * 2);
    run(o.problem, features, row.name, 1);
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < 70; ++c) {
        const float got = element(o.problem.c, r, c);
        if (r == 1 || (r == 3 && row.form == ActivationForm::int8))
          ASSERT_TRUE(std::isnan(got)) << row.name << " " << w.spec.describe() << " row " << r << " column " << c << " is "
                                       << got;
        else if (r == 3)
          ASSERT_FALSE(std::isfinite(got)) << row.name << " " << w.spec.describe() << " column " << c;
        else
          ASSERT_TRUE(std::isfinite(got)) << row.name << " " << w.spec.describe() << " row " << r << " column " << c;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Rows, testing::ValuesIn(rows_that(every_row)), name_of_row);
TEST(ManyProducts, GiveWhatEachGivesAlone) {
  std::mt19937 rng(3);
  const CpuFeatures features = this_machine();
  const TestWeights q = random_weights(kInt4, 100, 300, rng), k = random_weights(kInt4, 7, 300, rng);
  const TestWeights v = random_weights(kMxfp4, 70, 300, rng);
  std::vector<Operands> operands;
  for (const TestWeights* w : {&q, &k, &v}) operands.push_back(make_operands(*w, 9, MARLIN_BF16, MARLIN_F32, rng));
  operands[0].problem.epilogue = MARLIN_EPILOGUE_SWIGLU;
  operands[0].problem.c.cols = 50;
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    std::vector<PlannedGemm> products;
    std::vector<std::vector<float>> alone;
    for (Operands& o : operands) {
      o.problem.a = operands[0].problem.a;  // one A for all
      o.problem.compute = compute;
      run(o.problem, features, "", 2);
      alone.push_back(results(o.problem));
      std::fill_n(o.c.data(), o.c.size(), std::byte{0});
      products.push_back({o.problem, Plan(plan_gemm(o.problem, 9, {features, ""}).value())});
    }
    const guarded::Memory scratch(scratch_bytes(products), guarded::Edge::end);
    SerialRunner runner(3);
    run_gemm(products, {scratch.data(), scratch.size()}, runner);
    for (size_t i = 0; i < operands.size(); ++i) EXPECT_EQ(results(operands[i].problem), alone[i]) << i;
  }
}

TEST(BlocksOfRows, GiveWhatOneBlockGives) {
  std::mt19937 rng(4);
  const CpuFeatures features = this_machine();
  const TestWeights w = random_weights(kInt4, 5, 30000, rng);
  Operands o = make_operands(w, 150, MARLIN_F32, MARLIN_F32, rng);
  auto plan = must(plan_gemm(o.problem, 150, {features, ""}));
  ASSERT_LT(plan.m_block, 150) << "the test needs an M that is cut into blocks";
  run(o.problem, features, "", 2);
  const std::vector<float> all = results(o.problem);
  for (int64_t r = 0; r < 150 - 17; r += 13) {
    GemmProblem some = o.problem;
    some.a.data = o.a.data() + static_cast<size_t>(r * some.a.stride) * 4;
    some.a.rows = some.c.rows = 17;  // more than one tile, so that K is in one part, too
    run(some, features, plan.row->name, 1);
    for (int64_t c = 0; c < 5; ++c) ASSERT_EQ(element(some.c, 0, c), all[static_cast<size_t>(r * 5 + c)]) << r;
  }
}

TEST(Plan, ScratchNeverShrinksInsideTheRangeOfAKernel) {
  std::mt19937 rng(5);
  const CpuFeatures features = this_machine();
  const TestWeights w = random_weights(kMxfp4, 600, 5000, rng);
  for (const marlin_epilogue e : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SWIGLU})
    for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_BF16}) {
      GemmProblem p;
      p.weights = w.packed.get();
      p.a.dtype = dtype;
      p.epilogue = e;
      GemmPlan last;
      for (int64_t m = 1; m < 2000; ++m) {
        const GemmPlan plan = plan_gemm(p, m, {features, ""}).take();
        if (plan.row == last.row) {
          ASSERT_GE(plan.activation_bytes, last.activation_bytes) << m;
          ASSERT_GE(plan.output_bytes, last.output_bytes) << m;
        }
        ASSERT_LE(plan.m_block, m);
        last = plan;
      }
    }
}

TEST(Plan, ScratchOfTheLargestServesFewerRows) {
  std::mt19937 rng(6);
  const CpuFeatures features = this_machine();
  int in_parts = 0;
  for (const int64_t n : {5, 600, 2000}) {
    const TestWeights w = random_weights(kMxfp4, n, 5000, rng);
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
      for (const int64_t most : {1, 3, 4, 12, 100}) {
        GemmProblem p;
        p.weights = w.packed.get();
        p.a.dtype = MARLIN_F32;
        p.compute = compute;
        const uint64_t largest = largest_plan(p, most, {features, ""}).take().bytes();
        for (int64_t m = 1; m <= most; ++m) {
          const GemmPlan plan = plan_gemm(p, m, {features, ""}).take();
          ASSERT_LE(plan.bytes(), largest) << m << " of " << most << ", n " << n;
          in_parts += plan.k_parts > 1;
        }
      }
  }
  EXPECT_GT(in_parts, 0);
}

#if defined(__x86_64__)
TEST(Plan, TakesTheDotProductOfBf16WhereItIsFast) {
  std::mt19937 rng(7);
  const TestWeights dense = random_weights(kInt4, 8, 64, rng), half = random_weights(sparsely(kInt4), 8, 64, rng);
  const auto takes = [](const TestWeights& w, uint32_t bits, std::string_view forced = "") {
    GemmProblem p;
    p.weights = w.packed.get();
    p.a.dtype = MARLIN_BF16;
    std::string all;
    CpuFeatures features;
    features.bits = bits;
    for (const int64_t m : {1, 4, 8, 64, 200}) all += std::string(plan_gemm(p, m, {features, forced}).value().row->name) + " ";
    return all;
  };
  constexpr uint32_t kSlow = kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Bf16, kFast = kSlow | kFastBf16Dot;
  for (const TestWeights* const w : {&dense, &half}) {
    EXPECT_EQ(takes(*w, kSlow).find("avx512bf16"), std::string::npos) << takes(*w, kSlow);
    EXPECT_NE(takes(*w, kFast).find("avx512bf16"), std::string::npos) << takes(*w, kFast);
  }
  EXPECT_NE(takes(dense, kSlow, "cpu_avx512bf16_gemv_any_bf16").find("avx512bf16"), std::string::npos)
      << "asked for by its name";
}
#endif

TEST(Plan, SaysWhatItCannotDo) {
  std::mt19937 rng(6);
  const TestWeights w = random_weights(kInt4, 8, 64, rng);
  GemmProblem p;
  p.weights = w.packed.get();
  p.a.dtype = MARLIN_F32;
  const CpuFeatures features = this_machine();
  EXPECT_EQ(plan_gemm(p, 1, {features, "cpu_no_such_kernel"}).status().code(), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(plan_gemm(p, 1, {features, "cpu_avx512bf16_regdecode_any_bf16"}).status().code(), MARLIN_E_UNSUPPORTED)
      << "F32 activations";
  EXPECT_EQ(plan_gemm(p, 1, {CpuFeatures{}, "cpu_avx512_gemv_any_f32"}).status().code(), MARLIN_E_UNSUPPORTED);
  p.compute = MARLIN_COMPUTE_FP8;
  EXPECT_EQ(plan_gemm(p, 1, {features, ""}).status().code(), MARLIN_E_UNSUPPORTED);
  p.compute = MARLIN_COMPUTE_INT8;
  const std::string text = explain_gemm(plan_gemm(p, 4, {features, ""}).take(), p, {features});
  EXPECT_EQ(text.rfind("kernel: cpu_", 0), 0u) << text;
  EXPECT_NE(text.find("\nwhy: "), std::string::npos) << text;
  EXPECT_NE(text.find("\nweights: dense\n"), std::string::npos) << text;
  const TestWeights half = random_weights(sparsely(kInt4), 8, 64, rng);
  p.weights = half.packed.get();
  const std::string other = explain_gemm(plan_gemm(p, 4, {features, ""}).take(), p, {features});
  EXPECT_NE(other.find("\nweights: 2:4 sparse"), std::string::npos) << other;
  EXPECT_NE(other.find("\nweight_bytes: " + std::to_string(half->bytes()) + "\n"), std::string::npos) << other;
}

}  // namespace
}  // namespace metal_marlin::cpu
