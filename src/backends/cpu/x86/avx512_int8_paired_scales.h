// The E4M3 scales of the two groups of 16 slots of a block, as integers times a power of two that a
// whole chunk shares. One vpmaddwd multiplies the sums of both groups, below 2^15, by these
// integers and adds the products.
#pragma once

#include "backends/cpu/x86/avx512_int8.h"

namespace metal_marlin::cpu {

/// The largest magnitude of a chunk's E4M3 scales, which are ordered like their bytes; 0x7f is NaN.
MARLIN_AVX512 inline unsigned largest_e4m3(const SuperShape& shape, const uint8_t* super,
                                           int blocks) {
  __m512i largest = _mm512_setzero_si512();
  for (int row = 0; row < 2 * blocks; ++row) {
    const uint8_t* const from =
        super + row / 8 * shape.bytes + shape.scales + row % 8 * kPanelColumns;
    largest = _mm512_max_epu8(largest,
                              _mm512_and_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(0x7f)));
  }
  alignas(64) uint8_t bytes[64];
  _mm512_store_si512(bytes, largest);
  return *std::max_element(bytes, bytes + 64);
}

/// Writes the scales of a block, with the first group in the low halves of dwords, and `power`.
/// Both are for FP4 codes of twice the value. Returns false if some scale does not fit (the largest
/// takes 15 bits, so no other may be below 2^-11 of it, except 0) or is NaN.
MARLIN_AVX512 inline bool pair_scales(const SuperShape& shape, const uint8_t* super, int blocks,
                                      uint32_t (*integers)[kPanelColumns], float& power) {
  const unsigned largest = largest_e4m3(shape, super, blocks);
  // The largest is below 2^(exponent + 1) and has 4 significant bits, so times 2^(14 - exponent) it
  // is at most 30720. Subnormals have the exponent of 1.
  const int exponent = static_cast<int>(std::max(1u, largest >> 3)) - 7;
  power = std::bit_cast<float>(static_cast<uint32_t>(127 - 1 + exponent - 14) << 23);
  const __m512 to_integer =
      _mm512_set1_ps(std::bit_cast<float>(static_cast<uint32_t>(127 + 14 - exponent) << 23));
  __mmask16 exact = 0xffff;
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* const from = super + b / kBlocksPerSuper * shape.bytes + shape.scales;
    for (int v = 0; v < kColumnGroups; ++v) {
      __m512i whole[2];
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part) {
        const int row = b % kBlocksPerSuper * 2 + part;
        const __m512 scaled = _mm512_mul_ps(
            load_scales<ScaleType::e4m3>(from, row * kPanelColumns + 16 * v), to_integer);
        whole[part] = _mm512_cvtps_epi32(scaled);
        exact &= _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(whole[part]), scaled, _CMP_EQ_OQ);
      }
      _mm512_store_si512(
          &integers[b][16 * v],
          _mm512_mask_blend_epi16(0xaaaaaaaau, whole[0], _mm512_slli_epi32(whole[1], 16)));
    }
  }
  return exact == 0xffff;
}

}  // namespace metal_marlin::cpu
