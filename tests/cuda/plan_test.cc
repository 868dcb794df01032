// Which kernel of an NVIDIA GPU a product gets: no device is needed to plan.
#include "plan_of_model.h"
#include "test.h"

namespace {

using namespace cuda_test;

TEST_F(CudaPlan, GivesFewRowsARingAndManyRowsTiles) {
  EXPECT_EQ(name(mxfp4, 1), "ring_fp4_bf16_m8");
  EXPECT_EQ(name(int4, 8, MARLIN_F16), "ring_u4_f16_m8");
  EXPECT_EQ(name(mxfp4, 9), "mma_fp4_bf16_m16_n128");
  EXPECT_EQ(name(mxfp4, 64), "wgmma_fp4_bf16_m64_n256");
  EXPECT_EQ(name(mxfp4, 192), "wgmma_fp4_bf16_m192_n256");
  EXPECT_EQ(name(mxfp4, 2048), "wgmma_fp4_bf16_m256_n256");
  EXPECT_EQ(name(int4, 2048), "wgmma_u4_bf16_m256_n256");
}

/// The fastest of the tiles that were measured on one H100, 2026-11-27.
TEST_F(CudaPlan, GivesKindsOfWeightsTheTilesThatWereFastest) {
  const auto square = [](marlin_format format, int64_t group) { return Model(format, group, ScaleType::f16, 4096, 4096); };
  const Model of_128 = square(MARLIN_FORMAT_INT4, 128), of_64 = square(MARLIN_FORMAT_INT4, 64),
              of_32 = square(MARLIN_FORMAT_INT4, 32);
  for (const Model* model : {&of_128, &of_64, &of_32}) {
    EXPECT_EQ(name(*model, 512), "wgmma_u4_bf16_m128_n256") << model->meta.group_size;
    EXPECT_EQ(name(*model, 768), "wgmma_u4_bf16_m192_n256") << model->meta.group_size;
  }
  const Model fp4(MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 6144, 4096),
      int8(MARLIN_FORMAT_INT8, 128, ScaleType::f16, 6144, 4096);
  const Model q8_0(MARLIN_FORMAT_INT8, 32, ScaleType::f16, 11776, 4096),
      of_int8(MARLIN_FORMAT_INT8, 128, ScaleType::f16, 11776, 4096);
  EXPECT_EQ(name(fp4, 192), "wgmma_fp4_bf16_m96_n256");
  EXPECT_EQ(name(int8, 128), "wgmma_i8_bf16_m128_n256");
  EXPECT_EQ(name(q8_0, 192), "wgmma_i8_bf16_m96_n256");
  EXPECT_EQ(name(of_int8, 192), "wgmma_i8_bf16_m192_n256");
}

/// A tile that serves weights for which its row has no time would seem faster than tensor cores are, and run every time.
TEST_F(CudaPlan, EstimatesEveryTileThatServes) {
  const Model of_64(MARLIN_FORMAT_INT4, 64, ScaleType::f16, 11776, 4096),
      q4_0(MARLIN_FORMAT_INT4, 32, ScaleType::f16, 11776, 4096);
  const Model int8(MARLIN_FORMAT_INT8, 128, ScaleType::f16, 11776, 4096),
      q8_0(MARLIN_FORMAT_INT8, 32, ScaleType::f16, 11776, 4096);
  Model q6_k(MARLIN_FORMAT_INT8, 16, ScaleType::f32, 11776, 4096);
  q6_k.steady = true;
  constexpr int64_t kRows = 512;
  constexpr double kOperationsOfNs = 990e3;  // of an H100
  const Model* const models[] = {&mxfp4, &int4, &of_64, &q4_0, &int8, &q8_0, &q6_k};
  int tiles = 0;
  for (const Model* model : models)
    with_problem(*model, kRows, MARLIN_BF16, [&](const GemmProblem& problem) {
      const auto operations = static_cast<double>(2 * kRows * model->meta.n * model->meta.k);
      for (const gpu::ProductKernel& kernel : cuda::policy().kernels) {
        if (!kernel.shares_tiles() || !kernel.takes(gpu::activation_of(kernel, problem), gpu::weights_of(problem).layout))
          continue;
        EXPECT_GT(gpu::estimated_ns(kernel, problem, kRows, hopper), operations / kOperationsOfNs)
            << kernel.rows << " rows, weights of format " << model->meta.format << ", group " << model->meta.group_size;
        ++tiles;
      }
    });
  // And of those that round: FP4 has none, 64 slots with zeros and bytes have no 256 rows, and bytes none of 16.
  constexpr int kRounding = 3 * 7 + 3 * 5;
  constexpr int kExpanding = 6 * 3;  // of all models but the one of FP4
  EXPECT_EQ(tiles, 4 * 7 + 5 + 2 * 4 + kRounding + kExpanding);
}

TEST_F(CudaPlan, GivesFormsThatHaveNoKernelOfTheirOwnAGeneralOne) {
  EXPECT_EQ(name(mxfp4, 1, MARLIN_F32), "gemv_fp4_f32_m8");
  EXPECT_EQ(name(mxfp4, 64, MARLIN_F16), "mma_fp4_f16_m32_n128");  // the scale of a product may leave float16
  EXPECT_EQ(name({MARLIN_FORMAT_INT4, 32, ScaleType::bf16, 512, 4096}, 1), "gemv_u4_bf16_m8");
  EXPECT_EQ(name({MARLIN_FORMAT_INT8, 64, ScaleType::f16, 512, 4096}, 64), "gemm_i8_bf16_m64_n128");
}

/// INT8 codes leave less room in tiles.
TEST_F(CudaPlan, GivesInt8KernelsOfHopper) {
  const Model q8_0(MARLIN_FORMAT_INT8, 32, ScaleType::f16, 11776, 4096),
      of_128(MARLIN_FORMAT_INT8, 128, ScaleType::f16, 11776, 4096);
  Model q6_k(MARLIN_FORMAT_INT8, 16, ScaleType::f32, 11776, 4096);
  for (const Model* model : {&q8_0, &of_128}) {
    EXPECT_EQ(name(*model, 8), "ring_i8_bf16_m8");
    EXPECT_EQ(name(*model, 16), "mma_i8_bf16_m32_n128");
  }
  EXPECT_EQ(name(q8_0, 2048), "wgmma_i8_bf16_m128_n256");
  EXPECT_EQ(name(of_128, 2048), "wgmma_i8_bf16_m192_n256");
  for (const int64_t m : {1, 8}) EXPECT_EQ(name(q6_k, m), "ring_i8_bf16_m8");
  for (const int64_t m : {9, 512}) EXPECT_EQ(name(q6_k, m), "mma_i8_bf16_m32_n128");
  q6_k.steady = true;
  EXPECT_EQ(name(q6_k, 2048), "wgmma_i8_bf16_m128_n256");
  Model q5_k(MARLIN_FORMAT_INT8, 32, ScaleType::f32, 11776, 4096);
  q5_k.meta.zero_kind = ZeroKind::additive;
  q5_k.meta.zero_type = ScaleType::f32;
  EXPECT_EQ(name(q5_k, 8), "ring_i8_bf16_m8");
  EXPECT_EQ(name(q5_k, 2048), "mma_i8_bf16_m32_n128");
  q5_k.steady = true;
  EXPECT_EQ(name(q5_k, 2048), "wgmma_i8_bf16_m128_n256");
}

/// Short groups, as GGUF and MLX have them.
TEST_F(CudaPlan, GivesShortGroupsKernelsOfHopper) {
  Model q4_0(MARLIN_FORMAT_INT4, 32, ScaleType::f16, 11776, 4096), q4_1 = q4_0,
                                                                   of_64(MARLIN_FORMAT_INT4, 64, ScaleType::f16, 11776, 4096);
  q4_1.meta.zero_kind = ZeroKind::additive;
  for (const Model* model : {&q4_0, &q4_1, &of_64}) EXPECT_EQ(name(*model, 1), "ring_u4_bf16_m8");
  EXPECT_EQ(name(q4_0, 16), "mma_u4_bf16_m16_n128");
  EXPECT_THAT(name(q4_0, 512), testing::StartsWith("wgmma_u4_bf16_"));
  EXPECT_THAT(name(of_64, 512), testing::StartsWith("wgmma_u4_bf16_"));
  EXPECT_EQ(name(q4_1, 16), "mma_u4_bf16_m16_n128");
  EXPECT_THAT(name(q4_1, 512), testing::StartsWith("wgmma_u4_bf16_"));
  Model mlx = of_64, q4_k(MARLIN_FORMAT_INT4, 32, ScaleType::f32, 11776, 4096);
  mlx.meta.zero_kind = q4_k.meta.zero_kind = ZeroKind::additive;
  q4_k.meta.zero_type = ScaleType::f32;
  EXPECT_THAT(name(mlx, 512), testing::StartsWith("wgmma_u4_bf16_"));
  EXPECT_EQ(name(q4_k, 512), "mma_u4_bf16_m32_n128");
  EXPECT_EQ(name(q4_k, 8), "ring_u4_bf16_m8");
  EXPECT_EQ(name(q4_k, 9), "mma_u4_bf16_m16_n128");
  q4_k.steady = true;
  EXPECT_EQ(name(q4_k, 2048), "wgmma_u4_bf16_m192_n256");
  EXPECT_EQ(name(q4_k, 8), "ring_u4_bf16_m8");
  EXPECT_EQ(name(q4_k, 512, MARLIN_F32), "gemm_u4_f32_m64_n128");
}

/// 2:4 weights have rings, but no tiles.
TEST_F(CudaPlan, GivesFewRowsOfSparseWeightsARing) {
  Model of_128 = int4, of_32(MARLIN_FORMAT_INT4, 32, ScaleType::f16, 11776, 4096), of_fp4 = mxfp4, with_zeros = int4;
  for (Model* model : {&of_128, &of_32, &of_fp4, &with_zeros}) model->meta.sparse = true;
  with_zeros.meta.zero_kind = ZeroKind::integer;
  EXPECT_EQ(name(of_128, 1), "ring_u4_sparse_bf16_m8");
  EXPECT_EQ(name(of_128, 8, MARLIN_F16), "ring_u4_sparse_f16_m8");
  EXPECT_EQ(name(of_32, 1), "ring_u4_sparse_bf16_m8");
  EXPECT_EQ(name(of_fp4, 8), "ring_fp4_sparse_bf16_m8");
  EXPECT_EQ(name(of_fp4, 1, MARLIN_F16), "ring_fp4_sparse_f16_m8");
  EXPECT_EQ(name(of_128, 9), "gemv_u4_sparse_bf16_m16");
  EXPECT_EQ(name(of_128, 64), "gemm_u4_sparse_bf16_m64_n128");
  EXPECT_EQ(name(of_128, 1, MARLIN_F32), "gemv_u4_sparse_f32_m8");
  EXPECT_EQ(name(with_zeros, 1), "gemv_u4_sparse_bf16_m8");  // a form without kernels of its own
  EXPECT_EQ(name({MARLIN_FORMAT_FP4, 32, ScaleType::bf16, 512, 4096}, 1), "gemv_fp4_bf16_m8");
}

/// Tiles of weights with additive zeros take the sums of A over groups from scratch.
TEST_F(CudaPlan, SumsAOverGroupsForTilesOfAdditiveZeros) {
  Model q4_0(MARLIN_FORMAT_INT4, 32, ScaleType::f16, 11776, 4096 + 64), q4_1 = q4_0;
  q4_1.meta.zero_kind = ZeroKind::additive;
  EXPECT_FALSE(plan(q4_0, 512).sums_groups);
  EXPECT_FALSE(plan(q4_1, 8).sums_groups);  // a ring
  EXPECT_FALSE(plan(q4_1, 512, MARLIN_F32).sums_groups);
  const gpu::GemmPlan many = plan(q4_1, 511);
  EXPECT_TRUE(many.sums_groups);
  const uint64_t rows = 511 + 8, groups = 136;  // up to a multiple of eight
  EXPECT_EQ(many.group_sum_bytes, (rows * groups * 8 + 255) / 256 * 256);
  EXPECT_GE(many.scratch_bytes(), many.group_sum_bytes + many.shared_bytes);
}

/// Any kernel for bfloat16 multiplies activations that are rounded to E4M3.
TEST_F(CudaPlan, RoundsActivationsForFp8) {
  compute = MARLIN_COMPUTE_FP8;
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
    EXPECT_EQ(name(mxfp4, 1, dtype), "ring_fp4_bf16_m8");
    EXPECT_EQ(name(mxfp4, 2048, dtype), "wgmma_fp4_bf16_m256_n256");
    const gpu::GemmPlan few = plan(mxfp4, 3, dtype);
    EXPECT_TRUE(few.prepared);
    EXPECT_EQ(few.activation_bytes, 3u * 4096 * 2);
    EXPECT_EQ(few.activation_scale_bytes, 0u);
  }
  hopper.tensor = false;
  EXPECT_EQ(name(mxfp4, 2048), "gemm_fp4_bf16_m64_n128");
}

