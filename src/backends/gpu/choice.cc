#include "backends/gpu/choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cinttypes>
#include <cmath>

#include "core/plan.h"
#include "formats/format_table.h"

namespace metal_marlin::gpu {
namespace {

/// Tokens from which on kernels that share tiles serve experts, too.
constexpr int64_t kLeastTiledTokens = 3;
/// The rows of an expert, in the mean, up to which a kernel with a ring of weights serves experts,
/// although some have more rows than its tile. (128 experts of 2880 x 2880 on an H200, 2026-11-24:
/// 4 rows take 206 us with a ring and 217 us with tiles, 6 rows 238 us and 222 us.)
constexpr double kMostRowsOfRing = 4;

/// The form of activations that kernels take, but for those of E4M3.
ActivationKind usual_activation(const GemmProblem& problem) {
  const bool real = format_row(problem.weights->meta().format)->has_real_codes();
  if (problem.compute == MARLIN_COMPUTE_INT8 && !real) return ActivationKind::i8;
  if (problem.compute == MARLIN_COMPUTE_FP8) return ActivationKind::bf16;
  if (problem.a.dtype == MARLIN_F32) return ActivationKind::f32;
  return problem.a.dtype == MARLIN_F16 ? ActivationKind::f16 : ActivationKind::bf16;
}

uint32_t available(const device::Capabilities& device) {
  return (device.matrix ? kSimdgroupMatrix : 0u) | (device.bfloat ? kBfloat : 0u) |
         (device.tensor ? kTensor : 0u);
}

double mean_rows(const GemmProblem& problem, int64_t tokens) {
  return static_cast<double>(product_rows(problem, tokens)) /
         static_cast<double>(problem.routing.stack->size());
}

/// Rows for which a tile should have room, so that few experts have more than one tile: three
/// standard deviations above the mean of ids that are spread at random. A token names an expert
/// once.
int64_t rows_of_expert(const GemmProblem& problem, int64_t tokens) {
  const double mean = mean_rows(problem, tokens);
  const double most = std::ceil(mean + 3 * std::sqrt(mean) + 1);
  return std::min(tokens, static_cast<int64_t>(most));
}

/// Tiles of an expert whose number of rows has a Poisson distribution of this mean: how probable it
/// is that there is a first, a second, ... (The normal distribution is near enough.)
double tiles_of_expert(double mean, double rows) {
  if (mean < 1) return -std::expm1(-mean);  // more than one tile is not likely
  const double sigma = std::sqrt(mean);
  const auto rare = static_cast<int64_t>(std::ceil((mean + 4 * sigma) / rows));
  const auto common = static_cast<int64_t>(std::max(0.0, (mean - 4 * sigma) / rows));
  auto tiles = static_cast<double>(common);  // which almost all have
  for (int64_t tile = common; tile < rare; ++tile)
    tiles +=
        0.5 * std::erfc((static_cast<double>(tile) * rows + 0.5 - mean) / (sigma * std::sqrt(2.0)));
  return tiles;
}

/// Of weights that kernels which share tiles serve.
ChunkKind chunk_kind(const RowBlockLayout& layout) {
  if (layout.codes == KernelCodes::fp4) return ChunkKind::fp4;
  if (are_floats(layout.codes)) return ChunkKind::halves;
  const bool is_long = layout.slot_group >= 128;
  if (are_bytes(layout.codes)) return is_long ? ChunkKind::i8_long : ChunkKind::i8_short;
  if (is_long) return ChunkKind::u4_long;
  return layout.slot_group == 64 ? ChunkKind::u4_64 : ChunkKind::u4_32;
}

/// Blocks of threadgroups that make a tile together, of those that the device runs at once.
int64_t blocks_of(const ProductKernel& kernel, const device::Capabilities& device) {
  return std::max<int64_t>(device.multiprocessors / kernel.groups_of_tile, 1);
}
int64_t chunk_ns_of(const ProductKernel& kernel, const RowBlockLayout& layout) {
  const ChunkKind kind = kernel.expands() ? ChunkKind::halves : chunk_kind(layout);
  return kernel.chunk_ns[static_cast<size_t>(kind)];
}
/// The time of joining the sums of tiles that blocks share.
int64_t join_ns(const ProductKernel& kernel, int64_t tiles, int64_t blocks) {
  constexpr int64_t kJoin = 2400, kJoinRow = 13, kSharerRow = 5;
  if (tiles % blocks == 0) return 0;
  const int64_t sharers = tiles < blocks ? ceil_div(blocks, tiles) : 2;
  return kJoin + kernel.rows * (kJoinRow + kSharerRow * sharers);
}

/// Whether a kernel adds in the order that a product asks for.
bool serves_order(const ProductKernel& kernel, const GemmProblem& problem) {
  return kernel.row_invariant || !problem.row_invariant;
}

/// Whether a kernel gives a product the weights that it asks for. (Those of W16 may be rounded.)
/// All experts as floats would take too much memory, and blocks look up the codes of one codebook.
bool serves_weights(const ProductKernel& kernel, const GemmProblem& problem) {
  const RowBlockLayout& layout = weights_of(problem).layout;
  if (problem.routing.present() &&
      (kernel.expands() || (kernel.rounds && layout.codes == KernelCodes::lut4)))
    return false;
  if (kernel.expands() && layout.halves_bytes() > kMostExpandedBytes) return false;
  return !kernel.rounds || problem.compute == MARLIN_COMPUTE_W16;
}

/// Whether a kernel finds rows of A that are rounded to E4M3, if they are. Of experts they are
/// rounded before they are gathered, so that tiles must find them by index.
bool serves_rounded(const ProductKernel& kernel, const GemmProblem& problem) {
  if (problem.compute != MARLIN_COMPUTE_FP8 || !problem.routing.present()) return true;
  const RowBlockLayout& layout = weights_of(problem).layout;
  return kernel.finds_rows(layout) && !(kernel.shares_tiles() && layout.permuted);
}

/// Whether a kernel serves activations that share a scale as a product's do: tiles of INT8 add up
/// whole rows before they scale. (Those of experts are scaled in shorter groups.)
bool serves_groups(const ProductKernel& kernel, const GemmProblem& problem) {
  if (usual_activation(problem) != ActivationKind::i8 || !kernel.shares_tiles()) return true;
  return problem.activation_group == kWholeRow && !problem.routing.present();
}

/// The features that a kernel needs of a device with activations of this kind.
uint32_t features_of(const ProductKernel& kernel, ActivationKind activation) {
  return kernel.features | (activation == ActivationKind::bf16 ? kBfloat : 0u);
}

/// Whether a kernel serves a problem, but for its order of additions.
bool serves(const ProductKernel& kernel, const GemmProblem& problem) {
  return kernel.takes(activation_of(kernel, problem), weights_of(problem).layout) &&
         serves_rounded(kernel, problem) && serves_weights(kernel, problem) &&
         serves_groups(kernel, problem);
}

/// The kernel that METAL_MARLIN_KERNEL names, of all there are.
Result<const ProductKernel*> forced_kernel(const GemmProblem& problem, const PlanRules& rules) {
  const ProductKernel* const kernel = product_kernel(rules.policy, rules.forced);
  KernelCandidate named;
  if (kernel != nullptr) {
    const ActivationKind activation = activation_of(*kernel, problem);
    const std::string_view own = kernel->name(weights_of(problem).layout.codes, activation);
    named = {.name = rules.forced,
             .features = features_of(*kernel, activation),
             .serves = own == rules.forced && serves(*kernel, problem)};
  }
  MARLIN_RETURN_IF_ERROR(
      choose_kernel({&named, 1}, available(rules.device), 1, rules.forced).status());
  if (!serves_order(*kernel, problem))
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "METAL_MARLIN_KERNEL asks for %.*s, which serves no product with "
                         "MARLIN_GEMM_ROW_INVARIANT",
                         static_cast<int>(rules.forced.size()), rules.forced.data());
  return kernel;
}

/// How far m is from the rows that a kernel is meant for; 0: it is one of them.
int64_t distance(const ProductKernel& kernel, int64_t m) {
  if (m < kernel.m_min) return kernel.m_min - m;
  return kernel.m_max != 0 && m > kernel.m_max ? m - kernel.m_max : 0;
}

/// Whether a kernel whose threadgroups share tiles can number its parts of K.
bool can_share(const ProductKernel& kernel, int64_t rows, const RowBlockLayout& layout) {
  return !kernel.shares_tiles() ||
         tile_count(kernel, rows, layout.n) <= INT32_MAX / ceil_div(layout.slots, kBlockSlots);
}

}  // namespace

