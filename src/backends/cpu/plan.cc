#include "backends/cpu/plan.h"

#include <algorithm>
#include <array>
#include <cinttypes>

#include "backends/cpu/epilogue.h"
#include "backends/cpu/kernels.h"
#include "core/plan.h"

namespace metal_marlin::cpu {
namespace {

/// Activations of one block of rows stay well inside a last-level cache, and scratch stays bounded
/// for any M.
constexpr int64_t kActivationBudget = 8 << 20;
constexpr int64_t kOutputBudget = 32 << 20;

/// A product of few panels is cut along K, too, so that it has as many pieces as this; none is
/// shorter than so many superblocks (25 KB or more), which take about as long to read as a piece
/// costs to hand out. By the shape alone: sums of a row depend on how K is cut, and must not depend
/// on the number of threads.
constexpr int64_t kFewPieces = 16, kShortestPiece = 6;

const CpuWeights& weights_of(const GemmProblem& problem) {
  return static_cast<const CpuWeights&>(*problem.weights);
}

/// What a product asks of a kernel, for any M.
struct Demands {
  Demands(const GemmProblem& problem, const CpuWeights& weights, const PlanRules& rules)
      : code(weights.layout.sparse ? sparse(code_kind(weights)) : bit(code_kind(weights))),
        scale(bit(weights.layout.scale_type)),
        slot_group(weights.layout.slot_group),
        expands(weights.layout.expansion != Expansion::none),
        int8(problem.compute == MARLIN_COMPUTE_INT8 && !is_real(code_kind(weights))),
        bf16(problem.a.dtype == MARLIN_BF16),
        fast(rules.forced.empty() ? rules.features.bits : ~0u),
        portable_only(weights.layout.k < kBlockSlots && rules.forced.empty()) {}

  bool met_by(const KernelRow& row) const {
    return (row.codes & code) != 0 && (row.scales & scale) != 0 &&
           slot_group >= row.slot_group_min && (!expands || row.expands) &&
           (row.form == ActivationForm::int8) == int8 && (!row.bf16_only || bf16) &&
           (row.gains_with & ~fast) == 0 && (!portable_only || row.features == 0);
  }
  KernelCandidate candidate(const KernelRow& row) const {
    return {row.name, row.features, row.m_min, row.m_max, met_by(row)};
  }