/// Tiles of bytes multiply the same numbers as they are, but those of experts, of few rows and by scales that they do not take.
TEST_F(CudaPlan, MultipliesE4m3ByE4m3) {
  compute = MARLIN_COMPUTE_FP8;
  Model fp8(MARLIN_FORMAT_FP8, 128, ScaleType::f32, 11776, 4096);
  EXPECT_EQ(name(fp8, 2048), "mma_e4m3_bf16_m32_n128");  // whose scales may be anything
  fp8.steady = true;
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16}) {
    EXPECT_EQ(name(fp8, 1, dtype), "ring_e4m3_bf16_m8");
    const gpu::GemmPlan many = plan(fp8, 2048, dtype);
    EXPECT_EQ(many.kernel->name(gpu::KernelCodes::e4m3, many.activation), "wgmma_e4m3_e4m3_m128_n256");
    EXPECT_EQ(many.activation_bytes, 2048u * 4096);
    EXPECT_EQ(many.activation_scale_bytes, 2048u * 4096 / 32 * 4);
    EXPECT_TRUE(many.quantizes_for_tiles());
  }
}

TEST_F(CudaPlan, RefusesFp8OfOtherWeights) {
  compute = MARLIN_COMPUTE_FP8;
  const auto refused = try_plan(int4, 16);
  EXPECT_EQ(refused.status().code(), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("takes FP4, MXFP4, NVFP4 and FP8 weights, these are"));
}

