// Planes of codes of 5 and 6 bits in the form of the AVX-512 kernels.
#pragma once

#include <cstdint>

#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

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
