// How the INT8 kernels read dense codes (layout.h): an octet (8 slots of 16 columns) at a time, as
// two quads of unsigned bytes. Planes of 5 and 6 bits are joined in registers, and the codebook of
// IQ4 is looked up there. The shifts of this use pipes that dot products do not use.
#pragma once

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/avx512_int8.h"

namespace metal_marlin::cpu {

enum class Reading : uint8_t {
  lines,      ///< lines of 4-bit or 8-bit codes, which may be expanded ones
  five_bits,  ///< a plane of 4 bits and one of 1 bit
  six_bits,   ///< a plane of 4 bits and one of 2 bits
  bytes,      ///< unsigned bytes that were made of planes (join_in_l1)
  iq4,        ///< 4-bit indices in the codebook of IQ4
};

/// The integers of IQ4, plus 128.
template <size_t... kIndex>
MARLIN_AVX512 MARLIN_INLINE __m512i unsigned_iq4(std::index_sequence<kIndex...>) {
  return _mm512_broadcast_i32x4(_mm_setr_epi8(static_cast<char>(kIq4Bytes.of[kIndex] ^ -128)...));
}

/// The codes of a column group. A value of type Codes holds the two lines of an octet.
template <CodeKind kCode, Reading kReading>
struct DenseCodes {
  using Lines = CodeLines<kCode, false>;
  static constexpr bool kInLines = kReading == Reading::lines;
  static constexpr bool kInBytes = (kInLines && is_eight_bits(kCode)) || kReading == Reading::bytes;
  /// The bits of the second plane.
  static constexpr int kHigh =
      (kReading == Reading::five_bits ? 1 : 0) + (kReading == Reading::six_bits ? 2 : 0);
  static constexpr int kBytes =
      kInBytes || kInLines ? Lines::kBytes : (4 + kHigh) * 64;  ///< of a block
  /// The offset that quad() adds to a value divides sum_factor (activations.h) by 2^kSumShift: an
  /// unsigned code of 5 or 6 bits is 16 or 32 above its value.
  static constexpr int kSumShift = kHigh == 0 ? 0 : 4 - kHigh;
  /// The offset for codes with additive zeros, whose sum_factor is 1.
  static constexpr int kUncorrected = kInLines && kCode == CodeKind::i8add ? 128 : 0;
  static constexpr bool kAdditive = is_additive(kCode);
  static constexpr bool kMayBeExpanded = kInBytes;

  template <int kOctet>
  MARLIN_AVX512 MARLIN_INLINE static Codes read(const uint8_t* group, __m512i offset) {
    if constexpr (kInLines && !is_eight_bits(kCode)) return Lines::read(group, kOctet, offset);
    constexpr int kLow = kInBytes ? 2 * kOctet : kOctet,
                  kSecond = kInBytes ? kLow + 1 : high_line(kHigh, kOctet);
    const __m512i low = _mm512_load_si512(group + 64 * kLow);
    if constexpr (kReading == Reading::iq4) return {low, low};
    return {low, _mm512_load_si512(group + 64 * kSecond)};
  }

  /// Quad kQuad (0, 1) of the octet as unsigned bytes.
  template <int kOctet, int kQuad>
  MARLIN_AVX512 MARLIN_INLINE static __m512i quad(Codes codes) {
    if constexpr (kInBytes) codes.low = kQuad == 0 ? codes.low : codes.high;
    if constexpr (kReading == Reading::bytes) {
      return codes.low;
    } else if constexpr (kInLines) {
      return unsigned_codes<kCode, false, kQuad>(codes);
    } else {
      const __m512i nibbles = kQuad == 0 ? codes.low : _mm512_srli_epi16(codes.low, 4);
      // vpermb uses 6 bits, as for fp4.
      if constexpr (kReading == Reading::iq4)
        return _mm512_permutexvar_epi8(nibbles, unsigned_iq4(CodeIndices{}));
      constexpr int kLowOrMasked = 0xf8;  // low | (high & mask)
      const __m512i low = _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
      const __m512i high = move_high<kHigh, kOctet, kQuad>(codes.high);
      return _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi8(((1 << kHigh) - 1) << 4),
                                       kLowOrMasked);
    }
  }

  /// Prefetches an octet's share of the block of the column group that lies `ahead`.
  template <int kOctet>
  MARLIN_INLINE static void fetch(const uint8_t* group, int64_t ahead) {
    constexpr int kEach = kBytes / 256 * 64;
    fetch_lines(group + ahead + kEach * kOctet, kEach);
    if constexpr (kOctet < kHigh) fetch_line(group + ahead + 64 * (4 + kOctet));
  }
};

/// Joins the planes of column groups of a superblock to lines of unsigned bytes. Their offset is
/// the one that sum_factor corrects: 128 above the value, or none with additive zeros.
template <CodeKind kCode, int kHigh, int kOctet>
MARLIN_AVX512 MARLIN_INLINE void join_octet(const uint8_t* group, __m512i offset, uint8_t* out) {
  constexpr Reading kReading = kHigh == 1 ? Reading::five_bits : Reading::six_bits;
  using Dense = DenseCodes<kCode, kReading>;
  const Codes codes = Dense::template read<kOctet>(group, offset);
  out += 128 * kOctet;
  _mm512_store_si512(out, _mm512_add_epi8(Dense::template quad<kOctet, 0>(codes), offset));
  _mm512_store_si512(out + 64, _mm512_add_epi8(Dense::template quad<kOctet, 1>(codes), offset));
}
template <CodeKind kCode, int kHigh>
MARLIN_AVX512 [[gnu::noinline]] void join_in_l1(const uint8_t* super, uint8_t* out) {
  constexpr int kOffset = is_additive(kCode) ? 0 : 128 - (8 << kHigh);
  const __m512i offset = _mm512_set1_epi8(static_cast<char>(kOffset));
  for (int i = 0; i < kBlocksPerSuper * kColumnGroups; ++i) {
    join_octet<kCode, kHigh, 0>(super, offset, out);
    join_octet<kCode, kHigh, 1>(super, offset, out);
    join_octet<kCode, kHigh, 2>(super, offset, out);
    join_octet<kCode, kHigh, 3>(super, offset, out);
    super += (4 + kHigh) * 64;
    out += kExpandedGroupBytes;
  }
}

/// Calls call.operator()<kCode, kReading>() for dense codes.
template <class Call>
void with_dense_codes(const PanelArgs& args, Call call) {
  const PanelLayout& layout = *args.layout;
  const bool additive = args.code == CodeKind::i8add;
  if (layout.expansion == Expansion::iq4)
    return call.template operator()<CodeKind::i8, Reading::iq4>();
  if (layout.expansion == Expansion::integers && layout.zero_kind != ZeroKind::integer) {
    if (layout.code_bits == 5)
      return additive ? call.template operator()<CodeKind::i8add, Reading::five_bits>()
                      : call.template operator()<CodeKind::i8, Reading::five_bits>();
    if (layout.code_bits == 6)
      return additive ? call.template operator()<CodeKind::i8add, Reading::six_bits>()
                      : call.template operator()<CodeKind::i8, Reading::six_bits>();
  }
  with_code(args.code,
            [&]<CodeKind kCode>() { call.template operator()<kCode, Reading::lines>(); });
}

}  // namespace metal_marlin::cpu