int64_t tile_count(const ProductKernel& kernel, int64_t m, int64_t n) {
  return ceil_div(n, kernel.columns) * ceil_div(m, kernel.rows);
}

ActivationKind activation_of(const ProductKernel& kernel, const GemmProblem& problem) {
  const bool takes_bytes =
      problem.compute == MARLIN_COMPUTE_FP8 &&
      kernel.compiled_for(weights_of(problem).layout.codes, ActivationKind::e4m3);
  return takes_bytes ? ActivationKind::e4m3 : usual_activation(problem);
}

int64_t size_of_choice(const GemmProblem& problem, int64_t size) {
  constexpr int64_t kExact = 8;
  size = std::max<int64_t>(size, 1);
  const bool steps = problem.routing.present()
                         ? size > kExact
                         : problem.compute == MARLIN_COMPUTE_W16 && size > kMostTileEdges;
  if (!steps) return size;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size)) / 4);
  return ceil_div(size, step) * step;
}

int64_t expected_tiles(const ProductKernel& kernel, const GemmProblem& problem, int64_t size) {
  const int64_t columns = ceil_div(weights_of(problem).layout.n, kernel.columns);
  if (!problem.routing.present()) return columns * ceil_div(size, kernel.rows);
  const auto experts = static_cast<double>(problem.routing.stack->size());
  const double mean = mean_rows(problem, size);
  const double items = experts * tiles_of_expert(mean, static_cast<double>(kernel.rows));
  return columns * std::max<int64_t>(1, std::llround(items));
}

