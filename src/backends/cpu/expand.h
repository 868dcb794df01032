// Expands codes that no kernel reads in their packed form to lines of 8-bit codes (E4M3: of BF16)
// in L1, where the kernels of such codes multiply them. A superblock at a time: memory limits few
// rows, and many rows share the work. The loops are in expand.inc.
#pragma once

#include <cstdint>

#include "backends/cpu/fetch.h"
#include "backends/cpu/hot_loops.h"
#include "backends/cpu/layout.h"
#include "formats/code_kind.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {

/// Lines of a block of a column group, of dense codes.
constexpr int lines_of_block(CodeKind kind) {
  if (kind == CodeKind::f32) return 32;
  if (is_float_line(kind)) return 16;
  return is_eight_bits(kind) ? 8 : 4;
}

inline constexpr int kExpandedGroupBytes = kGroupColumns * kBlockSlots;  ///< of a block

/// A superblock as the 8-bit lines of layout.h: [block][v][line][64 bytes]. E4M3 becomes lines of
/// BF16, which take twice the bytes.
template <CodeKind kCode>
inline constexpr int kExpandedBytes =
    kBlocksPerSuper * kColumnGroups * kExpandedGroupBytes * (kCode == CodeKind::bf16 ? 2 : 1);
template <CodeKind kCode>
struct alignas(64) ExpandedCodes {
  uint8_t bytes[kExpandedBytes<kCode>];
};
/// Whether codes of a kind may be expanded ones.
constexpr bool may_be_expanded(CodeKind kind) {
  return is_eight_bits(kind) || kind == CodeKind::bf16;
}

/// The codes of kIq4 as bytes.
struct Iq4Bytes {
  alignas(16) int8_t of[16] = {};
  constexpr Iq4Bytes() {
    for (int i = 0; i < 16; ++i) of[i] = static_cast<int8_t>(kIq4[i]);
  }
};
inline constexpr Iq4Bytes kIq4Bytes{};

/// The BF16 values of the subnormal numbers 0..7 of E4M3, in units of 2^-9.
struct E4m3Subnormals {
  alignas(16) uint16_t of[8] = {};
  constexpr E4m3Subnormals() {
    for (uint8_t i = 0; i < 8; ++i) of[i] = f32_to_bf16(e4m3_to_f32(i));
  }
};
inline constexpr E4m3Subnormals kE4m3Subnormals{};

/// The zeros of 16 columns, in the 4 bytes of each column's dword: the zero point, or the integer
/// zeros of a group.
struct alignas(64) ZeroBytes {
  uint32_t of[kGroupColumns];

  MARLIN_INLINE void set(const PanelLayout& layout, const uint8_t* super, int group, int v) {
    const uint8_t* const zeros = super + layout.zeros_offset() + group * kPanelColumns + 16 * v;
    const bool integer = layout.zero_kind == ZeroKind::integer;
    const auto fixed = static_cast<uint32_t>(layout.zero_point());
    for (int c = 0; c < kGroupColumns; ++c)
      of[c] = (integer ? uint32_t{zeros[c]} : fixed) * 0x01010101u;
  }
};

/// The packed codes of block b of column group v in a superblock, and their place when expanded.
struct ExpandedGroup {
  MARLIN_INLINE ExpandedGroup(const PanelLayout& layout, const uint8_t* super, int b, int v,
                              int64_t ahead, uint8_t* to)
      : from(super + (b * kColumnGroups + v) * layout.group_bytes()),
        out(to + (b * kColumnGroups + v) * kExpandedGroupBytes *
                     (layout.expansion == Expansion::e4m3 ? 2 : 1)),
        ahead(ahead) {}
  /// Prefetches what lies `ahead` of a line, unless that is 0. A line at a time is 1.02 to 1.09
  /// times as fast as the whole group at once, because L1 has few outstanding misses.
  MARLIN_INLINE void fetch(int line) const {
    if (ahead != 0) fetch_line(from + ahead + 64 * line);
  }
  const uint8_t* from;
  uint8_t* out;
  int64_t ahead;
};

}  // namespace metal_marlin::cpu
