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

/// Decodes `groups` rows of scales to out[group][64], times `factor`, and returns their magnitudes.
template <ScaleType kType>
MARLIN_AVX512 inline Magnitudes decode_scale_rows(const uint8_t* p, int groups, int v0, int nv,
                                                  float factor, float* out) {
  Magnitudes all = no_magnitudes();
  for (int g = 0; g < groups; ++g)
    for (int v = v0; v < v0 + nv; ++v) {
      const __m512 s =
          _mm512_mul_ps(load_scales<kType>(p, g * kPanelColumns + 16 * v), _mm512_set1_ps(factor));
      const __m512i magnitude =
          _mm512_and_si512(_mm512_castps_si512(s), _mm512_set1_epi32(0x7fffffff));
      all.largest = _mm512_max_epu32(all.largest, magnitude);
      all.smallest = _mm512_min_epu32(all.smallest, magnitude);
      _mm512_storeu_ps(out + g * kPanelColumns + 16 * v, s);
    }
  return all;
}

/// The integers of two-level scales as signed bytes.
struct alignas(64) ScaleIntegers {
  int8_t of[8][kPanelColumns];  ///< [group]
};

/// The largest magnitude of an integer of a two-level type.
constexpr float largest_integer(ScaleType type) {
  if (type == ScaleType::u4) return 15;
  if (type == ScaleType::s8) return 128;
  return type == ScaleType::u6 ? 63 : 32;
}

/// Joins the bits of group 4 i + kGroup, for all 64 columns: `low` is its row of low bits, `high`
/// its row of high bits, if it has one (layout.h).
template <ScaleType kType, int kGroup>
MARLIN_AVX512 MARLIN_INLINE __m512i join_integers(__m512i low, __m512i high) {
  if constexpr (kGroup % 2 == 1) low = _mm512_srli_epi16(low, 4);
  low = _mm512_and_si512(low, _mm512_set1_epi8(15));
  if constexpr (kType == ScaleType::u4) return low;
  if constexpr (kGroup < 2) high = _mm512_slli_epi16(high, 4 - 2 * kGroup);
  if constexpr (kGroup == 3) high = _mm512_srli_epi16(high, 2);
  constexpr int kLowOrMasked = 0xf8;  // low | (high & mask)
  const __m512i q = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(0x30), kLowOrMasked);
  if constexpr (kType == ScaleType::u6) return q;
  const __m512i sign = _mm512_set1_epi8(32);
  return _mm512_sub_epi8(_mm512_xor_si512(q, sign), sign);
}

/// Reads the integers of all groups of a superblock.
template <ScaleType kType>
MARLIN_AVX512 MARLIN_INLINE void read_integers(const uint8_t* p, int groups, ScaleIntegers& out) {
  const uint8_t* const high_rows = p + kPanelColumns * two_level_low_rows(kType, groups);
  for (int first = 0; first < groups; first += 4) {
    const uint8_t* const low = p + kPanelColumns * (first / 2);
    const __m512i high = kType == ScaleType::u4
                             ? _mm512_setzero_si512()
                             : _mm512_loadu_si512(high_rows + kPanelColumns * (first / 4));
    const __m512i pair = _mm512_loadu_si512(low);
    _mm512_store_si512(out.of[first], join_integers<kType, 0>(pair, high));
    if (first + 1 < groups)
      _mm512_store_si512(out.of[first + 1], join_integers<kType, 1>(pair, high));
    if (first + 2 >= groups) return;
    const __m512i next = _mm512_loadu_si512(low + kPanelColumns);
    _mm512_store_si512(out.of[first + 2], join_integers<kType, 2>(next, high));
    if (first + 3 < groups)
      _mm512_store_si512(out.of[first + 3], join_integers<kType, 3>(next, high));
  }
}

/// Decodes two-level scales to the products of integers and factors, which are exact. The
/// magnitudes that it returns are bounds.
template <ScaleType kType>
MARLIN_AVX512 inline Magnitudes decode_two_level_rows(const uint8_t* p, int groups, int v0, int nv,
                                                      float factor, float* out) {
  ScaleIntegers joined;
  const int8_t(*integers)[kPanelColumns] = joined.of;
  if constexpr (kType == ScaleType::s8)
    integers = reinterpret_cast<const int8_t(*)[kPanelColumns]>(p);
  else
    read_integers<kType>(p, groups, joined);
  const uint8_t* const factors =
      p + kPanelColumns * (two_level_low_rows(kType, groups) + two_level_high_rows(kType, groups));
  Magnitudes all = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int v = v0; v < v0 + nv; ++v) {
    const __m512 d =
        _mm512_mul_ps(load_scales<ScaleType::f16>(factors, 16 * v), _mm512_set1_ps(factor));
    const __m512 most = _mm512_abs_ps(_mm512_mul_ps(d, _mm512_set1_ps(largest_integer(kType))));
    all.largest = _mm512_max_epu32(all.largest, _mm512_castps_si512(most));
    for (int g = 0; g < groups; ++g) {
      const auto* const from = reinterpret_cast<const __m128i*>(&integers[g][16 * v]);
      const __m512i q = _mm512_cvtepi8_epi32(_mm_loadu_si128(from));
      _mm512_storeu_ps(out + g * kPanelColumns + 16 * v, _mm512_mul_ps(_mm512_cvtepi32_ps(q), d));
    }
  }
  return all;
}

