// INT8 activations by vpdpbusd. Weights are unsigned bytes (code + offset), activations are signed,
// and the sum of the block corrects the offset. Sums stay integers over a block of 32 slots (16
// with groups of 16) and are then scaled in float.
//
// Kernels read dense codes (layout.h) an octet (8 slots of 16 columns) at a time, as
// two quads of unsigned bytes. Planes of 5 and 6 bits are joined in registers, and the codebook of
// IQ4 is looked up there. The shifts of this use pipes that dot products do not use.
//
// Each kernel names the readings that it has for the groups and zeros of files. Other weights are
// expanded to bytes in L1 (expand_super), and one more reading serves them all.
#pragma once

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512.h"
#include "backends/cpu/x86/int8.h"

namespace metal_marlin::cpu {

MARLIN_AVX512 MARLIN_INLINE bool holds(const ScaleRange& range, const Magnitudes& scales) {
  return (_mm512_cmpgt_epu32_mask(scales.largest, _mm512_set1_epi32(static_cast<int>(range.most))) |
          _mm512_cmplt_epu32_mask(scales.smallest,
                                  _mm512_set1_epi32(static_cast<int>(range.least)))) == 0;
}

/// The product of a power of two and d, both within ScaleRange::exponents. It adds integers,
/// because any pipe adds and only few multiply.
MARLIN_AVX512 MARLIN_INLINE __m512 add_exponents(__m512 power, __m512i d_less_one) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(power), d_less_one));
}
MARLIN_AVX512 MARLIN_INLINE __m512i less_one(__m512 d) {
  return _mm512_sub_epi32(_mm512_castps_si512(d), _mm512_set1_epi32(0x3f800000));
}

/// The activation, of 8, by which each byte of a dword of kept codes is multiplied. These are the
/// positions of half kHalf (0, 1) of unit `unit` of a block. vpmultishiftqb moves any 8 bits of a
/// qword to a byte. 2 of these bits matter, and every second byte belongs to the second quad.
template <int kHalf>
MARLIN_AVX512 MARLIN_INLINE __m512i gather_control(int unit, __m512i positions) {
  // Byte 2 i + t of a dword is position i of quad t, at bit 16 i + 2 t, and 4 bits further for each
  // half of a unit.
  const __m512i from = _mm512_add_epi8(_mm512_set1_epi64(0x32302220'12100200),
                                       _mm512_set1_epi8(static_cast<char>(8 * unit + 4 * kHalf)));
  const __m512i fields = _mm512_multishift_epi64_epi8(from, positions);
  return _mm512_ternarylogic_epi32(fields, _mm512_set1_epi8(3), _mm512_set1_epi32(0x04000400),
                                   0xea);  // (a & b) | c
}

/// scale * d, kept finite if the scale is finite: an infinite factor would give NaN if the integer
/// sum is 0. NaN stays NaN.
MARLIN_AVX512 MARLIN_INLINE __m512 finite_product(__m512 scale, __m512 d) {
  const __m512 limit = _mm512_set1_ps(kLargestFloat), product = _mm512_mul_ps(scale, d);
  const __mmask16 clamp = _mm512_cmp_ps_mask(_mm512_abs_ps(scale), limit, _CMP_LE_OQ);
  return _mm512_mask_max_ps(product, clamp, _mm512_set1_ps(-kLargestFloat),
                            _mm512_min_ps(limit, product));
}

/// A d above this may overflow the sum of a group of 64 or 128 before a small scale is applied: 4
/// blocks of 32 products of bytes are below 2^22. Such rows are scaled block by block.
inline constexpr float kOverflowProne = 0x1p100f;

/// How a scale is multiplied by d. All ways give the same bits where they are right, so the other
/// rows of a tile do not change a row.
enum class Factor {
  product,    ///< nothing overflows
  finite,     ///< finite_product
  exponents,  ///< add_exponents
};

template <Factor kFactor>
MARLIN_AVX512 MARLIN_INLINE __m512 factor_of(__m512 scale, __m512 d) {
  if constexpr (kFactor == Factor::exponents) return add_exponents(scale, less_one(d));
  return kFactor == Factor::finite ? finite_product(scale, d) : _mm512_mul_ps(scale, d);
}

/// How AVX-512 kernels read the codes of a panel.
inline Reading reading_of(const PanelArgs& args) {
  const Reading reading = packed_reading(args);
  if (reading == Reading::iq4) return Reading::looked_up;
  return reading == Reading::two_bits || reading == Reading::three_bits ? Reading::bytes : reading;
}

/// Calls call.operator()<kReading>() for one of them.
template <class Call>
void with_reading(Reading reading, Call call) {
  using enum Reading;
  with_reading_of<nibbles, less_zeros, looked_up, five_bits, six_bits, bytes>(reading, call);
}

/// The integers of Reading::looked_up, above their value by what the sums of activations correct:
/// 12 (FP4, which counts halves) or 128 (IQ4). vpermb uses 6 bits of an index, of which the upper
/// two are a neighbor's, so the integers are repeated.
struct alignas(64) UnsignedIntegers {
  uint8_t of[64] = {};
  constexpr explicit UnsignedIntegers(bool iq4) {
    constexpr auto kDoubled = doubled_e2m1<kE2m1Offset>();
    for (size_t i = 0; i < 64; ++i)
      of[i] = static_cast<uint8_t>(iq4 ? kIq4Bytes.of[i % 16] + 128 : kDoubled[i % 16]);
  }
};
inline constexpr UnsignedIntegers kUnsignedFp4{false}, kUnsignedIq4{true};

inline const uint8_t* table_of_bytes(const PanelLayout& layout) {
  return layout.expansion == Expansion::iq4 ? kUnsignedIq4.of : kUnsignedFp4.of;
}

/// Whether weights have additive zeros, where a compiler knows it.
enum class Zeros : uint8_t { none, additive, either };

/// The zeros that weights in a reading may have.
constexpr Zeros zeros_of(Reading reading) {
  return reading == Reading::less_zeros || reading == Reading::looked_up ? Zeros::none
                                                                         : Zeros::either;
}

/// What the integer sums of a part of a block start from: the sum of the activations
/// (activations.h), which undoes the offset of unsigned codes. A code of 5 or 6 bits is 16 or 32
/// above its value, a byte 128. With additive zeros the sum is a plain one, and bytes alone have an
/// offset.
template <Reading kReading, Zeros kZeros = zeros_of(kReading)>
struct Correction {
  static constexpr int kShift =
      kReading == Reading::five_bits ? 3 : (kReading == Reading::six_bits ? 2 : 0);
  MARLIN_AVX512 MARLIN_INLINE explicit Correction(bool additive)
      : is_additive(additive), mask(_mm512_set1_epi32(additive ? 0 : -1)) {}
  MARLIN_INLINE bool additive() const {
    return kZeros == Zeros::additive || (kZeros == Zeros::either && is_additive);
  }
  MARLIN_AVX512 MARLIN_INLINE __m512i start(__m512i sum) const {
    const __m512i less = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7)),
                  with_zeros = kReading == Reading::bytes ? less : _mm512_setzero_si512(),
                  without = _mm512_srai_epi32(sum, kShift);
    if constexpr (kZeros == Zeros::none) return without;
    if constexpr (kZeros == Zeros::additive) return with_zeros;
    constexpr int kChoose = 0xca;  // mask ? without : with_zeros
    return _mm512_ternarylogic_epi32(mask, without, with_zeros, kChoose);
  }
  bool is_additive;
  __m512i mask;
};

