#include "backends/gpu/plan.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>

#include "backends/gpu/choice.h"
#include "base/checked.h"
#include "core/plan.h"
#include "formats/codecs.h"
#include "formats/format_table.h"

namespace metal_marlin::gpu {
namespace {

/// A part of K shorter than this many blocks does not pay for its partial sums.
constexpr int64_t kLeastSplitBlocks = 8;
constexpr int64_t kMostSplits = 8;
/// Scratch for partial sums stays below this for any M: rows are multiplied a block at a time.
constexpr int64_t kPartialBudget = 64 << 20;
/// The same of kernels that share tiles, whose devices have tens of GB: a product of experts is one
/// launch up to so many bytes of results, which `finish` adds up.
constexpr int64_t kTilePartialBudget = 512 << 20;

/// Of slow_seconds: multiply-adds and bytes a second. An M1 has 1,300 and 68 GB/s on paper, and the
/// oldest iPhone with simdgroup matrices about half of that.
constexpr double kSlowMultiplyAdds = 100e9, kSlowBytes = 10e9;

/// Rows of a product that are multiplied within so many seconds on a slow GPU; at least 1.
int64_t rows_within(double seconds, const RowBlockLayout& layout) {
  if (seconds == 0) return kMostRows;
  const double row = static_cast<double>(layout.n) * static_cast<double>(layout.slots);
  return static_cast<int64_t>(
      std::clamp(seconds * kSlowMultiplyAdds / row, 1.0, static_cast<double>(kMostRows)));
}

int64_t activation_element(ActivationKind kind) {
  if (kind == ActivationKind::f32) return 4;
  return are_bytes(kind) ? 1 : 2;
}

/// Whether the experts' weights are where one dispatch finds them all.
Status check_experts(const GemmProblem& problem) {
  const ExpertStack& stack = *problem.routing.stack;
  if (stack.size() > kMostExperts)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "%zu experts: this backend takes up to %d in one product", stack.size(),
                         kMostExperts);
  const bool in_reach = stack.size() == 1 || weights_of(problem).expert_stride != 0;
  if (in_reach && stack.has_one_plan()) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "the packed layouts of the experts differ, as act-order can make them do; "
                       "this backend multiplies experts of one layout in one product");
}

Status check_compute(const GemmProblem& problem, const Policy& policy) {
  if (problem.compute != MARLIN_COMPUTE_FP8) return {};
  if (!policy.rounds_to_e4m3)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "compute %d: this device offers MARLIN_COMPUTE_DEFAULT, _INT8 and _W16",
                         problem.compute);
  const KernelCodes codes = weights_of(problem).layout.codes;
  if (codes == KernelCodes::fp4 || codes == KernelCodes::fp4_sparse || codes == KernelCodes::e4m3)
    return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "compute %d: MARLIN_COMPUTE_FP8 takes FP4, MXFP4, NVFP4 and FP8 weights, "
                       "these are %s",
                       problem.compute, format_name(problem.weights->meta().format));
}

Status check_device(const GemmProblem& problem, const device::Capabilities& device) {
  const bool bf16 = problem.a.dtype == MARLIN_BF16 || problem.c.dtype == MARLIN_BF16 ||
                    problem.bias.dtype == MARLIN_BF16;
  if (bf16 && !device.bfloat)
    return Status::error(MARLIN_E_UNSUPPORTED, "BF16: %s does not know it", device.name.c_str());
  return {};
}

/// The tiles that K is split for, and teams share. Those of a row-invariant product are of one row,
/// whatever M is: parts of K decide in which order the products of an element are added.
int64_t tiles_to_split_for(const ProductKernel& kernel, const GemmProblem& problem, int64_t m) {
  const int64_t n = weights_of(problem).layout.n;
  if (kernel.shares_tiles()) return 1;
  if (problem.row_invariant) return tile_count(kernel, 1, n);
  return std::max(expected_tiles(kernel, problem, m),
                  tile_count(kernel, product_rows(problem, m), n));
}