TEST_F(CudaPlan, NeedsHopperForItsKernels) {
  hopper.tensor = false;
  EXPECT_EQ(name(mxfp4, 1), "gemv_fp4_bf16_m8");
  EXPECT_EQ(name(mxfp4, 2048), "gemm_fp4_bf16_m64_n128");
}

/// One kernel alone and one split of K, whatever M is; where it miscomputes, there is a reason instead of another one.
TEST_F(CudaPlan, KeepsOneKernelForRowInvariantProducts) {
  const Model deep(MARLIN_FORMAT_INT4, 128, ScaleType::f16, 512, 8192);
  for (const Model* const model : {&mxfp4, &int4, &deep}) {
    auto packed = must(gpu::plan_packing(model->meta, gpu::Exponents::bytes, cuda::policy().order));
    const gpu::GpuWeights weights(model->meta, packed.layout, {}, {}, 0);
    GemmProblem problem;
    problem.weights = &weights;
    problem.row_invariant = true;
    gpu::KernelHealth health;
    const gpu::PlanRules rules{hopper, health, cuda::policy(), {}};
    std::set<std::tuple<const gpu::ProductKernel*, int64_t, bool>> plans;
    for (int64_t m = 1; m < 600; m += m < 20 ? 1 : 37) {
      problem.a = {nullptr, m, model->meta.k, model->meta.k, MARLIN_BF16};
      problem.c = {nullptr, m, model->meta.n, model->meta.n, MARLIN_BF16};
      const auto made = must(gpu::plan_gemm(problem, m, rules));
      plans.insert({made.kernel, made.split_blocks, made.partial});
    }
    EXPECT_EQ(plans.size(), 1u);
    const gpu::GemmPlan one = gpu::plan_gemm(problem, 1, rules).take();
    EXPECT_TRUE(one.kernel->name(weights.layout.codes, one.activation).ends_with("_bf16_m8"));
    EXPECT_TRUE(one.kernel->name(weights.layout.codes, one.activation).starts_with("gemv_"));
    health.set(gpu::decoder_of(*one.kernel, one.activation, weights.layout), gpu::KernelHealth::bad);
    const auto none = gpu::plan_gemm(problem, 1, rules);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.status().code(), MARLIN_E_UNSUPPORTED);
    EXPECT_NE(std::string(none.status().message()).find("MARLIN_GEMM_ROW_INVARIANT"), std::string::npos);
    problem.row_invariant = false;
    EXPECT_TRUE(gpu::plan_gemm(problem, 1, rules).ok());
  }
}

