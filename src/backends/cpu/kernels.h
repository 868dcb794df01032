// One row a kernel (kernels.inc): what it needs, what it serves, how to call it.
//
// Names: cpu_ISA_SHAPE_CODES[_sparse]_FORM, every part from its list:
//   ISA    generic, avx2, avx512, avx512vnni, avx512bf16, neon, neondotprod, neoni8mm, neonbf16
//   SHAPE  gemv: few rows; weights are decoded in registers while they are read once
//          regdecode: many rows; weights are decoded in registers again for every tile
//          dequant: many rows; a chunk of weights is decoded into cache once for all rows
//          prescaled: dequant, with the scales multiplied into the decoded weights
//          paired: dequant, with two scale groups of 16 slots in neighboring lanes
//   CODES  u4 (INT4, zero 8), u4zero (INT4, integer zeros), u4add (INT4, additive zeros),
//          fp4 (E2M1), i8, i8add (INT8); any: all of them
//   FORM   how activations are multiplied: i8, bf16, f32
// A kernel with _sparse in its name serves 2:4 sparse weights only. A kernel without it serves
// dense weights; `any` also serves sparse weights where its row says so.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backends/cpu/activations.h"
#include "backends/cpu/cpu_features.h"
#include "backends/cpu/layout.h"

namespace metal_marlin::cpu {

enum class CodeKind : uint8_t { u4, u4zero, u4add, fp4, i8, i8add };
inline constexpr uint32_t kAllCodes = 0x3f;
constexpr uint32_t bit(CodeKind kind) { return 1u << static_cast<int>(kind); }
/// The same codes, 2:4 sparse.
constexpr uint32_t sparse(CodeKind kind) { return bit(kind) << 8; }
inline constexpr uint32_t kSparseCodes = sparse(CodeKind::u4) | sparse(CodeKind::u4zero) |
                                         sparse(CodeKind::u4add) | sparse(CodeKind::fp4);
constexpr uint32_t bit(ScaleType type) { return 1u << static_cast<int>(type); }
CodeKind code_kind(const CpuWeights& weights);
constexpr bool is_eight_bits(CodeKind kind) {
  return kind == CodeKind::i8 || kind == CodeKind::i8add;
}
constexpr bool is_additive(CodeKind kind) {
  return kind == CodeKind::u4add || kind == CodeKind::i8add;
}

/// One panel times some tiles of rows.
struct PanelArgs {
  const PackedLayout* layout = nullptr;
  CodeKind code = CodeKind::u4;
  const uint8_t* panel = nullptr;
  ActivationLayout activations;
  const uint32_t* packed_a = nullptr;
  int64_t tile_begin = 0, tile_end = 0;
  float* sums = nullptr;  ///< [(tile_end - tile_begin) * tile_rows][kPanelColumns], 64-byte
                          ///< aligned; written, not read
};
using MultiplyPanel = void (*)(const PanelArgs&);

/// What surrounds a kernel, in the instructions that it needs anyway.
struct KernelSteps {
  void (*prepare)(const PrepareArgs& args, int64_t tile_begin, int64_t tile_end);
  void (*finish_panel)(const GemmProblem& problem, int64_t panel, int64_t first_row, int64_t rows,
                       float* sums);
  void (*finish_pair_sums)(const GemmProblem& problem, int64_t row, const float* pair_sums);
};

struct KernelRow {
  std::string_view name;
  uint32_t features;  ///< of Feature, all needed
  ActivationForm form;
  uint32_t codes;   ///< of bit(CodeKind) and sparse(CodeKind)
  uint32_t scales;  ///< of bit(ScaleType)
  bool bf16_only;   ///< serves BF16 activations only
  int64_t m_min,
      m_max;         ///< the rows of A for which it is chosen; any number works. m_max 0: no limit
  int tile_rows;     ///< most rows of a tile
  bool fit_tiles;    ///< smaller tiles when that leaves fewer rows unused
  int chunk_blocks;  ///< blocks pair_sums at a time; 0: no dequantizing, K is walked once
  MultiplyPanel multiply;
  KernelSteps steps;
};

/// Kernels of sparse weights alone that do not dequantize them pick activations by the positions of
/// kept codes (activations.h: gathered).
constexpr bool gathers(const KernelRow& row) {
  return (row.codes & (sparse(CodeKind{0}) - 1)) == 0 && row.chunk_blocks == 0;
}
/// INT8 kernels of E4M3 scales alone take groups of 16 in pairs (activations.h: paired).
constexpr bool pairs_groups(const KernelRow& row) {
  return row.form == ActivationForm::int8 && row.scales == bit(ScaleType::e4m3);
}
/// Matrix instructions (SMMLA, BFMMLA) take two steps of a row at a time, and so do floats with
/// AVX2 that are not pair_sums (activations.h: run).
constexpr bool pairs_steps(const KernelRow& row) {
  return (row.features & kI8mm) != 0 ||
         (row.form == ActivationForm::f32 && row.features == kAvx2 && row.chunk_blocks == 0);
}

/// Kernels of register-decoded tiles leave out the rows that the last tile has not (activations.h:
/// cut_last).
inline constexpr int kRegdecodeRows = 12;
constexpr bool cuts_last_tile(const KernelRow& row) { return row.tile_rows == kRegdecodeRows; }

/// All kernels, best first.
std::span<const KernelRow> kernel_rows();
/// How activations of m rows are laid out for a kernel and these weights.
ActivationLayout activation_layout(const KernelRow& row, const CpuWeights& weights, int64_t m);

// The kernels named by kernels.inc. All follow MultiplyPanel; sums of a row are formed in one order
// that depends on nothing but K and the group size.
#define MARLIN_CPU_KERNEL(name, features, form, codes, scales, bf16_only, m_min, m_max, tile_rows, \
                          fit_tiles, chunk_blocks)                                                 \
  void name(const PanelArgs& args);
#include "backends/cpu/kernels.inc"
#undef MARLIN_CPU_KERNEL

}  // namespace metal_marlin::cpu
