// What the AVX2 kernels do once for a superblock: scales, zeros and the expansion of codes.
#if defined(__x86_64__)

#include "backends/cpu/x86/avx2_scales.h"

namespace metal_marlin::cpu {
namespace {

/// Decodes 8 scales to floats exactly. `index` counts scales. The cases are those of the AVX-512
/// function.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE __m256 load_8_scales(const uint8_t* p, int64_t index) {
  if constexpr (kType == ScaleType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p + 4 * index));
  } else if constexpr (kType == ScaleType::f16) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * index)));
  } else if constexpr (kType == ScaleType::bf16) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * index)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  } else if constexpr (kType == ScaleType::e8m0) {
    const __m256i e =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + index)));
    const __m256i next =
        _mm256_and_si256(_mm256_add_epi32(e, _mm256_set1_epi32(1)), _mm256_set1_epi32(255));
    const __m256i edge = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), next);
    return _mm256_castsi256_ps(_mm256_or_si256(
        _mm256_slli_epi32(e, 23), _mm256_and_si256(edge, _mm256_set1_epi32(0x400000))));
  } else {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + index));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7),
                                       _mm_set1_epi16(static_cast<short>(0xbfff)));
    const __m256i code = _mm256_and_si256(_mm256_cvtepu8_epi32(bytes), _mm256_set1_epi32(0x7f));
    const __m256 nan = _mm256_castsi256_ps(
        _mm256_cmpeq_epi32(code, _mm256_set1_epi32(0x7f)));  // all ones is a NaN
    return _mm256_or_ps(_mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f)), nan);
  }
}

/// Decodes n scales (a multiple of 8), times `factor`, to `out`.
template <ScaleType kType>
MARLIN_AVX2 inline void decode_scales_avx2(const uint8_t* p, int n, float factor, float* out) {
  for (int i = 0; i < n; i += 8)
    _mm256_storeu_ps(out + i, _mm256_mul_ps(load_8_scales<kType>(p, i), _mm256_set1_ps(factor)));
}

/// 8 bytes, as dwords, from bit `shift` on.
MARLIN_AVX2 MARLIN_INLINE __m256i load_8_bits(const uint8_t* p, int shift, int mask) {
  const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(mask));
}

/// The integers of 8 columns of a two-level type, of group g.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE __m256i load_8_integers(const uint8_t* p, int low_rows, int g) {
  if constexpr (kType == ScaleType::s8) {
    return _mm256_cvtepi8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + kPanelColumns * g)));
  } else {
    const __m256i low = load_8_bits(p + kPanelColumns * (g / 2), g % 2 * 4, 15);
    if constexpr (kType == ScaleType::u4) return low;
    const __m256i high = load_8_bits(p + kPanelColumns * (low_rows + g / 4), g % 4 * 2, 3);
    const __m256i q = _mm256_or_si256(low, _mm256_slli_epi32(high, 4));
    if constexpr (kType == ScaleType::u6) return q;
    return _mm256_srai_epi32(_mm256_slli_epi32(q, 26), 26);
  }
}

/// The same for two-level scales: the products of integers and factors, which are exact.
template <ScaleType kType>
MARLIN_AVX2 inline void decode_two_level_avx2(const uint8_t* p, int n, float factor, float* out) {
  const int groups = n / kPanelColumns, low_rows = two_level_low_rows(kType, groups),
            high_rows = two_level_high_rows(kType, groups);
  const uint8_t* const factors = p + kPanelColumns * (low_rows + high_rows);
  for (int c = 0; c < kPanelColumns; c += 8) {
    const __m256 d =
        _mm256_mul_ps(load_8_scales<ScaleType::f16>(factors, c), _mm256_set1_ps(factor));
    for (int g = 0; g < groups; ++g)
      _mm256_storeu_ps(
          out + g * kPanelColumns + c,
          _mm256_mul_ps(_mm256_cvtepi32_ps(load_8_integers<kType>(p + c, low_rows, g)), d));
  }
}