TEST_F(CudaPlan, RunsNoMoreGroupsThanTheDeviceHasRoomFor) {
  EXPECT_EQ(plan(mxfp4, 1).grid(1, 11776), (device::Size3{132, 1, 1}));
  EXPECT_EQ(plan(mxfp4, 2048).grid(2048, 11776), (device::Size3{132, 1, 1}));
  const Model small(MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 64, 2048);
  EXPECT_EQ(plan(small, 16).grid(16, 64), (device::Size3{8, 1, 1}));  // parts of 256 slots
}

/// Joining sums takes time, so that tiles are shared only where this saves more.
TEST_F(CudaPlan, SharesNoTilesWhereThatGainsNothing) {
  const Model little(MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 64, 512),
      square(MARLIN_FORMAT_INT4, 128, ScaleType::f16, 4096, 4096);
  EXPECT_EQ(plan(little, 16).grid(16, 64), (device::Size3{1, 1, 1}));
  const gpu::GemmPlan whole = plan(square, 512);
  EXPECT_EQ(whole.kernel->rows, 128);
  EXPECT_EQ(whole.grid(512, 4096), (device::Size3{128, 1, 1}));  // 64 tiles of two groups
  EXPECT_EQ(plan(square, 1024).grid(1024, 4096).x % 128, 0u);
  EXPECT_EQ(plan(int4, 512).grid(512, 11776), (device::Size3{132, 1, 1}));
}

