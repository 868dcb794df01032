// The table of kernels, and the properties that follow from a row.
#include "backends/cpu/kernels.h"

#include <algorithm>

#include "backends/cpu/epilogue.h"

namespace metal_marlin::cpu {
namespace {

constexpr KernelSteps kPortableSteps = {prepare_activations, finish_panel, finish_pair_sums};
#if defined(__x86_64__)
constexpr KernelSteps kAvx512Steps = {prepare_activations_avx512, finish_panel_avx512,
                                      finish_pair_sums_avx512};
#endif

constexpr KernelRow kRows[] = {
#define MARLIN_CPU_KERNEL(kernel, ...) {.name = #kernel, .multiply = kernel, __VA_ARGS__},
#include "backends/cpu/kernels.inc"
#undef MARLIN_CPU_KERNEL
};

// The relations that must hold between the fields of a row.
constexpr bool names_codes_and_scales(const KernelRow& row) {
  return row.codes != 0 && row.scales != 0 && (row.scales & ~kAnyScale) == 0;
}
constexpr bool serves_some_m(const KernelRow& row) {
  return row.m_min >= 1 && (row.m_max == 0 || row.m_max >= row.m_min);
}
constexpr bool fills_row_unit(const KernelRow& row) {
  return row.tile_rows > 0 && row.tile_rows <= kMostTileRows && row.tile_rows % row.fit_to == 0 &&
         (row.fit_tiles || row_unit(row) % row.tile_rows == 0);
}
constexpr bool decodes_superblocks(const KernelRow& row) {
  return row.chunk_blocks % kBlocksPerSuper == 0;
}
/// A last tile is cut to an even number of rows. All tiles therefore have the same even number.
constexpr bool cuts_even_tiles(const KernelRow& row) {
  return !row.cut_last || (!row.fit_tiles && row.tile_rows % 2 == 0);
}
/// Only sparse codes have positions, and decoded weights no longer have them.
constexpr bool gathers_by_positions(const KernelRow& row) {
  return !row.gathered || ((row.codes & kAllCodes) == 0 && row.chunk_blocks == 0);
}
/// A position chooses among the steps of a run, which hold 4 floats, 2 pairs of BF16, or 8 bytes.
/// Matrix instructions take two steps or a whole block.
constexpr bool runs_are_operands(const KernelRow& row) {
  if (row.gathered) return row.run == (row.form == ActivationForm::f32 ? 4 : 2);
  return row.run == 1 || row.run == 2 ||
         ActivationLayout{.form = row.form, .run = row.run}.has_whole_rows();
}
/// Only integer kernels correct the offset of codes by sums.
constexpr bool sums_by_form(const KernelRow& row) {
  return (row.sums == BlockSums::always) == (row.form == ActivationForm::int8);
}
constexpr bool keeps_activations_exact(const KernelRow& row) {
  return row.bf16_only == (row.form == ActivationForm::bf16);
}
static_assert(std::ranges::all_of(kRows, names_codes_and_scales));
static_assert(std::ranges::all_of(kRows, serves_some_m));
static_assert(std::ranges::all_of(kRows, fills_row_unit));
static_assert(std::ranges::all_of(kRows, decodes_superblocks));
static_assert(std::ranges::all_of(kRows, cuts_even_tiles));
static_assert(std::ranges::all_of(kRows, gathers_by_positions));
static_assert(std::ranges::all_of(kRows, runs_are_operands));
static_assert(std::ranges::all_of(kRows, sums_by_form));
static_assert(std::ranges::all_of(kRows, keeps_activations_exact));

/// Integer sums are corrected by the offset that turns the stored code into an unsigned byte.
/// Additive zeros need the plain sum.
int sum_factor(CodeKind kind) {
  switch (kind) {
    case CodeKind::u4:
      return -8;
    case CodeKind::u4zero:
      return -16;
    case CodeKind::fp4:
      return -12;
    case CodeKind::i8:
      return -128;
    default:
      return 1;
  }
}

}  // namespace

std::span<const KernelRow> kernel_rows() { return kRows; }

CodeKind code_kind(const CpuWeights& weights) {
  return metal_marlin::code_kind(weights.meta().format, weights.layout.zero_kind);
}

ActivationLayout activation_layout(const KernelRow& row, const CpuWeights& weights, int64_t m) {
  const CodeKind kind = code_kind(weights);
  ActivationLayout layout;
  layout.form = row.form;
  layout.tile_rows = row.tile_rows;
  if (row.fit_tiles)
    layout.tile_rows =
        static_cast<int>(round_up(ceil_div(m, ceil_div(m, row.tile_rows)), row.fit_to));
  layout.rows = m;
  layout.tiles = ceil_div(m, layout.tile_rows);
  layout.blocks = weights.layout.slots / kBlockSlots;
  layout.chunk_blocks = row.chunk_blocks != 0 ? row.chunk_blocks : static_cast<int>(layout.blocks);
  if (row.sums == BlockSums::always || is_additive(kind))
    layout.sums_per_block = weights.layout.slot_group == 16 ? 2 : 1;
  if (row.form == ActivationForm::int8) layout.sum_factor = sum_factor(kind);
  layout.cut_last = row.cut_last;
  layout.gathered = row.gathered;
  layout.run = row.run;
  return layout;
}

}  // namespace metal_marlin::cpu
