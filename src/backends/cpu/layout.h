// The packed layout of the CPU: one contiguous stream for every format and every M, so that a GEMV
// walks memory once, in order, and a GEMM dequantizes the same bytes.
//
// A panel is 64 columns (rows of W). Along K it is a sequence of superblocks of 128 slots. Each
// superblock has its codes and then its scales and zeros, so that one prefetch distance covers all:
//
//   superblock = 4 blocks of 32 slots, each [v = 4 column groups of 16][plane][line][64 bytes],
//                then scales [slot group][64 columns] of scale_type,
//                then zeros [slot group][64 columns]
//
// A plane holds 1, 2, 4 or 8 bits of each code. 4-bit and 8-bit codes (8: two's complement) are one
// plane. Others have a plane of their low 4 bits (2- and 3-bit codes: of their low 2 bits), and
// then a plane of the rest. A plane of w bits has w lines for a block. Byte 4 c + i of line j holds
// column 16 v + c, slots 32 / w j + 4 t + i at bits w t, for i = 0..3. A line, or w bits of each of
// its bytes, is therefore 16 columns x 4 consecutive slots: the operand of a 4-way dot product.
//
// Codes of UINT8 are stored less 128. Floats of 2 bytes have 16 lines for a block: dword c of line
// j holds slots first_slot_of_pair(j) and that + 2 (activations.h) of column 16 v + c. Floats of 4
// bytes have 32 lines, of slots slot_of_step(j).
//
// Codes of other widths than 4 and 8, and the codes of the codebook IQ4, are expanded to lines of
// 8-bit codes in L1 before kernels multiply them, and E4M3 to lines of BF16 (expand.h). Some
// kernels join planes and look up IQ4 in registers instead: AVX-512 kernels 5 and 6 bits
// (x86/avx512_int8.h), AVX2 kernels of few rows every width (x86/avx2_reading.h); others
// decode E4M3 there (x86/avx2_f32.h).
//
// Two-level scales and zeros are, for each superblock, planes of integers and the float16 factors
// of the 64 columns. A factor spans 256 slots, so two superblocks repeat it.
// The rows of 64 bytes are: the low 4 bits of groups 0 and 1, of 2 and 3, and so on; for 6 bits,
// also the high 2 bits of groups 0 to 3, of 4 to 7; for 8 bits, one group a row. Then [64 columns]
// float16. The factors of zeros have their sign flipped, because two-level zeros are subtracted and
// kernels add.
//
// Nested scales are bytes, one for each group, like scales of one level. The numbers that belong to
// many of them follow the superblocks of their panel: the offsets of the 64 columns, then the
// factors [run of factor_slots slots][64 columns], all float32.
//
// 2:4 sparse weights (4-bit codes only) store two codes of every 4 slots (a quad), in order, and
// their positions in the quad, 2 bits each. A block of a column group is 192 bytes, which is three
// quarters of a dense block:
//
//   [unit u = 0, 1][64 bytes]  byte 4 c + 2 i + t % 2 holds kept code i (0, 1) of column c in quad
//                              t = 0..3 of the unit's 16 slots: quads 0 and 1 in low nibbles, quads
//                              2 and 3 in high nibbles
//   [64 bytes]                 dword c: bits 2 t .. 2 t + 1 are the position of kept code 0 in quad
//                              t = 0..7 of the block, bits 16 + 2 t .. the larger one of code 1
//
// A dword of codes then stands for 8 slots (16 in BF16 words, one for each shift). Kernels gather
// its activations by the positions, which need only shifts. This takes half of the multiplications
// of dense weights. (Masks with one bit per slot take as many bytes, but "expand bytes under a
// mask" costs more than it saves on processors that do it at half speed.) Padding keeps its first
// two slots.
//
// Slots are the k of the file, in order, padded at the end. With a group index, they are sorted by
// group, and each group is padded to whole slot groups (slot_to_k). Group sizes that are multiples
// of 128, and one scale for a whole row, repeat their scale in every superblock. Padded slots and
// columns hold codes and scales that decode to 0 (for example code 0 with scale 0).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bits.h"
#include "core/backend.h"
#include "core/slots.h"