int64_t groups_of_whole_tiles(const ProductKernel& kernel, const RowBlockLayout& layout,
                              int64_t tiles, const device::Capabilities& device) {
  const int64_t blocks =
      std::min(blocks_of(kernel, device), tiles * ceil_div(layout.slots, kLeastSharedSlots));
  const int64_t rounds = ceil_div(tiles, blocks);
  if (tiles % rounds != 0) return 0;
  const int64_t chunks = ceil_div(layout.slots, kMmaSlots);
  const int64_t longer = rounds * chunks - ceil_div(tiles * chunks, blocks);
  const bool pays = longer * chunk_ns_of(kernel, layout) < join_ns(kernel, tiles, blocks);
  return pays ? tiles / rounds : 0;
}

// To start, the part of a threadgroup, results, and joining sums. Fitted to 1539 products on one
// H100, 2026-11-27, each by every tile that is near the fastest one: 5 % off in the mean.
int64_t estimated_ns(const ProductKernel& kernel, const GemmProblem& problem, int64_t size,
                     const device::Capabilities& device) {
  constexpr int64_t kStart = 3500, kOutputRow = 8;
  // Of additive zeros: adding up A, and picoseconds of a group and row of A.
  constexpr int64_t kGroupSums = 3200, kGroupRowPs = 610;
  constexpr int64_t kExpandedBytesPerNs = 2900;  // on one H200
  const RowBlockLayout& layout = weights_of(problem).layout;
  const int64_t tiles = expected_tiles(kernel, problem, size);
  const int64_t blocks = blocks_of(kernel, device), rounds = ceil_div(tiles, blocks);
  const bool whole =
      !problem.routing.present() && groups_of_whole_tiles(kernel, layout, tiles, device) != 0;
  const int64_t of_tile = ceil_div(layout.slots, kMmaSlots);
  const int64_t chunks = whole ? rounds * of_tile : ceil_div(tiles * of_tile, blocks);
  int64_t zeros = 0;
  if (layout.zero_kind == ZeroKind::additive && !kernel.rounds)
    zeros = kGroupSums + chunks * kernel.rows * kMmaSlots / layout.slot_group * kGroupRowPs / 1000;
  const int64_t expanding =
      kernel.expands() ? kStart + layout.halves_bytes() / kExpandedBytesPerNs : 0;
  return kStart + expanding + chunks * chunk_ns_of(kernel, layout) + zeros +
         rounds * kernel.rows * kOutputRow + (whole ? 0 : join_ns(kernel, tiles, blocks));
}

