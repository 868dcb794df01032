// A superblock as the kernels of x86 see it: its parts, and its decoded scales and zeros.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/cpu/e2m1.h"
#include "backends/cpu/expand.h"
#include "backends/cpu/fetch.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/x86/intrinsics.h"

namespace metal_marlin::cpu {

/// The parts of a superblock. They are computed once, because divisions for every superblock would
/// be noticeable.
struct SuperShape {
  /// Kernels of indices of floats give the panel, for nested scales.
  explicit SuperShape(const PanelLayout& layout, const uint8_t* panel = nullptr)
      : groups(layout.groups_per_super()),
        shift(shift_of(layout)),
        scales(layout.scales_offset()),
        zeros(layout.zeros_offset()),
        bytes(layout.super_bytes()),
        ahead(fetch_distance(bytes)),
        expands(layout.expansion != Expansion::none),
        layout(layout),
        panel(panel) {}
  static int shift_of(const PanelLayout& layout) {
    return std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  }
  int groups;
  int shift;  ///< part i of 16 slots of the superblock belongs to group i >> shift
  int64_t scales, zeros, bytes;  ///< offsets and the size
  int64_t ahead;                 ///< fetch_distance()
  bool expands;                  ///< codes are expanded first
  const PanelLayout& layout;
  const uint8_t* panel;

  /// Prefetches the scales and zeros that lie `ahead`.
  MARLIN_INLINE void fetch_scales(const uint8_t* super) const {
    fetch_lines(super + ahead + scales, bytes - scales);
  }
};

/// Scales and zeros of a superblock, in rows of groups.
struct alignas(64) SuperScales {
  float scale[8][kPanelColumns];
  union {
    float zero[8][kPanelColumns];       ///< additive zeros
    uint32_t offset[8][kPanelColumns];  ///< u4zero: 16 - zero, in every byte
  };
};

/// Two-level scales or zeros of a superblock (layout.h): products of integers and factors, which
/// are exact.
struct alignas(64) TwoLevelScales {
  float factors[kPanelColumns];
  int8_t joined[8][kPanelColumns];
  const int8_t* integers;  ///< [group][kPanelColumns]: `joined`, or in the superblock
};

/// FP4 codes are multiplied as 2 * value where they are integers.
constexpr float code_factor(CodeKind code) { return code == CodeKind::fp4 ? 0.5f : 1.0f; }
/// What the unsigned integers of 4-bit codes are above these.
constexpr int offset_of_codes(CodeKind code) {
  if (code == CodeKind::u4) return 8;
  if (code == CodeKind::u4zero) return 16;
  return code == CodeKind::fp4 ? kE2m1Offset : 0;
}

/// Calls call.operator()<kRows>() for 1 to kMost rows.
template <int kMost, class Call>
void with_rows(int rows, Call call) {
  if constexpr (kMost > 1)
    if (rows != kMost) return with_rows<kMost - 1>(rows, call);
  call.template operator()<kMost>();
}

}  // namespace metal_marlin::cpu