namespace metal_marlin::cpu {

/// The version of everything above, which packed containers (.marlin) carry. It grows when a byte
/// gets another meaning or another place; the slots that core/slots.h assigns belong to it.
inline constexpr uint32_t kPackedVersion = 1;

inline constexpr int kPanelColumns =
    64;  // 4 vectors of 16 float lanes: enough independent sums to hide a dot product's latency
inline constexpr int kSuperSlots =
    128;  // shortest stretch that holds whole groups of 16, 32, 64 and 128
inline constexpr int kBlockSlots = 32;  // block of the INT8 activations
inline constexpr int kBlocksPerSuper = kSuperSlots / kBlockSlots;
inline constexpr int kGroupColumns = 16;  // a column group: the columns of a line
inline constexpr int kColumnGroups = kPanelColumns / kGroupColumns;
/// How codes become the bytes of an 8-bit line.
enum class Expansion : uint8_t {
  none,      ///< kernels read the packed lines
  integers,  ///< planes are joined, and integer zero points are subtracted
  iq4,       ///< 4-bit codes are replaced by their integers in the codebook
  e4m3,      ///< bytes become BF16: lines of pairs of slots
};

inline constexpr uint16_t kHalfSign = 0x8000;    // of a float16
inline constexpr int kSparsePositions = 2 * 64;  // where the positions of a sparse block start
inline constexpr int kSparseGroupBytes = kSparsePositions + 64;

/// Rows of 64 bytes that the integers of two-level scales take in a superblock with this many
/// groups: of low 4 bits (u4, u6, s6) or of bytes (s8), and then of high 2 bits (u6, s6).
constexpr int two_level_low_rows(ScaleType type, int groups) {
  return type == ScaleType::s8 ? groups : (groups + 1) / 2;
}
constexpr int two_level_high_rows(ScaleType type, int groups) {
  return type == ScaleType::u6 || type == ScaleType::s6 ? (groups + 3) / 4 : 0;
}

struct PanelLayout {
  int64_t n = 0;          // columns of C, unpadded
  int64_t k = 0;          // columns of A, unpadded
  int64_t slots = 0;      // padded length of K, a multiple of kSuperSlots
  int code_bits = 4;      // 2 to 6, 8, 16 or 32
  int slot_group = 32;    // slots that share a scale inside a superblock: 16, 32, 64 or 128
  bool sparse = false;    // 2:4; then code_bits is 4
  bool less_128 = false;  // codes are those of UINT8 less 128
  Expansion expansion = Expansion::none;
  ScaleType scale_type = ScaleType::f16;
  ZeroKind zero_kind = ZeroKind::none;
  ScaleType zero_type = ScaleType::f16;
  float codebook[16] = {};  // of 4-bit indices of floats
  // Of nested scales: the 256 floats of WeightMeta::scale_map, and the slots that share a factor, a
  // multiple of slot_group.
  const float* scale_map = nullptr;
  int64_t factor_slots = 0;
  int64_t slots_before = 0, slots_after = 0;  // of a row, if this is a part of K

  int64_t panels() const { return ceil_div(n, kPanelColumns); }
  int64_t superblocks() const { return slots / kSuperSlots; }
  int groups_per_super() const { return kSuperSlots / slot_group; }
  /// The bits of a code in the first plane, and in the second one, if any.
  int low_bits() const {
    if (code_bits >= 8) return code_bits;
    return code_bits < 4 ? 2 : 4;
  }
  int high_bits() const { return code_bits - low_bits(); }
  /// Flips the upper bit of stored bytes of UINT8: 128 less in two's complement.
  uint32_t flipped_bits() const { return less_128 ? 0x80808080u : 0; }
  /// What is subtracted from all codes when they are expanded.
  int zero_point() const {
    return expansion == Expansion::integers && zero_kind == ZeroKind::none ? 1 << code_bits >> 1
                                                                           : 0;
  }
  /// The bytes of one block of a column group.
  int64_t group_bytes() const {
    return sparse ? kSparseGroupBytes : int64_t{kGroupColumns} * kBlockSlots * code_bits / 8;
  }
  int64_t code_bytes() const { return kColumnGroups * kBlocksPerSuper * group_bytes(); }
  int64_t scale_row_bytes() const {
    return kPanelColumns * static_cast<int64_t>(scale_bytes(scale_type));
  }
  /// This is one expression because kernels inline it, and g++ allocates registers differently for
  /// other forms.
  int64_t zero_row_bytes() const {
    return zero_kind == ZeroKind::none
               ? 0
               : kPanelColumns * (zero_kind == ZeroKind::integer
                                      ? 1
                                      : static_cast<int64_t>(scale_bytes(zero_type)));
  }
  // Offsets inside a superblock. They are never inlined: in the kernels that read them once, g++ 12
  // would spill sums.
  int64_t scales_offset() const { return code_bytes(); }
  [[gnu::noinline]] int64_t zeros_offset() const {
    return scales_offset() + (is_two_level(scale_type) ? two_level_bytes(scale_type)
                                                       : groups_per_super() * scale_row_bytes());
  }
  [[gnu::noinline]] int64_t super_bytes() const {
    return zeros_offset() + (has_two_level_zeros() ? two_level_bytes(zero_type)
                                                   : groups_per_super() * zero_row_bytes());
  }
  bool has_two_level_zeros() const {
    return zero_kind == ZeroKind::additive && is_two_level(zero_type);
  }
  int low_rows(ScaleType type) const { return two_level_low_rows(type, groups_per_super()); }
  int high_rows(ScaleType type) const { return two_level_high_rows(type, groups_per_super()); }
  /// Where the factors follow.
  int64_t factors_offset(ScaleType type) const {
    return int64_t{kPanelColumns} * (low_rows(type) + high_rows(type));
  }
  int64_t two_level_bytes(ScaleType type) const {
    return factors_offset(type) + kPanelColumns * static_cast<int64_t>(kFactorBytes);
  }
  bool has_nested_scales() const { return scale_type == ScaleType::nested; }
  /// What nested scales take after the superblocks of a panel.
  int64_t nested_bytes() const {
    if (!has_nested_scales()) return 0;
    return kPanelColumns * int64_t{sizeof(float)} * (1 + ceil_div(slots, factor_slots));
  }
  int64_t nested_offset() const { return (slots + slots_after) / kSuperSlots * super_bytes(); }
  int64_t panel_bytes() const { return nested_offset() + nested_bytes(); }
  int64_t bytes() const { return panels() * panel_bytes(); }
  SlotCosts slot_costs() const {
    return {kSuperSlots, code_bytes() / kSuperSlots, scale_row_bytes() + zero_row_bytes()};
  }
  /// The place of the codes of a column's group in a panel, for a block that is counted along all
  /// of K.
  int64_t block_offset(int column, int64_t block) const {
    return block / kBlocksPerSuper * super_bytes() +
           (block % kBlocksPerSuper * kColumnGroups + column / kGroupColumns) * group_bytes();
  }
};

/// The integer of group g of a superblock's two-level scales. `rows` are the integers, from those
/// of the column on.
inline int two_level_integer(const PanelLayout& layout, ScaleType type, const uint8_t* rows,
                             int g) {
  if (type == ScaleType::s8) return static_cast<int8_t>(rows[kPanelColumns * g]);
  const int low = rows[kPanelColumns * (g / 2)] >> g % 2 * 4 & 15;
  if (type == ScaleType::u4) return low;
  const int high = rows[kPanelColumns * (layout.low_rows(type) + g / 4)] >> g % 4 * 2 & 3;
  const int q = low | high << 4;
  return type == ScaleType::s6 && q >= 32 ? q - 64 : q;
}

/// The nested scales of one superblock: scale_map[byte] * factor + offset, with 64 columns each.
struct NestedSuper {
  const PanelLayout& layout;
  const float* offsets;
  int64_t first_group;  ///< in the row of slot groups