/// Threadgroups that make a tile together are launched together.
TEST_F(CudaPlan, RunsWholeClusters) {
  for (const int64_t n : {1, 64, 129, 4096}) {
    const Model model(MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, n, 512);
    for (int64_t m = 9; m < 600; m += 13) {
      const gpu::GemmPlan made = plan(model, m);
      EXPECT_EQ(made.grid(m, n).x % made.kernel->groups_of_tile, 0u) << n << " " << m;
      EXPECT_LE(made.grid(m, n).x, 132u);
    }
  }
}

/// A row block ends with a meeting of its warps: few of them share one if there are row blocks for all.
TEST_F(CudaPlan, LetsFewWarpsShareARowBlockOfAShortK) {
  const auto warps = [&](int64_t n, int64_t k) {
    return 1 << plan({MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, n, k}, 1).team_shift;
  };
  EXPECT_EQ(warps(4096, 4096), 16);  // a row block for each multiprocessor
  EXPECT_EQ(warps(4096, 11776), 16);
  EXPECT_EQ(warps(11776, 4096), 4);
  EXPECT_EQ(warps(201088, 2880), 4);
  EXPECT_EQ(warps(5120, 2880), 8);
  EXPECT_EQ(plan(mxfp4, 64).team_shift, 0);  // tiles have no teams
}

