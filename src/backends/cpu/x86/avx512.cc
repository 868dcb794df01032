// What the AVX-512 kernels do once for a superblock or a chunk: scales, zeros and the expansion of
// codes. Apart from their loops, because a compiler would keep constants of these functions in
// registers around a loop, and sums would spill.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx512_float.h"
#include "backends/cpu/x86/avx512_int8_reading.h"

namespace metal_marlin::cpu {
namespace {

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

/// Part of each caller, because one more call takes up to a tenth of the time of one row.
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

}  // namespace

MARLIN_AVX512 Magnitudes decode_scale_rows(ScaleType type, const uint8_t* p, int groups, int v0,
                                           int nv, float factor, float* out) {
  return decode_any_scale_rows(type, p, groups, v0, nv, factor, out);
}

/// Decodes the additive zeros of a superblock, whose scales are decoded, for columns of groups [v0,
/// v0 + nv).
MARLIN_AVX512 void decode_zero_rows(const SuperShape& shape, const uint8_t* super, int v0, int nv,
                                    const float* scales, float* out) {
  const PanelLayout& layout = shape.layout;
  if (layout.zero_kind == ZeroKind::additive)
    decode_scale_rows(shape.zero_type, super + shape.zeros, shape.groups, v0, nv, 1.0f, out);
  if (layout.less_128)
    correct_zeros(layout, super + shape.zeros, shape.groups, 16 * v0, 16 * nv, scales, out);
}

/// Decodes nested scales. A fused multiply-add rounds each of them once.
MARLIN_AVX512 void decode_nested_rows(const SuperShape& shape, const uint8_t* super, float* out) {
  const NestedSuper nested(shape.layout, shape.panel, super);
  const uint8_t* bytes = super + shape.scales;
  for (int g = 0; g < shape.groups; ++g) {
    const float* const factors = nested.factors(g);
    for (int c = 0; c < kPanelColumns; c += 16, bytes += 16, out += 16) {
      const __m512i index =
          _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
      _mm512_store_ps(
          out, _mm512_fmadd_ps(_mm512_i32gather_ps(index, shape.layout.scale_map, 4),
                               _mm512_loadu_ps(factors + c), _mm512_loadu_ps(nested.offsets + c)));
    }
  }
}

MARLIN_AVX512 void decode_float_super(CodeKind code, const SuperShape& shape, const uint8_t* super,
                                      FloatSuper& out, float factor) {
  if (shape.layout.has_nested_scales()) return decode_nested_rows(shape, super, &out.scale[0][0]);
  decode_any_scale_rows(shape.scale_type, super + shape.scales, shape.groups, 0, 4, factor,
                        &out.scale[0][0]);
  if (is_additive(code)) decode_zero_rows(shape, super, 0, 4, &out.scale[0][0], &out.zero[0][0]);
  if (code == CodeKind::u4zero) decode_offsets(super + shape.zeros, shape.groups, 0, 4, out.offset);
}

/// 16 - zero for the groups of a superblock, in every byte of the column's dword, as
/// CodeLines::read takes it.
MARLIN_AVX512 void decode_offsets(const uint8_t* zeros, int groups, int v0, int nv,
                                  uint32_t (*out)[kPanelColumns]) {
  for (int g = 0; g < groups; ++g)
    for (int v = v0; v < v0 + nv; ++v) {
      const auto* from = reinterpret_cast<const __m128i*>(zeros + g * kPanelColumns + 16 * v);
      const __m512i offset =
          _mm512_sub_epi32(_mm512_set1_epi32(16), _mm512_cvtepu8_epi32(_mm_loadu_si128(from)));
      _mm512_store_si512(&out[g][16 * v],
                         _mm512_mullo_epi32(offset, _mm512_set1_epi32(0x01010101)));
    }
}

#define MARLIN_EXPAND_TARGET MARLIN_AVX512
#define MARLIN_EXPAND_BYTES Avx512Bytes
#define MARLIN_EXPAND expand_in_avx512
#include "backends/cpu/expand.inc"
MARLIN_AVX512 void expand_avx512(const PanelLayout& layout, const uint8_t* super, int v0, int nv,
                                 int64_t ahead, uint8_t* to) {
  expand_in_avx512(layout, super, v0, nv, ahead, to);
}

namespace {

/// expand_to_bytes of lines of 4-bit codes, or of kept codes.
template <Reading kReading, CodeKind kCode, bool kSparse>
MARLIN_AVX512 void expand_nibbles(const PanelLayout& layout, int less, const uint8_t* super, int v0,
                                  int nv, int64_t ahead, uint8_t* out) {
  using Dense = DenseCodes<kReading>;
  using Lines = CodeLines<kCode, kSparse>;
  const SuperShape shape(layout);
  alignas(64) uint32_t offsets[8][kPanelColumns];
  if constexpr (kCode == CodeKind::u4zero)
    decode_offsets(super + shape.zeros, shape.groups, v0, nv, offsets);
  const __m512i table = _mm512_load_si512(table_of_bytes(layout)),
                minus = _mm512_set1_epi8(static_cast<char>(less));
  for (int b = 0; b < kBlocksPerSuper; ++b)
    for (int v = v0; v < v0 + nv; ++v) {
      const int place = b * kColumnGroups + v;
      const uint8_t* const group = super + place * Lines::kBytes;
      uint8_t* const to = out + place * kExpandedGroupBytes;
      for (int octet = 0; octet < 4; ++octet) {
        if (ahead != 0) Lines::fetch(group, octet, ahead);
        const uint32_t* const offset = &offsets[(2 * b + octet / 2) >> shape.shift][16 * v];
        const Codes codes = Lines::read(group, octet, _mm512_load_si512(offset));
        __m512i quad[2] = {Dense::template quad<0, 0>(codes, table),
                           Dense::template quad<0, 1>(codes, table)};
        if constexpr (kSparse) {
          quad[0] = codes.low;
          quad[1] = codes.high;
          if constexpr (kCode == CodeKind::fp4)
            MARLIN_UNROLLED(q, 2) quad[q] = _mm512_permutexvar_epi8(quad[q], table);
        }
        MARLIN_UNROLLED(q, 2)
          _mm512_store_si512(to + 128 * octet + 64 * q, _mm512_sub_epi8(quad[q], minus));
      }
    }
}

}  // namespace

MARLIN_AVX512 void expand_to_bytes(const PanelLayout& layout, CodeKind code, int less,
                                   const uint8_t* super, int v0, int nv, int64_t ahead,
                                   uint8_t* out) {
  using enum CodeKind;
  if (layout.expansion != Expansion::none) return expand_avx512(layout, super, v0, nv, ahead, out);
  auto expand = layout.sparse ? expand_nibbles<Reading::nibbles, u4, true>
                              : expand_nibbles<Reading::nibbles, u4, false>;
  if (code == u4zero)
    expand = layout.sparse ? expand_nibbles<Reading::less_zeros, u4zero, true>
                           : expand_nibbles<Reading::less_zeros, u4zero, false>;
  if (code == fp4)
    expand = layout.sparse ? expand_nibbles<Reading::looked_up, fp4, true>
                           : expand_nibbles<Reading::looked_up, fp4, false>;
  expand(layout, less, super, v0, nv, ahead, out);
}

}  // namespace metal_marlin::cpu

#endif