/// The blocks of K of each part, with up to m rows of A of a product of `tiles` tiles.
int64_t split_blocks(const ProductKernel& kernel, const RowBlockLayout& layout, int64_t m,
                     int64_t tiles) {
  const int64_t blocks = block_count(static_cast<marlin_int>(layout.slots));
  if (kernel.shares_tiles() || kernel.wide_threads != 0) return blocks;
  int64_t parts =
      std::clamp<int64_t>(kernel.groups_wanted / tiles, 1,
                          std::clamp<int64_t>(blocks / kLeastSplitBlocks, 1, kMostSplits));
  if (kernel.activation_bytes != 0) {
    const int64_t most = kernel.activation_bytes / (std::min(m, kernel.rows) * 2 * kBlockSlots);
    parts = std::max(parts, ceil_div(blocks, most));
  }
  return ceil_div(blocks, parts);
}

/// Threadgroups along x that take tiles in turn. With routing, all items have them in common.
int64_t groups_in_turn(const GemmPlan& plan, const RowBlockLayout& layout,
                       const device::Capabilities& device) {
  const ProductKernel& kernel = *plan.kernel;
  const int64_t at_once = std::max<int64_t>(device.multiprocessors, 1);
  if (kernel.has_ring()) {
    const int64_t tiles = ceil_div(layout.n, kernel.columns) * std::max<int64_t>(plan.items, 1);
    return std::min(tiles, std::max(at_once / plan.splits, int64_t{1}));
  }
  if (!kernel.shares_tiles()) return 0;
  const int64_t shares = ceil_div(layout.slots, kLeastSharedSlots);
  const int64_t makers = std::max<int64_t>(at_once / kernel.groups_of_tile, 1);
  const int64_t tiles = tile_count(kernel, plan.m_block, layout.n);
  const int64_t whole = plan.items == 0 ? groups_of_whole_tiles(kernel, layout, tiles, device) : 0;
  return (whole != 0 ? whole : std::min(tiles * shares, makers)) * kernel.groups_of_tile;
}

/// How many warps share a row block, as a logarithm: so that the threadgroup with the most to do
/// takes the least time. Warps take `halves` row blocks in a turn, a gate's and an up's. The end of
/// a row block, where the warps meet, takes as long as (kEnd + warps / 4) / 2 chunks. (Fitted to
/// products of one H200 with M = 1 to 8.)
uint8_t team_shift(const GemmPlan& plan, const RowBlockLayout& layout, int64_t tiles,
                   int64_t halves) {
  if (!plan.kernel->has_ring()) return 0;
  constexpr int kEnd = 4, kLeastShift = 2, kMostShift = 4;
  const int64_t unit = layout.group_shift_constant() == kLongGroupShift ? 2 : 1;
  const int64_t chunks = std::min(plan.split_blocks * kBlockSlots, layout.slots) / kMmaSlots;
  int best = kMostShift;
  int64_t least = INT64_MAX;
  for (int shift = kMostShift; shift >= kLeastShift; --shift) {
    const int64_t warps = int64_t{1} << shift, teams = plan.kernel->threads / kLanes / warps;
    const int64_t turns = ceil_div(ceil_div(tiles, halves), plan.groups * teams) * halves;
    const int64_t part = ceil_div(ceil_div(chunks, unit), warps) * unit;
    const int64_t time = turns * (2 * part + kEnd + warps / 4);
    if (time <= least) best = shift;
    least = std::min(least, time);
  }
  return static_cast<uint8_t>(best);
}

/// How many values of a product's partial sums there are for each column: those of all parts of K.
/// For experts this grows with the rows, although more rows mean fewer parts, so that what is
/// reserved for many tokens serves fewer.
int64_t partial_rows(const GemmPlan& plan, int64_t n) {
  const ProductKernel& kernel = *plan.kernel;
  if (plan.routes == Routes::none || kernel.shares_tiles() || kernel.wide_threads != 0)
    return plan.splits * plan.m_block;
  const int64_t most = kernel.groups_wanted * kernel.rows * kernel.columns / n;
  return std::max(
      {plan.m_block, plan.splits * plan.m_block, std::min(kMostSplits * plan.m_block, most)});
}

/// The values of T up to max_m for which kernels are chosen. Scratch of one kernel grows with T.
std::vector<int64_t> route_breakpoints(const GemmProblem& problem, int64_t max_m) {
  std::vector<int64_t> tokens;
  for (int64_t t = 1; t < max_m; t = size_of_choice(problem, t + 1)) tokens.push_back(t);
  tokens.push_back(max_m);
  return tokens;
}