/// The activations of a tile of rows lie in shared memory.
TEST_F(CudaPlan, SplitsALongK) {
  const Model down(MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 4096, 14336);
  EXPECT_EQ(plan(down, 1).splits, 1);
  const gpu::GemmPlan eight = plan(down, 8);
  EXPECT_GT(eight.splits, 1);
  EXPECT_LE(8 * 2 * eight.split_blocks * kBlockSlots, eight.kernel->activation_bytes);
}

/// A problem of experts, whose memory nobody reads.
class ExpertProblem {
 public:
  ExpertProblem(const Model& model, int64_t experts) {
    auto packed = gpu::plan_packing(model.meta, gpu::Exponents::bytes, cuda::policy().order);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    for (int64_t e = 0; e < experts; ++e)
      stack_.push_back(std::make_unique<gpu::GpuWeights>(model.meta, packed.value().layout, std::vector<int32_t>(),
                                                         gpu::DevicePointer(), uint64_t{1} << 30));
    k_ = model.meta.k, n_ = model.meta.n;
  }
  GemmProblem of(int64_t tokens, int64_t top_k) const {
    GemmProblem problem;
    problem.weights = stack_[0].get();
    problem.a = {nullptr, tokens, k_, k_, MARLIN_BF16};
    problem.c = {nullptr, tokens * top_k, n_, n_, MARLIN_BF16};
    problem.routing.stack = &stack_;
    problem.routing.ids = {nullptr, tokens, top_k, top_k, MARLIN_I32};
    return problem;
  }

 private:
  ExpertStack stack_;
  int64_t k_ = 0, n_ = 0;
};

TEST_F(CudaPlan, ChoosesTilesForTheRowsOfAnExpert) {
  const ExpertProblem experts({MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 2880, 2880}, 128);
  const gpu::KernelHealth health;
  const auto plan_of = [&](int64_t tokens) {
    return must(gpu::plan_gemm(experts.of(tokens, 4), tokens, {hopper, health, cuda::policy(), {}}));
  };
  const auto name_of = [](const gpu::GemmPlan& made) { return made.kernel->name(gpu::KernelCodes::fp4, made.activation); };
  EXPECT_EQ(name_of(plan_of(1)), "ring_fp4_bf16_m8");
  EXPECT_EQ(plan_of(1).routes, gpu::Routes::by_groups);
  EXPECT_EQ(plan_of(1).items, 4);
  EXPECT_EQ(name_of(plan_of(64)), "ring_fp4_bf16_m8");
  EXPECT_EQ(plan_of(64).routes, gpu::Routes::by_groups);
  EXPECT_FALSE(plan_of(64).gathers);  // rows are found by index
  EXPECT_FALSE(plan_of(64).partial);  // nor are sums stored for another kernel
  EXPECT_EQ(plan_of(64).items, 128 + (256 - 128) / 8);
  EXPECT_EQ(plan_of(64).grid(256, 2880), (device::Size3{132, 1, 1}));
  EXPECT_EQ(name_of(plan_of(128)), "ring_fp4_bf16_m8");  // 4 rows an expert: a few have two tiles
  EXPECT_EQ(name_of(plan_of(256)), "mma_fp4_bf16_m16_n128");
  EXPECT_EQ(plan_of(256).routes, gpu::Routes::by_groups);
  EXPECT_FALSE(plan_of(256).gathers);
  EXPECT_EQ(plan_of(256).items, 128 + (1024 - 128) / 16);
  EXPECT_EQ(name_of(plan_of(4096)), "wgmma_fp4_bf16_m192_n256");
  EXPECT_TRUE(plan_of(4096).gathers);  // so that the copy engine finds the rows of an expert together
}

