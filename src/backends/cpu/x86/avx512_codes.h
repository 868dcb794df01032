// Lines of packed codes (layout.h), dense and 2:4 sparse, as the AVX-512 kernels take them.
#pragma once

#include <cstdint>

#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

/// A line of 4-bit codes, 16 columns x 8 slots: one register of packed nibbles, or two of bytes, slots 0..3 and 4..7 of the
/// line.
struct Codes {
  __m512i low, high;  ///< high: only when split
};

template <CodeKind kCode, bool kSparse>
struct CodeLines {
  static_assert(!(kSparse && is_eight_bits(kCode)));
  static constexpr int kLines = is_eight_bits(kCode) ? 8 : 4;               ///< of a block
  static constexpr int kBytes = kSparse ? kSparseGroupBytes : kLines * 64;  ///< of a block of a column group
  static constexpr int kFetches = kBytes / 64;                              ///< cache lines of that
  static constexpr bool kSplit = kSparse || kCode == CodeKind::w4zero;      ///< Codes are bytes
  static constexpr bool kClean = kSplit && kCode != CodeKind::fp4;          ///< bytes without a neighbour's bits above
  static constexpr bool kCountsKept = kSparse && is_additive(kCode);        ///< zeros take part where codes are kept

  /// Line `line` of a block of a column group. Integer zeros are applied: the bytes hold code + `offset`, where every byte of a
  /// column's dword is 16 - zero. What is not kept becomes the code of 0, so that nothing after this differs from dense
  /// weights.
  MARLIN_AVX512 MARLIN_INLINE static Codes read(const uint8_t* group, int line, __m512i offset) {
    const __m512i fifteen = _mm512_set1_epi8(15);
    if constexpr (!kSparse) {
      const __m512i packed = _mm512_load_si512(group + line * 64);
      if constexpr (kCode != CodeKind::w4zero) return {packed, packed};
      return {_mm512_add_epi8(_mm512_and_si512(packed, fifteen), offset),
              _mm512_add_epi8(_mm512_and_si512(_mm512_srli_epi16(packed, 4), fifteen), offset)};
    } else {
      const __m256i packed = _mm256_load_si256(reinterpret_cast<const __m256i*>(group + line * kSparseLineBytes));
      const __mmask64 first = mask(group, 2 * line), second = mask(group, 2 * line + 1);
      __m256i a = packed, b = _mm256_srli_epi16(packed, 4);
      if constexpr (kClean) {
        a = _mm256_and_si256(a, _mm512_castsi512_si256(fifteen));
        b = _mm256_and_si256(b, _mm512_castsi512_si256(fifteen));
      }
      if constexpr (kCode == CodeKind::w4sym) {
        const __m512i eight = _mm512_set1_epi8(8);
        return {_mm512_mask_expand_epi8(eight, first, _mm512_castsi256_si512(a)),
                _mm512_mask_expand_epi8(eight, second, _mm512_castsi256_si512(b))};
      }
      const __m512i low = _mm512_maskz_expand_epi8(first, _mm512_castsi256_si512(a)),
                    high = _mm512_maskz_expand_epi8(second, _mm512_castsi256_si512(b));
      if constexpr (kCode != CodeKind::w4zero) return {low, high};
      const __m512i sixteen = _mm512_set1_epi8(16);  // 0, also where the zero is 16, which no code is
      return {_mm512_mask_add_epi8(sixteen, first, low, offset), _mm512_mask_add_epi8(sixteen, second, high, offset)};
    }
  }

  /// 1 where a code is kept, 0 elsewhere, as codes of a line.
  MARLIN_AVX512 MARLIN_INLINE static Codes kept(const uint8_t* group, int line) {
    return {_mm512_maskz_set1_epi8(mask(group, 2 * line), 1), _mm512_maskz_set1_epi8(mask(group, 2 * line + 1), 1)};
  }

  /// Fetches cache line `line` of the block of a column group that lies `ahead`, as long as there is one.
  MARLIN_INLINE static void fetch(const uint8_t* group, int line, int64_t ahead) {
    if (line < kFetches) fetch_line(group + ahead + line * 64);
  }

  /// The codes of 4 slots in the low bits of bytes, kQuad 0 or 1; of 2 slots (h and h + 2: kStep is 2 h and the quad) in the
  /// low bits of words; of one slot (kStep is twice the slot and the quad) in those of dwords.
  template <int kQuad>
  MARLIN_AVX512 MARLIN_INLINE static __m512i bytes(Codes codes) {
    if constexpr (kSplit) return kQuad == 0 ? codes.low : codes.high;
    return kQuad == 0 ? codes.low : _mm512_srli_epi16(codes.low, 4);
  }
  template <int kStep>
  MARLIN_AVX512 MARLIN_INLINE static __m512i words(Codes codes) {
    const __m512i from = kSplit && kStep % 2 == 1 ? codes.high : codes.low;
    constexpr int kShift = kSplit ? kStep / 2 * 8 : kStep * 4;
    return kShift == 0 ? from : _mm512_srli_epi16(from, kShift);
  }
  template <int kStep>
  MARLIN_AVX512 MARLIN_INLINE static __m512i dwords(Codes codes) {
    const __m512i from = kSplit && kStep % 2 == 1 ? codes.high : codes.low;
    constexpr int kShift = kSplit ? kStep / 2 * 8 : kStep * 4;
    return kShift == 0 ? from : _mm512_srli_epi32(from, kShift);
  }

 private:
  MARLIN_INLINE static uint64_t mask(const uint8_t* group, int quad) { return load<uint64_t>(group + kSparseMasks + 8 * quad); }
};

/// 16 - zero of a superblock's groups, in every byte of the column's dword: what CodeLines::read takes.
MARLIN_AVX512 inline void decode_offsets(const uint8_t* zeros, int groups, int v0, int nv, uint32_t (*out)[kPanelColumns]) {
  for (int g = 0; g < groups; ++g)
    for (int v = v0; v < v0 + nv; ++v) {
      const auto* from = reinterpret_cast<const __m128i*>(zeros + g * kPanelColumns + 16 * v);
      const __m512i offset = _mm512_sub_epi32(_mm512_set1_epi32(16), _mm512_cvtepu8_epi32(_mm_loadu_si128(from)));
      _mm512_store_si512(&out[g][16 * v], _mm512_mullo_epi32(offset, _mm512_set1_epi32(0x01010101)));
    }
}

}  // namespace metal_marlin::cpu
