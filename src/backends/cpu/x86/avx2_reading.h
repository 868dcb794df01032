// How kernels of few rows read dense codes (layout.h), 4 slots of 8 columns at a time. Planes are
// joined in registers, and the codebook of IQ4 is looked up there, so that the stream of packed
// weights is read while products run.
#pragma once

#include "backends/cpu/fetch.h"
#include "backends/cpu/x86/avx2.h"

namespace metal_marlin::cpu {

enum class Avx2Reading : uint8_t {
  lines,       ///< lines of 4-bit or 8-bit codes, which may be expanded ones
  two_bits,    ///< a plane of 2 bits
  three_bits,  ///< a plane of 2 bits and one of 1 bit
  five_bits,   ///< a plane of 4 bits and one of 1 bit
  six_bits,    ///< a plane of 4 bits and one of 2 bits
  iq4,         ///< 4-bit indices in the codebook of IQ4
};

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
template <Avx2Reading kReading>
struct PlaneCodes {
  static_assert(kReading != Avx2Reading::lines);
  static constexpr bool kIq4 = kReading == Avx2Reading::iq4;
  /// The bits of the planes.
  static constexpr int kLow =
      kReading == Avx2Reading::two_bits || kReading == Avx2Reading::three_bits ? 2 : 4;
  static constexpr int kHigh =
      kReading == Avx2Reading::six_bits
          ? 2
          : int{kReading == Avx2Reading::three_bits || kReading == Avx2Reading::five_bits};
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

/// Whether codes may have two-level scales that stay integers: those of K-quants.
constexpr bool may_be_two_level(CodeKind code, Avx2Reading reading) {
  return reading != Avx2Reading::lines || code == CodeKind::u4add;
}
inline bool has_two_level_scales(const PanelLayout& layout, CodeKind code) {
  return is_two_level(layout.scale_type) && (!is_additive(code) || layout.has_two_level_zeros());
}

/// Calls call.operator()<kCode, kReading>() for dense codes.
template <class Call>
void with_avx2_codes(const PanelArgs& args, Call call) {
  const PanelLayout& layout = *args.layout;
  if (layout.expansion == Expansion::iq4)
    return call.template operator()<CodeKind::i8, Avx2Reading::iq4>();
  if (layout.expansion != Expansion::integers || layout.zero_kind == ZeroKind::integer)
    return with_code(args.code, [&]<CodeKind kCode>() {
      call.template operator()<kCode, Avx2Reading::lines>();
    });
  const auto with_bits = [&]<CodeKind kCode>() {
    switch (layout.code_bits) {
      case 2:
        return call.template operator()<kCode, Avx2Reading::two_bits>();
      case 3:
        return call.template operator()<kCode, Avx2Reading::three_bits>();
      case 5:
        return call.template operator()<kCode, Avx2Reading::five_bits>();
      default:
        return call.template operator()<kCode, Avx2Reading::six_bits>();
    }
  };
  args.code == CodeKind::i8add ? with_bits.template operator()<CodeKind::i8add>()
                               : with_bits.template operator()<CodeKind::i8>();
}

}  // namespace metal_marlin::cpu
