// The table of kernels has one row per kernel (kernels.inc), which is its contract. A row states
// which instructions the kernel needs, which products it serves, and the layout of its activations.
//
// Names are cpu_ISA_SHAPE_CODES_FORM, with every part from its list:
//   ISA    generic, avx2, avx512, avx512vnni, avx512bf16, amx, neon, neondotprod, neoni8mm,
//   neonbf16 SHAPE  gemv: few rows; codes are decoded in registers while the weights are read once
//          regdecode: many rows; codes are decoded in registers again for every tile
//          dequant: many rows; a chunk is decoded into cache once, then all rows are multiplied
//          prescaled: dequant, with the scales multiplied into the decoded weights
//   CODES  u4 (INT4, zero point 8), u4zero (INT4, integer zero points), u4add (INT4, additive
//          zeros), fp4 (E2M1), i8, i8add (INT8), lut4 (16 floats), bf16, f16, f32; real: the last
//          four; any: the kinds that the row names. With the suffix _sparse, a kernel serves only
//          2:4 sparse weights of these codes. Without it, a kernel serves dense weights, and an
//          `any` kernel also sparse weights if its row says so.
//   FORM   the type in which activations are multiplied: i8, bf16, f32
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "backends/cpu/activations.h"
#include "backends/cpu/cpu_features.h"
#include "backends/cpu/layout.h"
#include "formats/code_kind.h"

namespace metal_marlin::cpu {

inline constexpr uint32_t kAllCodes = 0x3f;  ///< all but real ones
inline constexpr uint32_t kRealCodes = 0x3c0;
constexpr uint32_t bit(CodeKind kind) { return 1u << static_cast<int>(kind); }
/// The bit of the same codes for 2:4 sparse weights.
constexpr uint32_t sparse(CodeKind kind) { return bit(kind) << 16; }
inline constexpr uint32_t kSparseCodes = sparse(CodeKind::u4) | sparse(CodeKind::u4zero) |
                                         sparse(CodeKind::u4add) | sparse(CodeKind::fp4);
constexpr uint32_t bit(ScaleType type) { return 1u << static_cast<int>(type); }
inline constexpr uint32_t kOneLevelScales = 0x1f, kAnyScale = 0x3ff;

/// One panel times some tiles of rows.
struct PanelArgs {
  const PanelLayout* layout = nullptr;
  CodeKind code = CodeKind::u4;
  const uint8_t* panel = nullptr;
  ActivationLayout activations;
  const uint32_t* packed_a = nullptr;
  int64_t tile_begin = 0, tile_end = 0;
  bool block_by_block = false;  ///< INT8: every block is scaled alone, in the order of `blocks`
  float* sums = nullptr;        ///< [(tile_end - tile_begin) * tile_rows][kPanelColumns], 64-byte
                                ///< aligned; written, not read
  int idle_blocks = 0;  ///< at the end of K, hold padding alone; a kernel may pass over them
};
using MultiplyPanel = void (*)(const PanelArgs&);

/// The steps before and after a kernel, in the instructions that the kernel needs anyway. They are
/// references, so that a row without them does not compile.
struct KernelSteps {
  void (&prepare)(const PrepareArgs& args, int64_t tile_begin, int64_t tile_end);
  void (&finish_panel)(const GemmProblem& problem, int64_t panel, int64_t first_row, int64_t rows,
                       float* sums);
  void (&finish_pair_sums)(const GemmProblem& problem, int64_t row, const float* pair_sums);
};

/// The weights for which the packed A blocks hold the sums of their slots (activations.h:
/// sums_per_block).
enum class BlockSums : uint8_t {
  additive_zeros,  ///< weights with additive zeros, which multiply the plain sum
  always,          ///< all weights: sums also correct the offset of unsigned codes
};

/// The order in which a kernel adds the products of an element of C. Kernels of one order give a
/// row the same bits.
enum class AddOrder : uint8_t {
  own,             ///< like no other kernel
  portable,        ///< slot by slot, with weights that contain their scale; INT8: as `blocks`, but
                   ///< in float64
  steps,           ///< the same, by FMA, in the order of lines of codes
  blocks,          ///< INT8: block by block, float(sum of a block) times (scale times d); with
                   ///< PanelArgs::block_by_block
  groups,          ///< the sum of a scale group in the order of lines of codes, times its scale
  groups_of_pairs  ///< the same with BF16 activations, whose products are added two at a time
};

/// The contract of a kernel. kernels.inc names the fields that differ from these defaults.
struct KernelRow {
  std::string_view name;
  MultiplyPanel multiply = nullptr;

  // The requirements of the kernel, and the problems that it serves.
  uint32_t features = 0;    ///< of Feature, all needed
  uint32_t gains_with = 0;  ///< of Feature: without these, it is chosen only by its name
  ActivationForm form = ActivationForm::f32;  ///< f32 and bf16 serve MARLIN_COMPUTE_DEFAULT
  uint32_t codes = 0;                         ///< of bit(CodeKind) and sparse(CodeKind)
  uint32_t scales = kOneLevelScales;          ///< of bit(ScaleType)
  int slot_group_min = 16;                    ///< the fewest slots that share a scale
  bool expands = false;                       ///< i8, i8add, bf16: also codes that are expanded
  bool bf16_only = false;                     ///< serves BF16 activations only
  int64_t m_min = 1;  ///< the fewest rows of A for which it is chosen; any number works
  int64_t m_max = 0;  ///< the most; 0: no limit
  AddOrder order = AddOrder::own;

  // The layout of its activations (activations.h). A kernel reads them only in this layout.
  int tile_rows = 0;       ///< most rows of a tile
  bool fit_tiles = false;  ///< smaller tiles if they leave fewer rows unused
  int fit_to = 1;          ///< then tiles have a multiple of this many rows
  int chunk_blocks = 0;    ///< blocks of a chunk; 0: no dequantizing, K is walked once
  bool cut_last = false;   ///< the last tile holds only the remaining rows
  bool gathered = false;   ///< in the order of slots, to be picked by positions of kept codes
  int run = 1;             ///< steps of a row that lie together
  BlockSums sums = BlockSums::additive_zeros;

  KernelSteps steps;
};

/// Rows of a register-decoded tile with AVX-512.
inline constexpr int kRegdecodeRows = 12;
/// A multiple of the kernel's tile_rows, so that a full block of rows leaves no tile unfilled. Most
/// kernels share one unit, so that they cut rows into the same blocks.
constexpr int row_unit(const KernelRow& row) { return std::max(12, row.tile_rows); }

/// All kernels, best first.
std::span<const KernelRow> kernel_rows();
CodeKind code_kind(const CpuWeights& weights);
/// The layout of activations of m rows for a kernel and these weights.
ActivationLayout activation_layout(const KernelRow& row, const CpuWeights& weights, int64_t m);

// The kernels that kernels.inc names. All follow MultiplyPanel. The order in which the sums of a
// row are formed depends only on K and the group size.
#define MARLIN_CPU_KERNEL(kernel, ...) void kernel(const PanelArgs& args);
#include "backends/cpu/kernels.inc"
#undef MARLIN_CPU_KERNEL

inline constexpr size_t kKernelCount = 0
#define MARLIN_CPU_KERNEL(kernel, ...) +1
#include "backends/cpu/kernels.inc"
#undef MARLIN_CPU_KERNEL
    ;

}  // namespace metal_marlin::cpu
