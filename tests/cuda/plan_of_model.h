// A product on a device that is not there: which kernel it gets.
#pragma once

#include "backends/cuda/policy.h"
#include "backends/gpu/choice.h"
#include "backends/gpu/pack.h"
#include "backends/gpu/plan.h"
#include "must.h"
#include "test.h"

namespace cuda_test {

using namespace metal_marlin;

/// Weights that are not there, but for what a plan asks of them.
struct Model {
  Model(marlin_format format, int64_t group, ScaleType scale, int64_t n, int64_t k) {
    meta.format = format;
    meta.n = n;
    meta.k = k;
    meta.group_size = group;
    meta.groups = k / group;
    meta.scale_type = scale;
  }
  WeightMeta meta;
  bool steady = false;  ///< the scales, float32
};

class CudaPlan : public testing::Test {
 protected:
  CudaPlan() {
    hopper.tensor = hopper.matrix = hopper.bfloat = true;
    hopper.multiprocessors = 132;
  }
  /// The plan of m rows of A.
  gpu::GemmPlan plan(const Model& model, int64_t m, marlin_dtype dtype = MARLIN_BF16) {
    return must(try_plan(model, m, dtype));
  }
  Result<gpu::GemmPlan> try_plan(const Model& model, int64_t m, marlin_dtype dtype = MARLIN_BF16) {
    std::optional<Result<gpu::GemmPlan>> made;
    with_problem(model, m, dtype, [&](const GemmProblem& problem) {
      codes = gpu::weights_of(problem).layout.codes;
      const gpu::KernelHealth health;
      made = gpu::plan_gemm(problem, m, {hopper, health, cuda::policy(), {}});
    });
    return std::move(*made);
  }
  /// Calls `use` with the product of m rows of A.
  template <class Use>
  void with_problem(const Model& model, int64_t m, marlin_dtype dtype, const Use& use) {
    auto packed = gpu::plan_packing(model.meta, gpu::Exponents::bytes, cuda::policy().order);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    gpu::RowBlockLayout layout = packed.value().layout;
    layout.steady_scales = model.steady;
    const gpu::GpuWeights weights(model.meta, layout, {}, {}, 0);
    GemmProblem problem;
    problem.weights = &weights;
    problem.a = {nullptr, m, model.meta.k, model.meta.k, dtype};
    problem.c = {nullptr, m, model.meta.n, model.meta.n, dtype};
    problem.compute = compute;
    problem.activation_group = activation_group;
    use(problem);
  }
  std::string name(const Model& model, int64_t m, marlin_dtype dtype = MARLIN_BF16) {
    const gpu::GemmPlan made = plan(model, m, dtype);
    return std::string(made.kernel->name(codes, made.activation));
  }

  device::Capabilities hopper;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  int64_t activation_group = kLeastActivationGroup;
  gpu::KernelCodes codes{};
  const Model mxfp4{MARLIN_FORMAT_MXFP4, 32, ScaleType::e8m0, 11776, 4096},
      int4{MARLIN_FORMAT_INT4, 128, ScaleType::f16, 11776, 4096};
};

}  // namespace cuda_test
