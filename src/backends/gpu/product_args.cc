#include "backends/gpu/gemm.h"

namespace metal_marlin::gpu {

ProductArgs product_args(const GemmProblem& problem, const GemmPlan& plan,
                         const ProductOperands& operands, int64_t rows) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  ProductArgs args{};
  args.m = static_cast<marlin_int>(rows);
  args.n = static_cast<marlin_int>(layout.n);
  args.k = static_cast<marlin_int>(plan.prepared ? layout.slots : layout.k);
  args.slots = static_cast<marlin_int>(layout.slots);
  args.quads = static_cast<marlin_int>(layout.quads);
  args.quad_blocks = static_cast<marlin_int>(layout.quad_blocks);
  args.split_blocks = static_cast<marlin_int>(plan.split_blocks);
  args.splits = static_cast<marlin_int>(plan.splits);
  args.team_shift = plan.team_shift;
  args.lda = plan.prepared ? layout.slots : operands.a.stride;
  args.ldc = operands.c.stride;
  args.expanded = plan.kernel->expands() ? 1 : 0;
  args.gate_limit = problem.gate.gate_limit;
  args.up_limit = problem.gate.up_limit;
  args.gate_alpha = problem.gate.alpha;
  args.up_offset = problem.gate.up_offset;
  if (!problem.routing.present()) return args;
  args.items = static_cast<marlin_int>(plan.items);
  args.top_k = static_cast<marlin_int>(problem.routing.ids.cols);
  args.rows_of_a = static_cast<marlin_int>(plan.gathers ? 0 : rows_of_a(problem));
  args.expert_stride = static_cast<int64_t>(weights_of(problem).expert_stride);
  args.ring_rows = static_cast<marlin_int>(plan.ring_rows);
  if (problem.bias.rows > 1) args.bias_stride = operands.bias.stride;
  if (plan.routes == Routes::before) return args;
  const auto experts = static_cast<marlin_int>(problem.routing.stack->size());
  if (plan.routes == Routes::in_launch) {
    args.gather_experts = experts;
    args.gather_k = static_cast<marlin_int>(layout.k);
    args.gather_rows_of_a = static_cast<marlin_int>(plan.gathers ? rows_of_a(problem) : 0);
    args.gather_lda = operands.a.stride;
  } else {
    args.experts = experts;
  }
  args.id_stride = operands.ids.stride;
  args.scale_stride = operands.scales.stride;
  return args;
}

}  // namespace metal_marlin::gpu
