// Which kernel a product gets whose weights may be rounded to 16 bits.
#include "plan_of_model.h"
#include "test.h"

namespace {

using namespace cuda_test;

/// Weights that may be rounded become floats of 16 bits first, where no tile decodes them, or so many rows share them that
/// decoding them in every tile would cost more. The scratch for the most rows serves any fewer.
TEST_F(CudaPlan, ExpandsWeightsThatManyRowsShare) {
  Model of_64(MARLIN_FORMAT_INT8, 64, ScaleType::f16, 11776, 4096), q5_k(MARLIN_FORMAT_INT8, 32, ScaleType::f32, 11776, 4096);
  const Model huge(MARLIN_FORMAT_INT8, 64, ScaleType::f16, 128 << 10, 4096);
  q5_k.meta.zero_kind = ZeroKind::additive;
  q5_k.meta.zero_type = ScaleType::f32;
  q5_k.steady = true;
  EXPECT_EQ(name(of_64, 2048), "gemm_i8_bf16_m64_n128");
  compute = MARLIN_COMPUTE_W16;
  EXPECT_EQ(name(of_64, 2048), "expand_i8_bf16_m256_n256");
  EXPECT_EQ(name(of_64, 2048, MARLIN_F16), "expand_i8_f16_m256_n256");
  EXPECT_EQ(name(of_64, 2048, MARLIN_F32), "gemm_i8_f32_m64_n128");
  EXPECT_EQ(name(of_64, 1), "gemv_i8_bf16_m8");
  EXPECT_EQ(name(huge, 2048), "gemm_i8_bf16_m64_n128");
  EXPECT_THAT(name(q5_k, 64), testing::StartsWith("wgmma_w16_i8_bf16_"));
  EXPECT_THAT(name(q5_k, 4096), testing::StartsWith("expand_i8_bf16_"));
  EXPECT_EQ(plan(of_64, 2048).expanded_bytes, 11776u * 4096 * 2);
  EXPECT_EQ(plan(of_64, 1).expanded_bytes, 0u);
  with_problem(q5_k, 5000, MARLIN_BF16, [&](const GemmProblem& problem) {
    const gpu::KernelHealth health;
    const gpu::PlanRules rules{hopper, health, cuda::policy(), {}};
    uint64_t most = 0;
    for (const int64_t m : must(gpu::plan_breakpoints(problem, 5000, rules)))
      most = std::max(most, must(gpu::plan_gemm(problem, m, rules)).scratch_bytes());
    for (int64_t m = 1; m <= 5000; ++m) ASSERT_LE(must(gpu::plan_gemm(problem, m, rules)).scratch_bytes(), most) << m;
  });
}

/// A codebook's numbers need more than 16 bits, so that only products that may round them have kernels of Hopper.
TEST_F(CudaPlan, LooksUpRoundedNumbersOfCodebooks) {
  Model nf4(MARLIN_FORMAT_NF4, 64, ScaleType::f32, 11776, 4096);
  nf4.meta.codebook.assign(16, 0.5f);
  nf4.steady = true;
  EXPECT_EQ(name(nf4, 1), "gemv_lut4_bf16_m8");
  compute = MARLIN_COMPUTE_W16;
  for (const marlin_dtype dtype : {MARLIN_F16, MARLIN_BF16}) {
    const std::string of = dtype == MARLIN_F16 ? "lut4_f16" : "lut4_bf16";
    EXPECT_EQ(name(nf4, 1, dtype), "ring_w16_" + of + "_m8");
    EXPECT_EQ(name(nf4, 16, dtype), "mma_w16_" + of + "_m32_n128");
    EXPECT_THAT(name(nf4, 128, dtype), testing::StartsWith("wgmma_w16_" + of));
  }
  nf4.meta.group_size = 32, nf4.meta.groups *= 2;
  EXPECT_EQ(name(nf4, 1), "gemv_lut4_bf16_m8");
}

}  // namespace
