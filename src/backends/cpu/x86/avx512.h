// Code that the AVX-512 kernels share: scales of a superblock, and prefetching.
#pragma once

#include <bit>
#include <cstdint>

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
        scale_type(layout.scale_type),
        zero_type(layout.zero_type),
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
  ScaleType scale_type, zero_type;
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

/// Decodes 16 scales to floats exactly. `index` counts scales.
template <ScaleType kType>
MARLIN_AVX512 MARLIN_INLINE __m512 load_scales(const uint8_t* p, int64_t index) {
  if constexpr (kType == ScaleType::f32) {
    return _mm512_loadu_ps(p + 4 * index);
  } else if constexpr (kType == ScaleType::f16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2 * index)));
  } else if constexpr (kType == ScaleType::bf16) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 2 * index)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  } else if constexpr (kType == ScaleType::e8m0) {
    // The scale is 2^(e - 127), so e is the exponent field. 0 is 2^-127, a subnormal, and 255 is
    // NaN.
    const __m512i e =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + index)));
    const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(e, 23), _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7fc00000)));
  } else {
    // The bits of E4M3 in the exponent and mantissa of a half give a value that is 2^-8 too small;
    // 0x7f and 0xff are NaN. The shift copies the sign into bit 14, which must be 0.
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + index));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7),
                                          _mm256_set1_epi16(static_cast<short>(0xbfff)));
    const __mmask16 number =
        _mm_cmpneq_epi8_mask(_mm_and_si128(bytes, _mm_set1_epi8(0x7f)), _mm_set1_epi8(0x7f));
    return _mm512_mask_mul_ps(_mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)), number,
                              _mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
  }
}

/// The largest and the smallest magnitude in every lane, as bits. Bits have the order of the
/// floats, and a NaN is larger than all.
struct Magnitudes {
  __m512i largest, smallest;
};
MARLIN_AVX512 MARLIN_INLINE Magnitudes no_magnitudes() {
  return {_mm512_setzero_si512(), _mm512_set1_epi32(0x7fffffff)};
}

MARLIN_AVX512 MARLIN_INLINE void widen(Magnitudes& all, const Magnitudes& more) {
  all = {_mm512_max_epu32(all.largest, more.largest),
         _mm512_min_epu32(all.smallest, more.smallest)};
}

MARLIN_AVX512 MARLIN_INLINE __m512i broadcast(const uint32_t* x) {
  return _mm512_set1_epi32(static_cast<int>(*x));
}

/// Decodes `groups` rows of scales of columns of groups [v0, v0 + nv) to out[group][64], times
/// `factor`, and returns their magnitudes; of two-level scales, bounds.
MARLIN_AVX512 Magnitudes decode_scale_rows(ScaleType type, const uint8_t* p, int groups, int v0,
                                           int nv, float factor, float* out);

/// Decodes the additive zeros of a superblock, whose scales are decoded, for columns of groups [v0,
/// v0 + nv).
MARLIN_AVX512 void decode_zero_rows(const SuperShape& shape, const uint8_t* super, int v0, int nv,
                                    const float* scales, float* out);

/// Decodes nested scales. A fused multiply-add rounds each of them once.
MARLIN_AVX512 void decode_nested_rows(const SuperShape& shape, const uint8_t* super, float* out);

/// 16 - zero for the groups of a superblock, in every byte of the column's dword, as
/// CodeLines::read takes it.
MARLIN_AVX512 void decode_offsets(const uint8_t* zeros, int groups, int v0, int nv,
                                  uint32_t (*out)[kPanelColumns]);

/// Expands column groups [v0, v0 + nv) of a superblock (expand.h). `ahead` is the prefetch
/// distance, or 0.
MARLIN_AVX512 void expand_avx512(const PanelLayout& layout, const uint8_t* super, int v0, int nv,
                                 int64_t ahead, uint8_t* to);

/// What the unsigned integers of 4-bit codes are above their value (FP4: twice the value).
constexpr int offset_of_codes(CodeKind code) {
  if (code == CodeKind::u4) return 8;
  if (code == CodeKind::u4zero) return 16;
  return code == CodeKind::fp4 ? 12 : 0;
}
/// Expands 4-bit codes, dense or 2:4 sparse, of column groups [v0, v0 + nv) of a superblock to
/// these integers less `less`; and other codes like expand_avx512.
MARLIN_AVX512 void expand_to_bytes(const PanelLayout& layout, CodeKind code, int less,
                                   const uint8_t* super, int v0, int nv, int64_t ahead,
                                   uint8_t* out);
