// How kernels of few rows read dense codes (layout.h), 4 slots of 8 columns at a time. Planes are
// joined in registers, and the codebook of IQ4 is looked up there, so that the stream of packed
// weights is read while products run.
#pragma once

#include "backends/cpu/fetch.h"
#include "backends/cpu/x86/avx2_int8.h"

namespace metal_marlin::cpu {

/// Prefetches the share of a quad of slots in the lines of a block that lie ahead.
template <int kLines>
MARLIN_INLINE void fetch_share(const uint8_t* lines, int quad, Ahead ahead) {
  const int line = quad * kLines / 8;
  if (quad != 0 && line == (quad - 1) * kLines / 8) return;
  fetch_line(lines + ahead.far + line * 64);
  if (kLines != 8) fetch_line(lines + ahead.near + line * 64);
}

/// Moves bits from bit `from` of every byte to bit `to`. Bits of neighbors remain.
MARLIN_AVX2 MARLIN_INLINE __m256i moved_bits(__m256i x, int from, int to) {
  if (from > to) return _mm256_srli_epi16(x, from - to);
  return from < to ? _mm256_slli_epi16(x, to - from) : x;
}

/// Codes that are in planes or indices of IQ4.
template <Reading kReading>
struct PlaneCodes {
  static constexpr bool kIq4 = kReading == Reading::iq4;
  /// The bits of the planes.
  static constexpr int kLow =
      kReading == Reading::two_bits || kReading == Reading::three_bits ? 2 : 4;
  static constexpr int kHigh =
      kReading == Reading::six_bits
          ? 2
          : int{kReading == Reading::three_bits || kReading == Reading::five_bits};
  static constexpr int kLines = kLow + kHigh;
  static constexpr int kBytes = kLines * 64;  ///< of a block
  /// What an unsigned code without additive zeros is above its value.
  static constexpr int kAbove = kIq4 ? 0 : 1 << kLines >> 1;

  /// Quad `quad` (0..7) of a block as bytes: integers of IQ4, or unsigned codes. `lines` are those
  /// of the block from a column on, and v counts vectors of 8 columns.
  MARLIN_AVX2 MARLIN_INLINE static __m256i read(const uint8_t* lines, int quad, int v) {
    const __m256i low = in_plane<kLow, 0>(lines, quad, v);
    if constexpr (kIq4) {
      const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kIq4Bytes.of));
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), low);
    } else if constexpr (kHigh != 0) {
      return _mm256_or_si256(low, in_plane<kHigh, kLow>(lines + 64 * kLow, quad, v));
    } else {
      return low;
    }
  }

 private:
  /// The kBits of a quad in a plane, from bit kTo of each byte on.
  template <int kBits, int kTo>
  MARLIN_AVX2 MARLIN_INLINE static __m256i in_plane(const uint8_t* plane, int quad, int v) {
    constexpr int kQuads = 8 / kBits;  // of a line
    const __m256i line =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(plane + quad / kQuads * 64 + 32 * v));
    return _mm256_and_si256(moved_bits(line, quad % kQuads * kBits, kTo),
                            _mm256_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo)));
  }
};

/// Half a block of codes, for dot_16. Codes of the stream (kFetches) are prefetched.
template <Reading kReading, bool kFetches = true>
struct PackedCodes {
  using Planes = PlaneCodes<kReading>;
  static constexpr int kBytes = Planes::kBytes;
  static constexpr Products products() {
    if (Planes::kIq4) return Products::signed_bytes;
    return kReading == Reading::six_bits ? Products::two : Products::four;
  }
  static constexpr Products kProducts = products();
  /// sum_factor (activations.h) is that of codes 128 above their value.
  static constexpr int kSumShift = 8 - Planes::kLines;
  const uint8_t* lines;     ///< of the block, from the first column on
  const uint32_t* offsets;  ///< of integer zeros, from the first column on
  int half;
  Ahead ahead;

  MARLIN_AVX2 MARLIN_INLINE __m256i operator()(int step, int v) const {
    const int quad = 4 * half + step;
    if (v == 0) fetch_share<Planes::kLines>(lines, quad, ahead);
    return Planes::read(lines, quad, v);
  }
};

/// The same for codes that lie in lines.
template <CodeKind kCode, bool kFetches, bool kUnsigned = !is_eight_bits(kCode)>
struct CodesInLines {
  using Lines = CodeLines<kCode, false>;
  static constexpr int kBytes = Lines::kBytes, kSumShift = 0;
  static constexpr Products kProducts = kUnsigned ? Products::four : Products::signed_bytes;
  const uint8_t* lines;
  const uint32_t* offsets;
  int half;
  Ahead ahead;

  MARLIN_AVX2 MARLIN_INLINE __m256i operator()(int step, int v) const {
    constexpr int kQuads = 8 / Lines::kLines;  // of a line
    const int quad = 4 * half + step;
    if (kFetches && v == 0) fetch_share<Lines::kLines>(lines, quad, ahead);
    __m256i offset{};
    if constexpr (kCode == CodeKind::u4zero) offset = Vec::load(offsets + 8 * v);
    const Codes codes = Lines::read(lines + 32 * v, quad / kQuads, offset);
    const __m256i bytes =
        quad % kQuads == 0 ? Lines::template bytes<0>(codes) : Lines::template bytes<1>(codes);
    if constexpr (is_eight_bits(kCode)) return codes.low;
    if constexpr (kCode == CodeKind::u4zero) return bytes;
    const __m256i code = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    if constexpr (kCode != CodeKind::fp4) return code;
    static constexpr auto kUnsignedFp4 = doubled_e2m1<kE2m1Offset>();
    return Vec::shuffle(Vec::table(kUnsignedFp4.data()), code);
  }
};
template <>
struct PackedCodes<Reading::nibbles> : CodesInLines<CodeKind::u4, true> {};
template <>
struct PackedCodes<Reading::less_zeros> : CodesInLines<CodeKind::u4zero, true> {};
template <>
struct PackedCodes<Reading::looked_up> : CodesInLines<CodeKind::fp4, true> {};
template <bool kFetches>
struct PackedCodes<Reading::bytes, kFetches> : CodesInLines<CodeKind::i8, kFetches> {};
template <>
struct PackedCodes<Reading::expanded, false> : CodesInLines<CodeKind::i8, false, true> {};

}  // namespace metal_marlin::cpu