/// Decodes the nested scales of a superblock. A fused multiply-add rounds each of them once.
MARLIN_AVX2 inline void decode_nested_avx2(const PanelLayout& layout, const uint8_t* panel,
                                           const uint8_t* super, float* out) {
  const NestedSuper nested(layout, panel, super);
  const uint8_t* bytes = super + layout.scales_offset();
  for (int g = 0; g < layout.groups_per_super(); ++g) {
    const float* const factors = nested.factors(g);
    for (int c = 0; c < kPanelColumns; c += 8, bytes += 8, out += 8) {
      const __m256i index =
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
      _mm256_storeu_ps(
          out, _mm256_fmadd_ps(_mm256_i32gather_ps(layout.scale_map, index, 4),
                               _mm256_loadu_ps(factors + c), _mm256_loadu_ps(nested.offsets + c)));
    }
  }
}

/// Joins the planes of 4 and 2 bits to bytes, for 32 columns of all groups. `low` and `high` are
/// rows of the planes, from the first column on; high is null for integers of 4 bits.
template <ScaleType kType>
MARLIN_AVX2 MARLIN_INLINE void join_integers(const uint8_t* low, const uint8_t* high, int groups,
                                             int8_t* out) {
  const __m256i fifteen = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30),
                sign = _mm256_set1_epi8(32);
  MARLIN_UNROLLED(g, 8) {
    if (g == groups) break;
    __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + kPanelColumns * (g / 2)));
    q = _mm256_and_si256(g % 2 == 0 ? q : _mm256_srli_epi16(q, 4), fifteen);
    if constexpr (kType != ScaleType::u4) {
      const __m256i two =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high + kPanelColumns * (g / 4)));
      const __m256i moved =
          g % 4 < 3 ? _mm256_slli_epi16(two, 4 - 2 * (g % 4)) : _mm256_srli_epi16(two, 2);
      q = _mm256_or_si256(q, _mm256_and_si256(moved, upper));
    }
    if constexpr (kType == ScaleType::s6) q = _mm256_sub_epi8(_mm256_xor_si256(q, sign), sign);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + kPanelColumns * g), q);
  }
}

template <ScaleType kType>
MARLIN_AVX2 inline void decode_integers(const uint8_t* p, int groups, TwoLevelScales& out) {
  const uint8_t* const high = p + kPanelColumns * two_level_low_rows(kType, groups);
  for (int c = 0; c < kPanelColumns; c += 32)
    join_integers<kType>(p + c, high + c, groups, out.joined[0] + c);
  out.integers = out.joined[0];
}

/// Decodes the two-level scales or zeros of a superblock at p.
MARLIN_AVX2 inline void decode_two_level(ScaleType type, const uint8_t* p, int groups,
                                         TwoLevelScales& out) {
  if (type == ScaleType::s8)
    out.integers = reinterpret_cast<const int8_t*>(p);
  else if (type == ScaleType::u6)
    decode_integers<ScaleType::u6>(p, groups, out);
  else if (type == ScaleType::s6)
    decode_integers<ScaleType::s6>(p, groups, out);
  else
    decode_integers<ScaleType::u4>(p, groups, out);
  const uint8_t* const factors =
      p + kPanelColumns * (two_level_low_rows(type, groups) + two_level_high_rows(type, groups));
  for (int c = 0; c < kPanelColumns; c += 8)
    _mm256_store_ps(
        out.factors + c,
        _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(factors + 2 * c))));
}

/// The vectors in which codes are expanded.
struct Avx2Bytes {
  using Vector = __m256i;
  static constexpr int kBytes = 32;
  MARLIN_AVX2 MARLIN_INLINE static Vector load(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  MARLIN_AVX2 MARLIN_INLINE static void store(uint8_t* p, Vector x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), x);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector splat(int x) {
    return _mm256_set1_epi8(static_cast<char>(x));
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector both(Vector a, Vector b) {
    return _mm256_and_si256(a, b);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector either(Vector a, Vector b) {
    return _mm256_or_si256(a, b);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector minus(Vector a, Vector b) {
    return _mm256_sub_epi8(a, b);
  }
  template <int kBits>
  MARLIN_AVX2 MARLIN_INLINE static Vector left(Vector x) {
    return _mm256_slli_epi16(x, kBits);
  }
  template <int kBits>
  MARLIN_AVX2 MARLIN_INLINE static Vector right(Vector x) {
    return _mm256_srli_epi16(x, kBits);
  }
  MARLIN_AVX2 MARLIN_INLINE static Vector look_up_iq4(Vector index) {
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kIq4Bytes.of));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
  }
};

}  // namespace

