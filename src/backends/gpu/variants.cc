#include "backends/gpu/variants.h"

namespace metal_marlin::gpu {
namespace {

uint32_t routing_of(const GemmProblem& problem) {
  if (!problem.routing.present()) return kRoutingNone;
  return problem.routing.scales.present() ? kRoutingSums : kRoutingRows;
}

/// What weights are expanded to.
KernelCodes halves_of(const GemmPlan& plan) {
  return plan.activation == ActivationKind::f16 ? KernelCodes::f16 : KernelCodes::bf16;
}

}  // namespace

Variant multiply_variant(const GemmProblem& problem, const GemmPlan& plan, bool aligned) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  const bool whole = !plan.partial;  // else `finish` does the rest
  Variant v(plan.kernel->multiplies(layout.codes, plan.activation));
  v.set_decoder(plan.kernel->expands() ? layout.as_halves(halves_of(plan)) : layout)
      .set(MARLIN_CONSTANT_ROW_FACTOR, whole ? layout.row_factor : kRowFactorNone)
      .set(MARLIN_CONSTANT_ALIGNED, plan.prepared || aligned)
      .set(MARLIN_CONSTANT_RAGGED, !plan.prepared && layout.k < layout.slots)
      .set(MARLIN_CONSTANT_OUTPUT_TYPE,
           whole ? float_constant(problem.c.dtype) : uint32_t{kFloat32})
      .set(MARLIN_CONSTANT_BIAS_TYPE,
           whole ? float_constant(problem.bias.dtype) : uint32_t{kFloatNone})
      .set(MARLIN_CONSTANT_EPILOGUE, whole ? static_cast<uint32_t>(problem.epilogue) : 0)
      .set(MARLIN_CONSTANT_ACCUMULATE, whole && problem.accumulate)
      .set(MARLIN_CONSTANT_INTERLEAVED, whole && interleaves(problem))
      .set(MARLIN_CONSTANT_PARTIAL, plan.partial)
      .set(MARLIN_CONSTANT_QUANTIZED, are_bytes(plan.activation))
      .set(MARLIN_CONSTANT_ROUTING, routing_of(problem))
      .set(MARLIN_CONSTANT_SORTS_ROWS, plan.routes == Routes::by_groups);
  // What finds the routed rows reads their scales. (Sums with scales are partial: no bias here.)
  if (problem.routing.scales.present() && plan.routes != Routes::before)
    v.set(MARLIN_CONSTANT_BIAS_TYPE, float_constant(problem.routing.scales.dtype));
  if (plan.routes == Routes::in_launch) v.set(MARLIN_CONSTANT_SLOT_TO_K, layout.permuted);
  return v;
}

Variant expand_variant(const GemmProblem& problem, const GemmPlan& plan) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  Variant v(expand_kernel(layout.codes, plan.activation));
  v.set_decoder(layout);
  return v;
}

Variant finish_variant(const GemmProblem& problem) {
  const GpuWeights& weights = weights_of(problem);
  Variant v(finish_kernel().name);
  v.set(MARLIN_CONSTANT_ROW_FACTOR, weights.layout.row_factor)
      .set(MARLIN_CONSTANT_OUTPUT_TYPE, float_constant(problem.c.dtype))
      .set(MARLIN_CONSTANT_BIAS_TYPE, float_constant(problem.bias.dtype))
      .set(MARLIN_CONSTANT_EPILOGUE, static_cast<uint32_t>(problem.epilogue))
      .set(MARLIN_CONSTANT_ACCUMULATE, problem.accumulate)
      .set(MARLIN_CONSTANT_INTERLEAVED, interleaves(problem))
      .set(MARLIN_CONSTANT_ROUTING, routing_of(problem));
  return v;
}

Variant route_variant(const GemmProblem& problem) {
  Variant v(route_kernel());
  v.set(MARLIN_CONSTANT_BIAS_TYPE, float_constant(problem.routing.scales.dtype));
  return v;
}

HelperKernel prepare_kernel(const GemmProblem& problem, const GemmPlan& plan) {
  if (problem.compute == MARLIN_COMPUTE_FP8) return round_kernel(problem.a.dtype);
  if (plan.activation != ActivationKind::i8) return gather_kernel(problem.a.dtype);
  return quantize_kernel(problem.a.dtype, weights_of(problem).layout.order);
}

Variant prepare_variant(const GemmProblem& problem, const GemmPlan& plan, bool aligned) {
  Variant v(prepare_kernel(problem, plan).name);
  const RowBlockLayout& layout = weights_of(problem).layout;
  const bool permuted = layout.permuted;
  v.set(MARLIN_CONSTANT_SLOT_TO_K, permuted);
  if (plan.gathers) v.set(MARLIN_CONSTANT_ROUTING, kRoutingRows);
  // Rows in the order of A are read in long pieces.
  const bool in_pieces =
      plan.gathers || problem.compute == MARLIN_COMPUTE_FP8 || layout.order == SlotOrder::mma;
  if (in_pieces && !permuted) v.set(MARLIN_CONSTANT_ALIGNED, aligned);
  return v;
}

Variant group_sums_variant(const GemmProblem& problem, const GemmPlan& plan, bool aligned) {
  Variant v(group_sums_kernel(problem.a.dtype).name);
  v.set(MARLIN_CONSTANT_GROUP_SHIFT, weights_of(problem).layout.group_shift_constant())
      .set(MARLIN_CONSTANT_ALIGNED, plan.prepared || aligned);
  if (plan.gathers) v.set(MARLIN_CONSTANT_ROUTING, kRoutingRows);
  return v;
}

}  // namespace metal_marlin::gpu