  uint32_t code, scale;
  int slot_group;
  bool expands, int8, bf16;
  uint32_t fast;  ///< of Feature: a kernel that gains only with others is slower than its rivals
  /// Kernels that scale partial sums round a term once more than the contract's gamma_K counts;
  /// that shows when K is 1 or 2.
  bool portable_only;
};

int64_t pair_sum_columns(const CpuWeights& weights) {
  return weights.layout.panels() * kPanelColumns;
}

/// Most rows that are prepared at a time: all, unless that would need much memory.
int64_t rows_at_a_time(const KernelRow& row, const GemmProblem& problem) {
  const CpuWeights& weights = weights_of(problem);
  const int64_t unit = row_unit(row);
  const int64_t bytes_per_row =
      static_cast<int64_t>(activation_layout(row, weights, unit).bytes()) / unit;
  int64_t rows = kActivationBudget / std::max<int64_t>(1, bytes_per_row);
  if (is_two_input(problem.epilogue))
    rows = std::min(rows, kOutputBudget / (pair_sum_columns(weights) * 4));
  return std::max(unit, rows / unit * unit);
}

int64_t parts_of_k(const PanelLayout& layout) {
  return std::max<int64_t>(
      1, std::min(ceil_div(kFewPieces, layout.panels()), layout.superblocks() / kShortestPiece));
}

Status check_compute(const GemmProblem& problem) {
  if (problem.compute != MARLIN_COMPUTE_FP8) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "compute %d: the CPU offers MARLIN_COMPUTE_DEFAULT, _INT8 and _W16",
                       problem.compute);
}

Result<const KernelRow*> choose_row(const Demands& demands, int64_t m, const PlanRules& rules) {
  // The common case needs no list of all candidates.
  if (rules.forced.empty())
    for (const KernelRow& row : kernel_rows())
      if (may_run(demands.candidate(row), rules.features.bits, m)) return &row;
  std::array<KernelCandidate, kKernelCount> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = demands.candidate(kernel_rows()[i]);
  MARLIN_ASSIGN(const size_t index, choose_kernel(all, rules.features.bits, m, rules.forced));
  return &kernel_rows()[index];
}

/// Of the kernels that add in the order of the kernel for a single row, the first for m rows. If
/// none takes so many rows, the kernel for a single row does.
Result<const KernelRow*> choose_row_of_order(const Demands& demands, int64_t m,
                                             const PlanRules& rules) {
  MARLIN_ASSIGN(const KernelRow* const lone, choose_row(demands, 1, rules));
  if (lone->order == AddOrder::own || !rules.forced.empty()) return lone;
  for (const KernelRow& row : kernel_rows())
    if (row.order == lone->order && may_run(demands.candidate(row), rules.features.bits, m))
      return &row;
  return lone;
}

Result<GemmPlan> plan_with(const Demands& demands, const GemmProblem& problem, int64_t m,
                           const PlanRules& rules) {
  const CpuWeights& weights = weights_of(problem);
  m = std::max<int64_t>(m, 1);
  GemmPlan plan;
  MARLIN_ASSIGN(plan.row, problem.row_invariant ? choose_row_of_order(demands, m, rules)
                                                : choose_row(demands, m, rules));
  // Rows of one tile have parts of K; more rows are pieces enough. A row-invariant product has them
  // for any M, and then multiplies a tile at a time.
  const int64_t parts = parts_of_k(weights.layout);
  const bool tile_by_tile = problem.row_invariant && parts > 1;
  const int64_t unit = tile_by_tile ? plan.row->tile_rows : row_unit(*plan.row);
  const int64_t most = tile_by_tile ? unit : rows_at_a_time(*plan.row, problem);
  const int64_t blocks = ceil_div(m, most);
  plan.m_block = std::min(m, round_up(ceil_div(m, blocks), unit));
  // Memory for the most unfavorable M up to m, so that what is reserved for one M serves every
  // smaller one.
  const int64_t rows = std::min(m, most), capacity = rows <= 4 ? rows : round_up(rows, unit);
  plan.activation_bytes = activation_layout(*plan.row, weights, capacity).bytes();
  if (is_two_input(problem.epilogue))
    plan.output_bytes = static_cast<uint64_t>(rows * pair_sum_columns(weights)) * 4;
  const ActivationLayout layout =
      activation_layout(*plan.row, weights, tile_by_tile ? plan.m_block : m);
  if (layout.tiles == 1) plan.k_parts = parts;
  if (plan.k_parts > 1)
    plan.part_bytes =
        static_cast<uint64_t>(plan.k_parts * layout.tile_rows * pair_sum_columns(weights)) * 4;
  return plan;
}

/// The lines of a row-invariant product: the kernels of its order, and the one that would run
/// without the promise.
std::string explain_row_invariant(const KernelRow& row, const Demands& demands, int64_t m,
                                  const PlanRules& rules) {
  std::string text = "row_invariant: the same bits for any M, by";
  const KernelRow* before = nullptr;
  for (int64_t from = 1; from != 0;) {
    const auto found = choose_row_of_order(demands, from, rules);
    if (!found.ok()) break;
    if (found.value() != before)
      append(text, "%s %.*s from M = %" PRId64, before != nullptr ? "," : "",
             static_cast<int>(found.value()->name.size()), found.value()->name.data(), from);
    before = found.value();
    int64_t next = 0;  // where another kernel may begin
    for (const KernelRow& other : kernel_rows())
      if (other.m_min > from && (next == 0 || other.m_min < next)) next = other.m_min;
    from = next;
  }
  text += '\n';
  const auto usual = choose_row(demands, std::max<int64_t>(m, 1), rules);
  if (usual.ok() && usual.value() != &row)
    append(text, "instead_of: %.*s\n", static_cast<int>(usual.value()->name.size()),
           usual.value()->name.data());
  return text;
}

const char* form_text(ActivationForm form, const GemmProblem& problem) {
  switch (form) {
    case ActivationForm::int8:
      return activation_group_text(problem.activation_group);
    case ActivationForm::bf16:
      return "bf16 as given";
    case ActivationForm::bf16x3:
      return "three bf16 that add up to each float, exact";
    case ActivationForm::f32:
      return "f32, exact";
  }
  return "";
}

}  // namespace