MARLIN_AVX2 void decode_scales_avx2(ScaleType type, const uint8_t* p, int n, float factor,
                                    float* out) {
  switch (type) {
    case ScaleType::f32:
      return decode_scales_avx2<ScaleType::f32>(p, n, factor, out);
    case ScaleType::f16:
      return decode_scales_avx2<ScaleType::f16>(p, n, factor, out);
    case ScaleType::bf16:
      return decode_scales_avx2<ScaleType::bf16>(p, n, factor, out);
    case ScaleType::e8m0:
      return decode_scales_avx2<ScaleType::e8m0>(p, n, factor, out);
    case ScaleType::e4m3:
      return decode_scales_avx2<ScaleType::e4m3>(p, n, factor, out);
    case ScaleType::u4:
      return decode_two_level_avx2<ScaleType::u4>(p, n, factor, out);
    case ScaleType::u6:
      return decode_two_level_avx2<ScaleType::u6>(p, n, factor, out);
    case ScaleType::s6:
      return decode_two_level_avx2<ScaleType::s6>(p, n, factor, out);
    case ScaleType::s8:
      return decode_two_level_avx2<ScaleType::s8>(p, n, factor, out);
    case ScaleType::nested:  // decode_real_scales_avx2
      return;
  }
}

#define MARLIN_EXPAND_TARGET MARLIN_AVX2
#define MARLIN_EXPAND_BYTES Avx2Bytes
#define MARLIN_EXPAND expand_in_avx2
#define MARLIN_EXPAND_WITHOUT_E4M3  // avx2_f32.h
#include "backends/cpu/expand.inc"
MARLIN_AVX2 void expand_avx2(const PanelLayout& layout, const uint8_t* super, int v0, int nv,
                             int64_t ahead, uint8_t* to) {
  expand_in_avx2(layout, super, v0, nv, ahead, to);
}

/// Decodes the additive zeros of a superblock whose n scales are decoded.
MARLIN_AVX2 void decode_zeros_avx2(const PanelLayout& layout, const uint8_t* super, int n,
                                   const float* scales, float* out) {
  const uint8_t* const zeros = super + layout.zeros_offset();
  if (layout.zero_kind == ZeroKind::additive)
    decode_scales_avx2(layout.zero_type, zeros, n, 1.0f, out);
  if (layout.less_128)
    correct_zeros(layout, zeros, n / kPanelColumns, 0, kPanelColumns, scales, out);
}

MARLIN_AVX2 void decode_float_scales_avx2(const PanelArgs& args, const uint8_t* super, float* scale,
                                          float* zero) {
  const PanelLayout& layout = *args.layout;
  if (layout.has_nested_scales()) return decode_nested_avx2(layout, args.panel, super, scale);
  const int n = layout.groups_per_super() * kPanelColumns;
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n, 1.0f, scale);
  if (is_additive(args.code)) decode_zeros_avx2(layout, super, n, scale, zero);
}

MARLIN_AVX2 void decode_super(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                              Avx2FloatScales& out) {
  const int n = layout.groups_per_super() * kPanelColumns;
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n, code_factor(code),
                     &out.scale[0][0]);
  if (is_additive(code)) decode_zeros_avx2(layout, super, n, &out.scale[0][0], &out.zero[0][0]);
}

MARLIN_AVX2 void decode_super(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                              Avx2TwoLevelScales& out) {
  const int groups = layout.groups_per_super();
  decode_two_level(layout.scale_type, super + layout.scales_offset(), groups, out.scale);
  if (is_additive(code))
    decode_two_level(layout.zero_type, super + layout.zeros_offset(), groups, out.zero);
}

}  // namespace metal_marlin::cpu

#endif