Result<const ProductKernel*> choose_product_kernel(const GemmProblem& problem, int64_t size,
                                                   const PlanRules& rules,
                                                   const KernelHealth::Reader& health) {
  if (!rules.forced.empty()) return forced_kernel(problem, rules);
  const RowBlockLayout& layout = weights_of(problem).layout;
  const bool routed = problem.routing.present();
  size = size_of_choice(problem, size);
  std::array<const ProductKernel*, kMostProductKernels> usable_ones;
  size_t count = 0;
  for (const ProductKernel& kernel : rules.policy.kernels) {
    const ActivationKind activation = activation_of(kernel, problem);
    if (serves(kernel, problem) && serves_order(kernel, problem) &&
        is_choice(kernel, layout, activation, routed) &&
        (features_of(kernel, activation) & ~available(rules.device)) == 0 &&
        can_share(kernel, product_rows(problem, size), layout) &&
        health.of(decoder_of(kernel, activation, layout)) != KernelHealth::bad)
      usable_ones[count++] = &kernel;
  }
  const std::span usable(usable_ones.data(), count);
  if (usable.empty() && problem.row_invariant)
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "MARLIN_GEMM_ROW_INVARIANT: no kernel that computes right on this device "
                         "keeps one order of additions for these types");
  int64_t m = routed ? rows_of_expert(problem, size) : size;
  if (usable.empty())
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "no kernel of this backend serves these types with %" PRId64 " rows of A",
                         m);
  if (routed && mean_rows(problem, size) <= kMostRowsOfRing)
    for (const ProductKernel* const kernel : usable)
      if (kernel->has_ring()) m = std::min(m, kernel->m_max);
  // If no kernel is meant for so many rows, the nearest one serves: any kernel takes any M.
  const auto distance_of = [&](const ProductKernel* kernel) { return distance(*kernel, m); };
  const ProductKernel* best = *std::ranges::min_element(usable, {}, distance_of);
  // Where there is no ring, tiles serve few rows of A, too.
  const bool few = best->has_ring() || (routed && size < kLeastTiledTokens);
  if (distance_of(best) != 0 || (few && !best->shares_tiles())) return best;
  const auto ns = [&](const ProductKernel* kernel) {
    // Few rows do not pay for weights in a step of their own, nor bytes for tiles.
    const bool for_many = kernel->expands() || are_bytes(activation_of(*kernel, problem));
    const bool pays = kernel->shares_tiles() && (!for_many || m >= kernel->m_min);
    return pays ? estimated_ns(*kernel, problem, size, rules.device) : INT64_MAX;
  };
  const auto fastest = std::ranges::min_element(usable, {}, ns);
  return ns(*fastest) != INT64_MAX ? *fastest : best;
}

}  // namespace metal_marlin::gpu