/// A product of experts by tiles is one launch, however many rows it has and whatever its weights need; the kernels that sort,
/// gather and add up A beside it are for the others.
TEST_F(CudaPlan, SortsAndGathersInTheLaunchOfTiles) {
  const gpu::KernelHealth health;
  Model q4_1{MARLIN_FORMAT_INT4, 32, ScaleType::f16, 256, 512};
  q4_1.meta.zero_kind = ZeroKind::additive;
  const auto launches = [&](const Model& model, int64_t tokens, const char* kernel) {
    const ExpertProblem experts(model, 128);
    const GemmProblem problem = experts.of(tokens, 4);
    const gpu::PlanRules rules{hopper, health, cuda::policy(), kernel};
    const gpu::GemmPlan made = gpu::plan_gemm(problem, tokens, rules).take();
    if (made.kernel->shares_tiles()) EXPECT_NE(made.routes, gpu::Routes::before);
    const std::string said = gpu::explain_gemm(made, problem, rules);
    const size_t at = said.find("launches: ");
    return at == std::string::npos ? "" : said.substr(at + 10, said.find('\n', at) - at - 10);
  };
  for (const int64_t tokens : {9, 512, 4096}) {
    EXPECT_EQ(launches(mxfp4, tokens, "mma_fp4_bf16_m16_n128"), "1") << tokens;
    EXPECT_EQ(launches(mxfp4, tokens, "wgmma_fp4_bf16_m64_n256"), "1") << tokens;
    EXPECT_EQ(launches(q4_1, tokens, "mma_u4_bf16_m16_n128"), "1") << tokens;
    EXPECT_EQ(launches(q4_1, tokens, "wgmma_u4_bf16_m128_n256"), "1") << tokens;
  }
  EXPECT_EQ(launches(mxfp4, 4096, "ring_fp4_bf16_m8"), "2");  // it finds rows by index, but sorts up to 2000
}

/// A threadgroup sorts what its table has room for, experts that it can count, and with short groups of integers or float32
/// scales a warp's rows alone.
TEST_F(CudaPlan, SortsRoutedRowsInAThreadgroupWhereThereIsRoom) {
  const gpu::KernelHealth health;
  const auto sorts = [&](const Model& model, int experts, int64_t tokens, const char* kernel) {
    const ExpertProblem problem(model, experts);
    auto made = gpu::plan_gemm(problem.of(tokens, 4), tokens, {hopper, health, cuda::policy(), kernel});
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.value().routes != gpu::Routes::by_groups;
  };
  const Model q4_0{MARLIN_FORMAT_INT4, 32, ScaleType::f16, 256, 512};
  // 16 bytes a tile, of which 2036 rows of 4 experts make up to 258, and 16 more; 4 bytes a row: 12 kB.
  EXPECT_FALSE(sorts(mxfp4, 4, 509, "ring_fp4_bf16_m8"));
  EXPECT_TRUE(sorts(mxfp4, 4, 510, "ring_fp4_bf16_m8"));
  EXPECT_FALSE(sorts(mxfp4, 512, 9, "ring_fp4_bf16_m8"));
  EXPECT_TRUE(sorts(mxfp4, 513, 9, "ring_fp4_bf16_m8"));
  EXPECT_FALSE(sorts(q4_0, 128, 8, "ring_u4_bf16_m8"));
  EXPECT_TRUE(sorts(q4_0, 128, 9, "ring_u4_bf16_m8"));
  Model sparse_of_128 = int4, sparse_fp4 = mxfp4;
  sparse_of_128.meta.sparse = sparse_fp4.meta.sparse = true;
  EXPECT_FALSE(sorts(sparse_of_128, 128, 9, "ring_u4_sparse_bf16_m8"));
  EXPECT_FALSE(sorts(sparse_fp4, 128, 8, "ring_fp4_sparse_bf16_m8"));
  EXPECT_TRUE(sorts(sparse_fp4, 128, 9, "ring_fp4_sparse_bf16_m8"));  // of short groups
  EXPECT_FALSE(sorts(mxfp4, 128, 9, "mma_fp4_bf16_m16_n128"));
  EXPECT_TRUE(sorts(mxfp4, 128, 9, "wgmma_fp4_bf16_m64_n256"));  // whose rows are gathered
  Model q4_1 = q4_0;
  q4_1.meta.zero_kind = ZeroKind::additive;
  EXPECT_TRUE(sorts(q4_1, 128, 9, "mma_u4_bf16_m16_n128"));  // whose gathered rows are added up
  EXPECT_FALSE(sorts(q4_1, 128, 9, "ring_u4_bf16_m8"));
  Model q4_k = q4_1;
  q4_k.meta.scale_type = q4_k.meta.zero_type = ScaleType::f32;
  EXPECT_FALSE(sorts(q4_k, 128, 8, "ring_u4_bf16_m8"));
  EXPECT_TRUE(sorts(q4_k, 128, 9, "ring_u4_bf16_m8"));
}

