// The kernels that a product runs, with the values of their function constants.
#pragma once

#include "backends/gpu/kernels.h"
#include "backends/gpu/plan.h"

namespace metal_marlin::gpu {

/// The kernel that quantizes or gathers A.
HelperKernel prepare_kernel(const GemmProblem& problem, const GemmPlan& plan);

// `aligned`: every row of A begins at a multiple of 16 bytes.
Variant prepare_variant(const GemmProblem& problem, const GemmPlan& plan, bool aligned);
Variant route_variant(const GemmProblem& problem);
Variant group_sums_variant(const GemmProblem& problem, const GemmPlan& plan, bool aligned);
/// The kernel that expands the weights.
Variant expand_variant(const GemmProblem& problem, const GemmPlan& plan);
Variant multiply_variant(const GemmProblem& problem, const GemmPlan& plan, bool aligned);
Variant finish_variant(const GemmProblem& problem);

}  // namespace metal_marlin::gpu
