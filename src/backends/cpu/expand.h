// Expands codes that no kernel reads in their packed form to lines of 8-bit codes in L1, where the
// kernels of 8-bit codes multiply them. A superblock at a time: memory limits few rows, and many
// rows share the work. The loops are in expand.inc.
#pragma once

#include <cstdint>

#include "backends/cpu/fetch.h"
#include "backends/cpu/hot_loops.h"
#include "backends/cpu/layout.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {

inline constexpr int kExpandedGroupBytes = kGroupColumns * kBlockSlots;  ///< of a block

/// A superblock as the 8-bit lines of layout.h: [block][v][line][64 bytes].
struct alignas(64) ExpandedCodes {
  uint8_t bytes[kBlocksPerSuper * kColumnGroups * kExpandedGroupBytes];
};

/// The codes of kIq4 as bytes.
struct Iq4Bytes {
  alignas(16) int8_t of[16];
  constexpr Iq4Bytes() : of{} {
    for (int i = 0; i < 16; ++i) of[i] = static_cast<int8_t>(kIq4[i]);
  }
};
inline constexpr Iq4Bytes kIq4Bytes{};

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
/// Prefetches the bytes that lie `ahead`, unless that is 0.
struct ExpandedGroup {
  MARLIN_INLINE ExpandedGroup(const PanelLayout& layout, const uint8_t* super, int b, int v,
                              int64_t ahead, ExpandedCodes& to)
      : from(super + (b * kColumnGroups + v) * layout.group_bytes()),
        out(to.bytes + (b * kColumnGroups + v) * kExpandedGroupBytes) {
    if (ahead != 0) fetch_lines(from + ahead, layout.group_bytes());
  }
  const uint8_t* from;
  uint8_t* out;
};

}  // namespace metal_marlin::cpu