  NestedSuper(const PanelLayout& of, const uint8_t* panel, const uint8_t* super)
      : layout(of),
        offsets(reinterpret_cast<const float*>(panel + of.nested_offset())),
        first_group(of.slots_before / of.slot_group +
                    (super - panel) / of.super_bytes() * of.groups_per_super()) {}
  /// The factors of group g of the superblock.
  const float* factors(int g) const {
    const int64_t run = (first_group + g) * layout.slot_group / layout.factor_slots;
    return offsets + kPanelColumns * (1 + run);
  }
};

/// The zeros of `groups` groups of UINT8 as kernels of signed codes add them: codes are stored less
/// 128, so a group adds 128 scales more. `zeros` holds decoded additive zeros, or else `packed` has
/// integer zeros. Rows have kPanelColumns, of which columns [first, first + count) are written.
inline void correct_zeros(const PanelLayout& layout, const uint8_t* packed, int groups, int first,
                          int count, const float* scales, float* zeros) {
  for (int g = 0; g < groups; ++g)
    for (int c = first; c < first + count; ++c) {
      const int i = g * kPanelColumns + c;
      const int zero = layout.zero_kind == ZeroKind::integer ? packed[i] : 128;
      // clang-tidy takes scales for garbage. NOLINTBEGIN(clang-analyzer-core.*)
      if (layout.zero_kind == ZeroKind::additive)
        zeros[i] += 128.0f * scales[i];
      else
        zeros[i] = static_cast<float>(128 - zero) * scales[i];
      // NOLINTEND(clang-analyzer-core.*)
    }
}

class CpuWeights final : public PackedWeights {
 public:
  uint64_t bytes() const override {
    return data.size() + slot_to_k.size() * sizeof(int32_t) +
           (column_multiplier.size() + column_divisor.size()) * sizeof(float);
  }
  PlanKey plan_key() const override { return {meta_, layout.slots, layout.slot_group}; }
  WeightMeta& mutable_meta() { return meta_; }

  PanelLayout layout;
  Block data;                      // layout.bytes(), panel after panel, 64-byte aligned
  std::vector<int32_t> slot_to_k;  // as in Slots
  // Tensor scales, one per column of the padded N; both are empty if all are 1. A sum is multiplied
  // and then divided. One of the two is always 1, so the stored convention (multiply or divide)
  // rounds once, like the writer of the file.
  std::vector<float> column_multiplier, column_divisor;
};

}  // namespace metal_marlin::cpu