/// Every T has the kernel, and no more scratch than one, of the values of T that marlin_prepare asks for.
TEST_F(CudaPlan, PreparesForEveryNumberOfTokens) {
  const ExpertProblem experts({MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 512, 1024}, 16);
  const gpu::KernelHealth health;
  const gpu::PlanRules rules{hopper, health, cuda::policy(), {}};
  constexpr int64_t kMost = 700;
  const auto told = must(gpu::plan_breakpoints(experts.of(1, 3), kMost, rules));
  std::map<const gpu::ProductKernel*, uint64_t> prepared;
  for (const int64_t t : told) {
    const auto made = must(gpu::plan_gemm(experts.of(t, 3), t, rules));
    prepared[made.kernel] = std::max(prepared[made.kernel], made.scratch_bytes());
  }
  EXPECT_LT(told.size(), 60u);
  for (int64_t t = 1; t <= kMost; ++t) {
    const auto made = must(gpu::plan_gemm(experts.of(t, 3), t, rules));
    EXPECT_GE(prepared[made.kernel], made.scratch_bytes()) << t;
  }
}

/// marlin_prepare tells the scratch of the largest plan.
TEST_F(CudaPlan, ScratchGrowsWithRows) {
  uint64_t last = 0;
  for (int64_t m = 9; m < 700; ++m) {
    const uint64_t bytes = plan(mxfp4, m).scratch_bytes();
    EXPECT_GE(bytes, last) << m;
    last = bytes;
  }
}

/// Tiles multiply bytes where rows of A and of W have one scale each. Their scratch is that of other kernels.
TEST_F(CudaPlan, MultipliesBytesOfRowsWithOneScale) {
  const Model of_rows(MARLIN_FORMAT_INT8, 4096, ScaleType::f16, 11776, 4096),
      of_128(MARLIN_FORMAT_INT8, 128, ScaleType::f16, 11776, 4096);
  const Model int4_rows(MARLIN_FORMAT_INT4, 4096, ScaleType::f16, 11776, 4096);
  compute = MARLIN_COMPUTE_INT8;
  EXPECT_EQ(name(of_rows, 2048), "gemm_i8_i8_m64_n128");
  activation_group = kWholeRow;
  EXPECT_EQ(name(of_rows, 2048), "wgmma_i8_i8_m256_n256");
  EXPECT_EQ(name(of_rows, 64), "wgmma_i8_i8_m64_n256");
  EXPECT_EQ(name(of_rows, 8), "gemv_i8_i8_m8");
  EXPECT_EQ(name(int4_rows, 2048), "wgmma_u4_i8_m128_n256") << "256 rows leave no registers for decoding";
  EXPECT_EQ(name(of_128, 2048), "gemm_i8_i8_m64_n128");
  activation_group = 128;
  EXPECT_EQ(name(of_rows, 2048), "gemm_i8_i8_m64_n128");
  activation_group = kWholeRow;
  const Model long_rows(MARLIN_FORMAT_INT8, 1 << 18, ScaleType::f16, 64, 1 << 18);
  EXPECT_EQ(name(long_rows, 2048), "gemm_i8_i8_m64_n128") << "an int32 does not hold the sums";
  uint64_t before = 0;
  for (int64_t m = 1; m <= 600; ++m) {
    const gpu::GemmPlan made = plan(of_rows, m);
    const uint64_t own = made.activation_bytes + made.activation_scale_bytes;
    EXPECT_GE(own, before) << m;
    before = own;
  }
}

}  // namespace