/// The codes of a column group. A value of type Codes holds the two lines of an octet.
template <Reading kReading>
struct DenseCodes {
  static constexpr bool kInBytes = kReading == Reading::bytes;
  /// The bits of the second plane.
  static constexpr int kHigh =
      kReading == Reading::six_bits ? 2 : int{kReading == Reading::five_bits};
  static constexpr int kBytes = (kInBytes ? 8 : 4 + kHigh) * 64;  ///< of a block
  static constexpr int kBytesOfHalf = (kInBytes ? 4 : 2) * 64;    ///< without the second plane

  /// `offset` is 16 - zero in every byte, for less_zeros.
  template <int kOctet>
  MARLIN_AVX512 MARLIN_INLINE static Codes read(const uint8_t* group, __m512i offset) {
    if constexpr (kReading == Reading::less_zeros)
      return CodeLines<CodeKind::u4zero, false>::read(group, kOctet, offset);
    const __m512i low = _mm512_load_si512(group + 64 * (kInBytes ? 2 * kOctet : kOctet));
    if constexpr (kInBytes) return {low, _mm512_load_si512(group + 64 * (2 * kOctet + 1))};
    if constexpr (kHigh == 0) return {low, low};
    return {low, _mm512_load_si512(group + 64 * high_line(kHigh, kOctet))};
  }

  /// Octet kOctet (0, 1) of half `half` of the block, for quad<kOctet, ..>.
  template <int kOctet>
  MARLIN_AVX512 MARLIN_INLINE static Codes read_of_half(const uint8_t* group, int half,
                                                        __m512i offset) {
    Codes codes = read<kOctet>(group + kBytesOfHalf * half, offset);
    if constexpr (kHigh == 1)
      codes.high = _mm512_srl_epi16(_mm512_load_si512(group + 64 * 4), _mm_cvtsi32_si128(4 * half));
    if constexpr (kHigh == 2) codes.high = _mm512_load_si512(group + 64 * (4 + half));
    return codes;
  }

  /// Quad kQuad (0, 1) of the octet as unsigned bytes. `table` is that of looked_up.
  template <int kOctet, int kQuad>
  MARLIN_AVX512 MARLIN_INLINE static __m512i quad(Codes codes, __m512i table) {
    const __m512i line = kQuad == 0 ? codes.low : codes.high;
    if constexpr (kReading == Reading::less_zeros) return line;
    if constexpr (kInBytes)
      return _mm512_xor_si512(line, _mm512_set1_epi8(static_cast<char>(0x80)));
    const __m512i nibbles = kQuad == 0 ? codes.low : _mm512_srli_epi16(codes.low, 4);
    if constexpr (kReading == Reading::looked_up) return _mm512_permutexvar_epi8(nibbles, table);
    const __m512i low = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
    if constexpr (kHigh == 0) return low;
    constexpr int kLowOrMasked = 0xf8;  // low | (high & mask)
    const __m512i high = move_high<kHigh, kOctet, kQuad>(codes.high);
    return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(((1 << kHigh) - 1) << 4),
                                     kLowOrMasked);
  }

  /// Prefetches the share of octet `octet` (0..3) of the block of the column group that lies
  /// `ahead`.
  MARLIN_INLINE static void fetch(const uint8_t* group, int octet, int64_t ahead) {
    constexpr int kEach = kBytes / 256 * 64;
    fetch_lines(group + ahead + kEach * octet, kEach);
    if (octet < kHigh) fetch_line(group + ahead + 64 * (4 + octet));
  }
};

}  // namespace metal_marlin::cpu