MARLIN_AVX512 MARLIN_INLINE Magnitudes decode_any_scale_rows(ScaleType type, const uint8_t* p,
                                                             int groups, int v0, int nv,
                                                             float factor, float* out) {
  switch (type) {
    case ScaleType::f32:
      return decode_scale_rows<ScaleType::f32>(p, groups, v0, nv, factor, out);
    case ScaleType::f16:
      return decode_scale_rows<ScaleType::f16>(p, groups, v0, nv, factor, out);
    case ScaleType::bf16:
      return decode_scale_rows<ScaleType::bf16>(p, groups, v0, nv, factor, out);
    case ScaleType::e8m0:
      return decode_scale_rows<ScaleType::e8m0>(p, groups, v0, nv, factor, out);
    case ScaleType::e4m3:
      return decode_scale_rows<ScaleType::e4m3>(p, groups, v0, nv, factor, out);
    case ScaleType::u4:
      return decode_two_level_rows<ScaleType::u4>(p, groups, v0, nv, factor, out);
    case ScaleType::u6:
      return decode_two_level_rows<ScaleType::u6>(p, groups, v0, nv, factor, out);
    case ScaleType::s6:
      return decode_two_level_rows<ScaleType::s6>(p, groups, v0, nv, factor, out);
    case ScaleType::s8:
      return decode_two_level_rows<ScaleType::s8>(p, groups, v0, nv, factor, out);
    case ScaleType::nested:  // decode_nested_rows
      break;
  }
  return no_magnitudes();
}
/// Never inlined: a compiler would keep its constants in registers around the loops of a kernel,
/// and sums would spill.
MARLIN_AVX512 [[gnu::noinline]] inline Magnitudes decode_scale_rows(ScaleType type,
                                                                    const uint8_t* p, int groups,
                                                                    int v0, int nv, float factor,
                                                                    float* out) {
  return decode_any_scale_rows(type, p, groups, v0, nv, factor, out);
}

/// Decodes the additive zeros of a superblock, whose scales are decoded, for columns of groups [v0,
/// v0 + nv).
MARLIN_AVX512 inline void decode_zero_rows(const SuperShape& shape, const uint8_t* super, int v0,
                                           int nv, const float* scales, float* out) {
  const PanelLayout& layout = shape.layout;
  if (layout.zero_kind == ZeroKind::additive)
    decode_scale_rows(shape.zero_type, super + shape.zeros, shape.groups, v0, nv, 1.0f, out);
  if (layout.less_128)
    correct_zeros(layout, super + shape.zeros, shape.groups, 16 * v0, 16 * nv, scales, out);
}

/// The vectors in which codes are expanded.
struct Avx512Bytes {
  using Vector = __m512i;
  static constexpr int kBytes = 64;
  MARLIN_AVX512 MARLIN_INLINE static Vector load(const uint8_t* p) { return _mm512_load_si512(p); }
  MARLIN_AVX512 MARLIN_INLINE static void store(uint8_t* p, Vector x) { _mm512_store_si512(p, x); }
  MARLIN_AVX512 MARLIN_INLINE static Vector splat(int x) {
    return _mm512_set1_epi8(static_cast<char>(x));
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector both(Vector a, Vector b) {
    return _mm512_and_si512(a, b);
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector either(Vector a, Vector b) {
    return _mm512_or_si512(a, b);
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector minus(Vector a, Vector b) {
    return _mm512_sub_epi8(a, b);
  }
  template <int kBits>
  MARLIN_AVX512 MARLIN_INLINE static Vector left(Vector x) {
    return _mm512_slli_epi16(x, kBits);
  }
  template <int kBits>
  MARLIN_AVX512 MARLIN_INLINE static Vector right(Vector x) {
    return _mm512_srli_epi16(x, kBits);
  }
  template <int kBits>
  MARLIN_AVX512 MARLIN_INLINE static Vector left_16(Vector x) {
    return _mm512_slli_epi16(x, kBits);
  }
  template <int kBits>
  MARLIN_AVX512 MARLIN_INLINE static Vector right_16(Vector x) {
    return _mm512_srli_epi16(x, kBits);
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector splat_16(int x) {
    return _mm512_set1_epi16(static_cast<short>(x));
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector plus_16(Vector a, Vector b) {
    return _mm512_add_epi16(a, b);
  }
  MARLIN_AVX512 MARLIN_INLINE static __mmask32 less_16(Vector a, Vector b) {
    return _mm512_cmplt_epi16_mask(a, b);
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector choose(__mmask32 mask, Vector yes, Vector no) {
    return _mm512_mask_mov_epi16(no, mask, yes);
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector look_up_e4m3(Vector index) {
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kE4m3Subnormals.of));
    return _mm512_permutexvar_epi16(index, _mm512_broadcast_i32x4(table));
  }
  MARLIN_AVX512 MARLIN_INLINE static Vector look_up_iq4(Vector index) {
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kIq4Bytes.of));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), index);
  }
};
#define MARLIN_EXPAND_TARGET MARLIN_AVX512
#define MARLIN_EXPAND_BYTES Avx512Bytes
#define MARLIN_EXPAND expand_avx512
#include "backends/cpu/expand.inc"

/// Loads the float sums of a tile, 64 columns wide, from the previous chunk, or 0 for the first;
/// and stores them.
template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void load_sums(bool first, const float* sums,
                                           __m512 (&acc)[kRows][kColumnGroups]) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kColumnGroups; ++v)
      acc[r][v] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kPanelColumns + 16 * v);
}

template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void store_sums(const __m512 (&acc)[kRows][kColumnGroups],
                                            float* sums) {
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kColumnGroups; ++v)
      _mm512_store_ps(sums + r * kPanelColumns + 16 * v, acc[r][v]);
}

/// The same for 16 columns.
template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void load_sums(bool first, const float* sums, __m512 (&acc)[kRows]) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
    acc[r] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * kPanelColumns);
}
template <int kRows>
MARLIN_AVX512 MARLIN_INLINE void store_sums(const __m512 (&acc)[kRows], float* sums) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) _mm512_store_ps(sums + r * kPanelColumns, acc[r]);
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
