// How the INT8 kernels read dense codes (layout.h): an octet (8 slots of 16 columns) at a time, as
// two quads of unsigned bytes. Planes of 5 and 6 bits are joined in registers, and the codebook of
// IQ4 is looked up there. The shifts of this use pipes that dot products do not use.
//
// Each kernel names the readings that it has for the groups and zeros of files. Other weights are
// expanded to bytes in L1 (expand_super), and one more reading serves them all.
#pragma once

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8.h"
#include "backends/cpu/x86/reading.h"

namespace metal_marlin::cpu {

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