uint64_t GemmPlan::bytes() const {
  return aligned(activation_bytes) + aligned(output_bytes) + aligned(part_bytes);
}

Result<GemmPlan> plan_gemm(const GemmProblem& problem, int64_t m, const PlanRules& rules) {
  MARLIN_RETURN_IF_ERROR(check_compute(problem));
  return plan_with(Demands(problem, weights_of(problem), rules), problem, m, rules);
}

Result<GemmPlan> largest_plan(const GemmProblem& problem, int64_t max_m, const PlanRules& rules) {
  // Within one kernel's range of M more rows never need less, but for parts of K, which one tile
  // alone has: the ends of the ranges and of the first tile suffice.
  MARLIN_RETURN_IF_ERROR(check_compute(problem));
  const Demands demands(problem, weights_of(problem), rules);
  MARLIN_ASSIGN(GemmPlan largest, plan_with(demands, problem, max_m, rules));
  const auto try_rows = [&](int64_t m) -> Status {
    if (m < 1 || m >= max_m) return {};
    MARLIN_ASSIGN(const GemmPlan plan, plan_with(demands, problem, m, rules));
    if (plan.bytes() > largest.bytes()) largest = plan;
    return {};
  };
  for (const KernelRow& row : kernel_rows()) {
    if (!demands.met_by(row)) continue;
    for (const int64_t m : {row.m_min - 1, row.m_max, int64_t{row.tile_rows}})
      MARLIN_RETURN_IF_ERROR(try_rows(m));
  }
  return largest;
}

std::string explain_gemm(const GemmPlan& plan, const GemmProblem& problem, const PlanRules& rules) {
  const CpuWeights& weights = weights_of(problem);
  const KernelRow& row = *plan.row;
  const ActivationLayout layout = activation_layout(row, weights, plan.m_block);
  std::string text;
  append(text, "kernel: %.*s\n", static_cast<int>(row.name.size()), row.name.data());
  if (problem.compute == MARLIN_COMPUTE_W16)
    text += "weights: not rounded to 16 bits, which gains nothing here\n";
  append(text, "isa: %s\n", rules.features.name.c_str());
  append(text, "tile: %d rows x %d columns\n", layout.tile_rows, kPanelColumns);
  append(text, "m_block: %" PRId64 "\n", plan.m_block);
  append(text, "k_chunk: %" PRId64 "\n",
         std::min<int64_t>(layout.chunk_blocks, layout.blocks) * kBlockSlots);
  if (plan.k_parts > 1) append(text, "k_parts: %" PRId64 "\n", plan.k_parts);
  append(text, "activations: %s\n", form_text(row.form, problem));
  append(text, "weights: %s\n", weights.layout.sparse ? "2:4 sparse" : "dense");
  append(text, "weight_bytes: %" PRIu64 "\n", weights.bytes());
  append(text, "slot_group: %d\n", weights.layout.slot_group);
  if (!weights.slot_to_k.empty())
    append(text, "act_order: columns of A are gathered while they are prepared\n");
  append(text, "scratch_bytes: %" PRIu64 "\n",
         plan.activation_bytes + plan.output_bytes + plan.part_bytes);
  if (problem.row_invariant)
    text += explain_row_invariant(row, Demands(problem, weights, rules), problem.a.rows, rules);
  append(text, "why: first kernel that this processor has for %s and M from %" PRId64,
         problem.row_invariant ? "these types, in the order of M = 1," : "these types", row.m_min);
  if (row.m_max != 0 && !problem.row_invariant) append(text, " to %" PRId64, row.m_max);
  text += '\n';
  return text;
}

}  // namespace metal_marlin::cpu