/// Whether a kernel makes C of whole sums itself. A token's rows are added up by `finish`. Gate
/// rows and up rows that are apart must be whole row blocks.
bool finishes(const ProductKernel& kernel, const GemmProblem& problem) {
  const bool combines = is_two_input(problem.epilogue), routed = problem.routing.present();
  if (!combines && !routed) return true;
  if (kernel.schedule == Schedule::one_tile || problem.routing.scales.present()) return false;
  return !combines || interleaves(problem) || weights_of(problem).layout.n % (2 * kRowBlock) == 0;
}

/// Tiles that the routed rows of a block make, however they are spread over the experts.
int64_t most_items(int64_t routed_rows, int64_t tile_rows, size_t experts) {
  const int64_t with_rows = std::min(static_cast<int64_t>(experts), routed_rows);
  return with_rows + (routed_rows - with_rows) / tile_rows;
}

/// The bytes of a table of routes in the shared memory of a threadgroup that sorts.
int64_t own_table_bytes_of(const GemmPlan& plan) {
  return own_table_bytes(static_cast<marlin_int>(plan.items),
                         static_cast<marlin_int>(plan.m_block));
}

/// Who sorts the routed rows of a block of a plan that has items.
Routes routes_of(const GemmPlan& plan, const GemmProblem& problem) {
  const SortedRows sorts = plan.kernel->sorts_of(weights_of(problem).layout);
  const bool has_room = problem.routing.stack->size() <= kMostOwnExperts &&
                        own_table_bytes_of(plan) <= kOwnTableBytes;
  const bool by_groups = plan.m_block <= kFewRoutedRows ? sorts != SortedRows::none
                                                        : sorts == SortedRows::many && has_room;
  if (by_groups && !plan.gathers) return Routes::by_groups;
  return plan.kernel->shares_tiles() ? Routes::in_launch : Routes::before;
}

/// The rows of A of experts for which a ring has room in shared memory.
int64_t ring_rows(const GemmPlan& plan, const RowBlockLayout& layout) {
  const int64_t slots = std::min(plan.split_blocks * kBlockSlots, layout.slots);
  const int64_t table = plan.routes == Routes::by_groups ? own_table_bytes_of(plan) : 0;
  return std::max(
      (plan.kernel->activation_bytes - table) / ring_pitch(static_cast<marlin_int>(slots)),
      plan.kernel->rows);
}

/// Rows of A or, of experts, routed rows of whole tokens, of one dispatch.
int64_t rows_of_block(const GemmPlan& plan, const GemmProblem& problem, int64_t all_rows,
                      const device::Capabilities& device, int64_t most) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  most = std::min(most, rows_within(device.submission_seconds, layout));
  const int64_t budget = plan.kernel->shares_tiles() ? kTilePartialBudget : kPartialBudget;
  if (plan.partial) most = std::min(most, budget / 4 / plan.splits / layout.n);
  const int64_t unit = problem.routing.present() ? problem.routing.ids.cols : plan.kernel->rows;
  return std::min(all_rows, std::max(most / unit, int64_t{1}) * unit);
}

/// Sets the bytes of scratch of a plan that is complete but for them.
Status add_scratch(GemmPlan& plan, const GemmProblem& problem, int64_t prepared_rows,
                   const device::Capabilities& device) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  const Checked rows(prepared_rows), m_block(plan.m_block);
  Checked all;
  const auto area = [&](Checked bytes) {
    all = all + bytes.round_up(kScratchAlign);
    return bytes.round_up(kScratchAlign).get().value_or(0);
  };
  if (plan.prepared)
    plan.activation_bytes = area(rows * layout.slots * activation_element(plan.activation));
  if (are_bytes(plan.activation))
    plan.activation_scale_bytes = area(rows * (layout.slots / kActivationBlock * 4));
  if (plan.partial) plan.partial_bytes = area(Checked(partial_rows(plan, layout.n)) * layout.n * 4);
  // A threadgroup hands its part of one tile to another. The same bytes for any kernel let any
  // serve a lower M.
  if (plan.kernel->shares_tiles())
    plan.shared_bytes = area(Checked(device.multiprocessors) * (kLargestSharedTile * 4));
  if (plan.routes != Routes::none)
    plan.route_bytes = area((Checked(plan.items + 1) * int{kRouteItem} + m_block * 3) * 4);
  if (plan.kernel->expands()) plan.expanded_bytes = area(Checked(layout.halves_bytes()));
  if (plan.sums_groups)  // two numbers each
    plan.group_sum_bytes =
        area((m_block + kSumsAtOnce) * (slots_of_sums(layout) / layout.slot_group) * 8);
  // A quarter: the parts of several products are added up.
  if (all.at_most(UINT64_MAX / 4)) return {};
  return Status::error(MARLIN_E_MEMORY,
                       "%" PRId64 " rows of %" PRId64
                       " prepared activations do not fit the address space",
                       prepared_rows, layout.slots);
}

}  // namespace

