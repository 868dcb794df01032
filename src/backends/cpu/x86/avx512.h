// Code that the AVX-512 kernels share: planes of codes, sums, and prefetching.
#pragma once

#include <bit>
#include <cstdint>

#include "backends/cpu/x86/vec/avx512.h"

namespace metal_marlin::cpu {

/// Moves the upper bits of quad kQuad (0, 1) of octet kOctet, whose plane has kHigh bits, from the
/// line `high` to bit 4 of bytes. Bits of other codes remain around them. The shifts use pipes that
/// multiplications do not use.
template <int kHigh, int kOctet, int kQuad>
MARLIN_AVX512 MARLIN_INLINE __m512i move_high(__m512i high) {
  constexpr int kFrom = (2 * kOctet + kQuad) * kHigh % 8, kTo = 4;
  if constexpr (kFrom < kTo) return _mm512_slli_epi16(high, kTo - kFrom);
  if constexpr (kFrom > kTo) return _mm512_srli_epi16(high, kFrom - kTo);
  return high;
}
/// The same quad in the lowest bits of bytes, with the lower 4 bits from the line `low`.
template <int kHigh, int kOctet, int kQuad>
MARLIN_AVX512 MARLIN_INLINE __m512i join_planes(__m512i low, __m512i high) {
  constexpr int kChoose = 0xd8;  // mask ? low : high, in the register of high, which is no constant
  if constexpr (kQuad == 1) low = _mm512_srli_epi16(low, 4);
  const __m512i moved = move_high<kHigh, kOctet, kQuad>(high);
  return _mm512_ternarylogic_epi32(moved, low, _mm512_set1_epi8(15), kChoose);
}
/// The line of the second plane that holds an octet, counted from the first line of the block.
constexpr int high_line(int high_bits, int octet) { return 4 + octet * high_bits / 4; }

/// Elements of A or C; those without a bit in the mask are 0, and are not read.
MARLIN_AVX512 MARLIN_INLINE __m512 load_16(marlin_dtype dtype, const std::byte* p, __mmask16 mask) {
  if (dtype == MARLIN_F32) return _mm512_maskz_loadu_ps(mask, p);
  const __m256i half = _mm256_maskz_loadu_epi16(mask, p);
  if (dtype == MARLIN_F16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Expands a superblock to what Reading::bytes reads: unsigned integers less 128; codes with
/// additive zeros stay as they are.
MARLIN_INLINE void expand_for_int8(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                                   int64_t ahead, uint8_t* out) {
  expand_super(layout, code, is_additive(code) ? 0 : 128, super, ahead, out);
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