/// The same less 128, as Reading::bytes reads them; codes with additive zeros stay as they are.
MARLIN_INLINE void expand_for_int8(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                                   int v0, int nv, int64_t ahead, uint8_t* out) {
  expand_to_bytes(layout, code, is_additive(code) ? 0 : 128, super, v0, nv, ahead, out);
}

/// Loads the float sums of a tile, 64 columns wide, from the previous chunk, or 0 for the first;
/// and stores them.
template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void load_sums(bool first, const float* sums,
                                           __m512 (&acc)[kRows][kColumnGroups]) {
  MARLIN_UNROLLED_2(r, kRows, v, kColumnGroups)
    acc[r][v] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kPanelColumns + 16 * v);
}

template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void store_sums(const __m512 (&acc)[kRows][kColumnGroups],
                                            float* sums) {
  MARLIN_UNROLLED_2(r, kRows, v, kColumnGroups)
    _mm512_store_ps(sums + r * kPanelColumns + 16 * v, acc[r][v]);
}

/// The same for 16 columns.
template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void load_sums(bool first, const float* sums, __m512 (&acc)[kRows]) {
  MARLIN_UNROLLED(r, kRows)
    acc[r] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kPanelColumns);
}
template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void store_sums(const __m512 (&acc)[kRows], float* sums) {
  MARLIN_UNROLLED(r, kRows) _mm512_store_ps(sums + r * kPanelColumns, acc[r]);
}

/// Calls call.operator()<kRows>() for the least even number of rows, kMost at most, that holds
/// `rows`.
template <int kMost, class Call>
MARLIN_INLINE void dispatch_rows(int rows, Call call) {
  if constexpr (kMost > 2)
    if (rows <= kMost - 2) return dispatch_rows<kMost - 2>(rows, call);
  call.template operator()<kMost>();
}

/// Prefetches into L2 a quarter of kDwords of the next tile's packed A blocks, which lie `later`
/// after those of this tile, while one (v) of four times 16 columns is multiplied. Activations of
/// many rows lie in L3, and without this the first columns would wait for all of them.
template <int kDwords>
MARLIN_INLINE void fetch_later_a_blocks(const uint32_t* a_block, int64_t later, int v) {
  constexpr int kLines = (kDwords + 15) / 16;
#pragma GCC unroll 8
  for (int line = 0; line < kLines; line += kColumnGroups)
    if (line + v < kLines)
      fetch_line(reinterpret_cast<const uint8_t*>(a_block + later + 16 * (line + v)));
}

/// The memory to prefetch while one pass over a panel runs, a few lines per block.
///
/// A single pass over the panel prefetches its own bytes, some KB ahead. If there are several
/// passes (more rows than a tile holds), the first pass finds the panel in L2. Each pass then
/// prefetches its share of the next panel into L2, so that memory is always busy.
struct PrefetchShare {
  const char* from = nullptr;
  uint64_t lines_per_block = 0;  ///< in units of 1 / 2^16, to avoid a division for every block

  MARLIN_INLINE void operator()(int64_t block) const {
    const uint64_t first = static_cast<uint64_t>(block) * lines_per_block;
    for (uint64_t i = first >> 16, end = (first + lines_per_block) >> 16; i < end; ++i)
      _mm_prefetch(from + 64 * i, _MM_HINT_T1);
  }
};

inline PrefetchShare share_of_next_panel(const PanelLayout& layout, const uint8_t* panel,
                                         int64_t pass, int64_t passes) {
  const int64_t lines = layout.panel_bytes() / 64, blocks = layout.slots / kBlockSlots;
  return {
      reinterpret_cast<const char*>(panel) + layout.panel_bytes() + 64 * (lines * pass / passes),
      (static_cast<uint64_t>(lines) << 16) / static_cast<uint64_t>(passes * blocks) + 1};
}

}  // namespace metal_marlin::cpu