const GpuWeights& weights_of(const GemmProblem& problem) {
  return static_cast<const GpuWeights&>(*problem.weights);
}

bool interleaves(const GemmProblem& problem) {
  return is_two_input(problem.epilogue) && weights_of(problem).meta().gate_up_interleaved;
}

int64_t product_rows(const GemmProblem& problem, int64_t m) {
  return problem.routing.present() ? m * problem.routing.ids.cols : m;
}

int64_t rows_of_a(const GemmProblem& problem) {
  return problem.a.rows == problem.routing.ids.rows ? problem.routing.ids.cols : 1;
}

int64_t slots_of_sums(const RowBlockLayout& layout) {
  return round_up(layout.slots, kSumsAtOnce * layout.slot_group);
}

double slow_seconds(double multiply_adds, double bytes) {
  return std::max(multiply_adds / kSlowMultiplyAdds, bytes / kSlowBytes);
}

double slow_seconds(const GemmProblem& problem, int64_t rows) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  const size_t experts = problem.routing.present() ? problem.routing.stack->size() : 1;
  const double row = static_cast<double>(layout.n) * static_cast<double>(layout.slots);
  return slow_seconds(static_cast<double>(rows) * row,
                      static_cast<double>(experts) * static_cast<double>(layout.bytes));
}

int64_t problem_size(const GemmProblem& problem) {
  return problem.routing.present() ? problem.routing.ids.rows : problem.a.rows;
}

Decoder decoder_of(const ProductKernel& kernel, ActivationKind activation,
                   const RowBlockLayout& layout) {
  return {kernel.name(layout.codes, activation), layout.scale_constant(), layout.zero_constant(),
          layout.group_shift_constant(), layout.code_form};
}

KernelHealth::State KernelHealth::Reader::of(const Decoder& decoder) const {
  const auto found = states_.find(decoder);
  return found == states_.end() ? unknown : found->second;
}

void KernelHealth::set(const Decoder& decoder, State state) {
  const std::lock_guard lock(mutex_);
  states_[decoder] = state;
}

std::string KernelHealth::bad_ones() const {
  const std::lock_guard lock(mutex_);
  std::string names;
  std::string_view last;
  for (const auto& [decoder, state] : states_) {  // sorted by name
    if (state != bad || decoder.kernel == last) continue;
    names.append(names.empty() ? "" : ", ").append(decoder.kernel);
    last = decoder.kernel;
  }
  return names;
}

device::Size3 GemmPlan::grid(int64_t rows, int64_t n) const {
  const int64_t x = groups != 0 ? groups : ceil_div(n, kernel->columns);
  const int64_t tiles = items != 0 ? items : ceil_div(rows, kernel->rows);
  const bool all = kernel->shares_tiles() || (kernel->has_ring() && items != 0);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(all ? 1 : tiles),
          static_cast<uint32_t>(splits)};
}

