#include <cinttypes>

#include "backends/gpu/choice.h"
#include "core/plan.h"

namespace metal_marlin::gpu {
namespace {

const char* probe_text(KernelHealth::State state) {
  switch (state) {
    case KernelHealth::good:
      return "agrees with the CPU on this device";
    case KernelHealth::bad:
      return "miscomputes on this device";
    default:
      return "not done";
  }
}

/// The kernels of one order that serve a row-invariant product, with a comma between.
std::string names_of_order(const GemmProblem& problem, const PlanRules& rules) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  std::string names;
  for (const ProductKernel& kernel : rules.policy.kernels) {
    const ActivationKind activation = activation_of(kernel, problem);
    if (kernel.row_invariant && kernel.takes(activation, layout) &&
        is_choice(kernel, layout, activation, problem.routing.present()))
      names.append(names.empty() ? "" : ", ").append(kernel.name(layout.codes, activation));
  }
  return names;
}

/// Why this kernel serves, and which one would if all computed right.
void append_choice(std::string& text, const GemmPlan& plan, const GemmProblem& problem,
                   const PlanRules& rules) {
  const ProductKernel& kernel = *plan.kernel;
  const KernelHealth well;
  GemmProblem usual = problem;
  usual.row_invariant = false;
  const int64_t m = problem_size(problem);
  const auto meant = choose_product_kernel(usual, m, rules, KernelHealth::Reader(well));
  if (meant.ok() && meant.value() != &kernel) {
    const std::string_view refused = meant.value()->name(weights_of(problem).layout.codes,
                                                         activation_of(*meant.value(), problem));
    append(text, "instead_of: %.*s\n", static_cast<int>(refused.size()), refused.data());
  }
  if (const std::string bad = rules.health.bad_ones(); !bad.empty())
    text += "unusable_here: " + bad + "\n";
  if (!rules.forced.empty()) {
    text += "why: METAL_MARLIN_KERNEL asks for it\n";
  } else if (kernel.shares_tiles()) {
    append(
        text,
        "why: of the tiles that this device computes right, it is estimated to be fastest: %" PRId64
        " us\n",
        estimated_ns(kernel, problem, std::max<int64_t>(m, 1), rules.device) / 1000);
  } else {
    append(text, "why: first kernel that computes right on this device for %s and M from %" PRId64,
           problem.row_invariant ? "these types, in the order of M = 1," : "these types",
           kernel.m_min);
    if (kernel.m_max != 0 && !problem.row_invariant) append(text, " to %" PRId64, kernel.m_max);
    text += '\n';
  }
}

/// In which form A is multiplied.
std::string activations_text(const GemmPlan& plan, const GemmProblem& problem) {
  if (plan.activation == ActivationKind::i8)
    return std::string(activation_group_text(problem.activation_group)) + ", quantized first";
  if (plan.activation == ActivationKind::e4m3) return "e4m3, rounded first";
  if (problem.compute == MARLIN_COMPUTE_FP8) return "e4m3, rounded first and kept as bf16";
  return plan.prepared ? "as given, gathered first" : "as given";
}

/// Who sorts routed rows.
const char* sorter_of(Routes routes) {
  if (routes == Routes::by_groups) return "by each threadgroup";
  return routes == Routes::in_launch ? "by a threadgroup of the product" : "on the device";
}

/// The launches of a product alone. Those of one call may have prepared activations in common.
int64_t launches(const GemmPlan& plan, const GemmProblem& problem) {
  const int64_t rows = product_rows(problem, std::max<int64_t>(problem_size(problem), 1));
  const int64_t of_block = 1 + int64_t{plan.routes == Routes::before} +
                           int64_t{plan.dispatches(plan.gathers)} +
                           int64_t{plan.dispatches(plan.sums_groups)} + int64_t{plan.partial};
  const int64_t prepares = plan.prepared && !plan.gathers
                               ? ceil_div(std::max<int64_t>(problem.a.rows, 1), plan.prepare_block)
                               : 0;
  return ceil_div(rows, plan.m_block) * of_block + prepares + int64_t{plan.kernel->expands()};
}

}  // namespace

void append_limits(std::string& text, const device::Kernel& kernel) {
  append(text, "pipeline: up to %u threads in simdgroups of %u, %u bytes of threadgroup memory\n",
         kernel.max_threads(), kernel.simd_width(), kernel.threadgroup_bytes());
}

std::string explain_gemm(const GemmPlan& plan, const GemmProblem& problem, const PlanRules& rules) {
  const GpuWeights& weights = weights_of(problem);
  const RowBlockLayout& layout = weights.layout;
  const ProductKernel& kernel = *plan.kernel;
  const std::string_view name = kernel.name(layout.codes, plan.activation);
  std::string text;
  append(text, "kernel: %.*s\n", static_cast<int>(name.size()), name.data());
  append(text, "device: %s (%s)\n", rules.device.name.c_str(), rules.device.architecture.c_str());
  append(text, "tile: %" PRId64 " rows x %" PRId64 " columns\n", kernel.rows, kernel.columns);
  const device::Size3 grid = plan.grid(plan.m_block, layout.n);
  append(text, "grid: %u x %u x %u threadgroups of %u%s\n", grid.x, grid.y, grid.z, plan.threads(),
         plan.groups != 0 ? ", which take tiles in turn" : "");
  append(text, "k_splits: %" PRId64 " of %" PRId64 " blocks of %d\n", plan.splits,
         plan.split_blocks, kBlockSlots);
  append(text, "m_block: %" PRId64 "\n", plan.m_block);
  if (plan.items != 0)
    append(text,
           "experts: %zu, %" PRId64 " a token, sorted %s into up to %" PRId64 " tiles of rows\n",
           problem.routing.stack->size(), problem.routing.ids.cols, sorter_of(plan.routes),
           plan.items);
  append(text, "launches: %" PRId64 "\n", launches(plan, problem));
  append(text, "activations: %s\n", activations_text(plan, problem).c_str());
  if (plan.sums_groups)
    text += "additive_zeros: a product of their own, by sums of A over groups, which come first\n";
  const char* rounding = "";
  if (problem.compute == MARLIN_COMPUTE_W16) rounding = ", not rounded: that gains nothing here";
  if (kernel.rounds) rounding = ", rounded to 16 bits";
  if (kernel.expands()) rounding = ", rounded to 16 bits by a launch of its own";
  append(text, "weights: %s%s\n", layout.sparse() ? "2:4 sparse" : "dense", rounding);
  append(text, "weight_bytes: %" PRIu64 "\n", weights.bytes());
  append(text, "slot_group: %d\n", layout.slot_group);
  if (layout.permuted)
    append(text, "act_order: columns of A are put into the weights' order first\n");
  append(text, "scratch_bytes: %" PRIu64 "\n", plan.scratch_bytes());
  append(text, "probe: %s\n", probe_text(plan.health));
  if (problem.row_invariant)
    text += "row_invariant: the same bits for any M, by " + names_of_order(problem, rules) + "\n";
  append_choice(text, plan, problem, rules);
  return text;
}

}  // namespace metal_marlin::gpu
