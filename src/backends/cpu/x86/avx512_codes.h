// Lines of packed codes (layout.h), dense and 2:4 sparse, in the form of the AVX-512 kernels.
#pragma once

#include <cstdint>

#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

/// A line of 4-bit codes, 16 columns x 8 slots: one register of packed nibbles, or two of bytes,
/// slots 0..3 and 4..7 of the line.
struct Codes {
  __m512i low, high;  ///< high: only if split
};

template <CodeKind kCode, bool kSparse>
struct CodeLines {
  static_assert(!(kSparse && (is_eight_bits(kCode) || is_real(kCode))));
  static constexpr int kLines = lines_of_block(kCode);
  static constexpr int kBytes =
      kSparse ? kSparseGroupBytes : kLines * 64;  ///< of a block of a column group
  static constexpr int kFetches = kBytes / 64;    ///< cache lines of that
  static constexpr bool kSplit = kSparse || kCode == CodeKind::u4zero;  ///< Codes are bytes
  static constexpr bool kCountsKept =
      kSparse && is_additive(kCode);  ///< zeros take part where codes are kept

  /// Reads line `line` of a block of a column group. Applies integer zeros: the bytes become code +
  /// `offset`, where every byte of a column's dword is 16 - zero. A slot that is not kept gets the
  /// code of 0, so that all later steps are the same as for dense weights.
  MARLIN_AVX512 MARLIN_INLINE static Codes read(const uint8_t* group, int line, __m512i offset) {
    const __m512i fifteen = _mm512_set1_epi8(15);
    if constexpr (!kSparse) {
      const __m512i packed = _mm512_load_si512(group + line * 64);
      if constexpr (kCode != CodeKind::u4zero) return {packed, packed};
      return {_mm512_add_epi8(_mm512_and_si512(packed, fifteen), offset),
              _mm512_add_epi8(_mm512_and_si512(_mm512_srli_epi16(packed, 4), fifteen), offset)};
    } else {
      const __m512i packed = _mm512_and_si512(nibbles(group, line), fifteen);
      const __m512i first = places(group, 2 * line), second = places(group, 2 * line + 1);
      __m512i low = _mm512_shuffle_epi8(packed, first), high = _mm512_shuffle_epi8(packed, second);
      if constexpr (kCode == CodeKind::u4zero) {
        low = _mm512_add_epi8(low, offset);
        high = _mm512_add_epi8(high, offset);
      }
      if constexpr (kCode == CodeKind::u4 || kCode == CodeKind::u4zero) {
        // This is the code of 0 even if the zero is 16, which no code equals.
        const __m512i nothing = _mm512_set1_epi8(kCode == CodeKind::u4 ? 8 : 16);
        low = _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(first), nothing);
        high = _mm512_mask_mov_epi8(high, _mm512_movepi8_mask(second), nothing);
      }
      return {low, high};
    }
  }

  /// The codes of a line that are 1 for kept slots and 0 for others.
  MARLIN_AVX512 MARLIN_INLINE static Codes kept(const uint8_t* group, int line) {
    const __m512i one = _mm512_set1_epi8(1);
    return {_mm512_andnot_si512(_mm512_srli_epi16(places(group, 2 * line), 7), one),
            _mm512_andnot_si512(_mm512_srli_epi16(places(group, 2 * line + 1), 7), one)};
  }

  /// The 64 bytes of unit `unit` (16 slots), and the positions of a block.
  MARLIN_AVX512 MARLIN_INLINE static __m512i unit(const uint8_t* group, int unit) {
    return _mm512_load_si512(group + unit * 64);
  }
  MARLIN_AVX512 MARLIN_INLINE static __m512i positions(const uint8_t* group) {
    return _mm512_load_si512(group + kSparsePositions);
  }

  /// Prefetches cache line `line` of the block of a column group that lies `ahead`, if there is
  /// such a line.
  MARLIN_INLINE static void fetch(const uint8_t* group, int line, int64_t ahead) {
    if (line < kFetches) fetch_line(group + ahead + line * 64);
  }

  /// The codes of 4 slots in the low bits of bytes, kQuad 0 or 1; of 2 slots (h and h + 2: kStep is
  /// 2 h and the quad) in the low bits of words; of one slot (kStep is twice the slot and the quad)
  /// in those of dwords.
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
  /// The kept codes of a sparse line in the low bits of bytes. The lines of a unit share 64 bytes.
  MARLIN_AVX512 MARLIN_INLINE static __m512i nibbles(const uint8_t* group, int line) {
    const __m512i unit = _mm512_load_si512(group + line / 2 * 64);
    return line % 2 == 0 ? unit : _mm512_srli_epi16(unit, 4);
  }

  /// The index in nibbles() for each byte of 16 columns x 4 slots; above 127 for slots that are not
  /// kept. For two positions a < b, a + 2 b distinguishes all six pairs.
  MARLIN_AVX512 MARLIN_INLINE static __m512i places(const uint8_t* group, int quad) {
    const __m512i positions = _mm512_load_si512(group + kSparsePositions);
    const __m512i a = _mm512_and_si512(_mm512_srl_epi32(positions, _mm_cvtsi32_si128(2 * quad)),
                                       _mm512_set1_epi32(3));
    const __m512i b = _mm512_and_si512(
        _mm512_srl_epi32(positions, _mm_cvtsi32_si128(15 + 2 * quad)), _mm512_set1_epi32(6));
    constexpr int kNone = static_cast<int>(0x80808080u);
    const __m512i order = _mm512_setr_epi32(
        kNone, kNone, static_cast<int>(0x80800200u), kNone, static_cast<int>(0x80028000u),
        static_cast<int>(0x80020080u), static_cast<int>(0x02808000u), static_cast<int>(0x02800080u),
        static_cast<int>(0x02008080u), kNone, kNone, kNone, kNone, kNone, kNone, kNone);
    const __m512i own = _mm512_add_epi8(
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)),
        _mm512_set1_epi8(static_cast<char>(quad % 2)));
    return _mm512_add_epi8(_mm512_permutexvar_epi32(_mm512_add_epi32(a, b), order), own);
  }
};

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

}  // namespace metal_marlin::cpu