Result<GemmPlan> plan_with(const ProductKernel& kernel, const GemmProblem& problem, int64_t m,
                           const device::Capabilities& device, int64_t most_rows) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  const bool routed = problem.routing.present();
  m = std::max<int64_t>(m, 1);
  const int64_t all_rows = product_rows(problem, m);
  GemmPlan plan;
  plan.kernel = &kernel;
  plan.activation = activation_of(kernel, problem);
  plan.gathers = routed && (layout.permuted || !kernel.finds_rows(layout));
  plan.prepared = plan.activation == ActivationKind::i8 || problem.compute == MARLIN_COMPUTE_FP8 ||
                  layout.permuted || plan.gathers;
  plan.sums_groups =
      kernel.shares_tiles() && layout.zero_kind == ZeroKind::additive && !kernel.rounds;

  const int64_t tiles = tiles_to_split_for(kernel, problem, m);
  plan.wide = kernel.wide_threads != 0 && kernel.groups_wanted / tiles > 1;
  plan.split_blocks = split_blocks(kernel, layout, all_rows, tiles);
  plan.splits = ceil_div(block_count(static_cast<marlin_int>(layout.slots)), plan.split_blocks);
  plan.partial = plan.splits > 1 || !finishes(kernel, problem);
  plan.m_block = rows_of_block(plan, problem, all_rows, device, most_rows);
  if (routed) {
    plan.items = most_items(plan.m_block, kernel.rows, problem.routing.stack->size());
    plan.routes = routes_of(plan, problem);
    if (kernel.has_ring()) plan.ring_rows = ring_rows(plan, layout);
  }
  int64_t prepared_rows =
      routed && problem.routing.ids.rows > 0 ? all_rows / rows_of_a(problem) : all_rows;
  if (plan.gathers) prepared_rows = plan.m_block;
  plan.prepare_block = std::min(prepared_rows, most_rows);
  plan.groups = groups_in_turn(plan, layout, device);
  const bool pairs = is_two_input(problem.epilogue) && !plan.partial && !interleaves(problem);
  plan.team_shift = team_shift(plan, layout, tiles, pairs ? 2 : 1);
  MARLIN_RETURN_IF_ERROR(add_scratch(plan, problem, prepared_rows, device));
  return plan;
}

Result<GemmPlan> plan_gemm(const GemmProblem& problem, int64_t m, const PlanRules& rules) {
  MARLIN_RETURN_IF_ERROR(check_compute(problem, rules.policy));
  MARLIN_RETURN_IF_ERROR(check_device(problem, rules.device));
  if (problem.routing.present()) MARLIN_RETURN_IF_ERROR(check_experts(problem));
  const KernelHealth::Reader health(rules.health);
  MARLIN_ASSIGN(const ProductKernel* const kernel,
                choose_product_kernel(problem, m, rules, health));
  MARLIN_ASSIGN(GemmPlan plan, plan_with(*kernel, problem, m, rules.device, rules.most_rows));
  plan.health = health.of(decoder_of(*kernel, plan.activation, weights_of(problem).layout));
  return plan;
}

Result<std::vector<int64_t>> plan_breakpoints(const GemmProblem& problem, int64_t max_m,
                                              const PlanRules& rules) {
  if (problem.routing.present()) return route_breakpoints(problem, max_m);
  std::vector<int64_t> edges = {1, max_m};
  // Kernels that share tiles are chosen anew where the number of tiles changes.
  if (std::ranges::any_of(rules.policy.kernels, &ProductKernel::shares_tiles))
    for (int64_t m = kLeastTileRows; m <= std::min(max_m, kMostTileEdges); m += kLeastTileRows)
      edges.push_back(m);
  if (problem.compute == MARLIN_COMPUTE_W16 &&
      std::ranges::any_of(rules.policy.kernels, &ProductKernel::expands))
    for (int64_t m = kMostTileEdges; m < max_m; m = size_of_choice(problem, m + 1))
      edges.insert(edges.end(), {m, m + 1});
  for (const ProductKernel& kernel : rules.policy.kernels)
    for (const int64_t m : {kernel.m_min - 1, kernel.m_min, kernel.m_max, kernel.m_max + 1})
      if (m >= 1 && m <= max_m) edges.push_back(m);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  // Between two edges one kernel serves. There scratch grows with M but where more tiles of rows
  // mean fewer splits of K, which ends with groups_wanted: those few values of M are told too.
  std::vector<int64_t> rows = edges;
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    MARLIN_ASSIGN(const GemmPlan plan, plan_gemm(problem, edges[i], rules));
    const int64_t tile = plan.kernel->rows;
    for (int64_t m = ceil_div(edges[i], tile) * tile; m < edges[i + 1]; m += tile) {
      rows.push_back(m);
      if (tile_count(*plan.kernel, m, weights_of(problem).layout.n) > plan.kernel->groups_wanted)
        break;
    }
  }
  return rows;
}

}  // namespace metal_marlin::gpu
