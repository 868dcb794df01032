// Codes and scale bytes in the words of shaders/common/layout.h.
#pragma once

#include <bit>
#include <cstdint>

#include "base/bits.h"
#include "shaders/common/layout.h"

namespace metal_marlin::gpu {

/// The magnitude of a finite E4M3 byte without subnormals: 5 bits of exponent, kE5m3Zero for 1, and
/// 3 of fraction. 0 becomes the smallest number, and codes of such a group become 0.
inline uint8_t e5m3_of(uint8_t e4m3) {
  const unsigned magnitude = e4m3 & 0x7Fu;
  if (magnitude == 0) return 0;
  constexpr unsigned kE4m3One = 7, kMoved = (kE5m3Zero - kE4m3One) << 3;
  if (magnitude >= 8) return static_cast<uint8_t>(magnitude + kMoved);
  // m * 2^-9 with m of 1, 2 or 3 bits
  const auto highest = static_cast<unsigned>(std::bit_width(magnitude)) - 1;
  return static_cast<uint8_t>(highest << 3 | (magnitude << (3 - highest) & 7u));
}

/// Four E2M1 codes in a 16-bit half of dense FP4.
inline uint32_t fp4_half(const uint8_t* codes) {
  uint32_t half = 0;
  for (int t = 0; t < 4; ++t)
    half |= static_cast<uint32_t>(codes[t] >> 3 & 1) << fp4_sign_bit(t) |
            static_cast<uint32_t>(codes[t] & 7) << fp4_low_bit(t);
  return half;
}
/// The eight E2M1 codes (t, p) of a unit in CUDA's order.
inline uint32_t fp4_mma_word(const uint8_t* codes) {
  uint32_t word = 0;
  for (int e = 0; e < kUnitSlots; ++e)
    for (int b = 0; b < 4; ++b)
      word |= static_cast<uint32_t>(codes[e] >> b & 1)
              << ((fp4_mma_bit(e % 4, b) + e / 4 * 16) & 31);
  return word;
}
inline uint32_t nibbles(const uint8_t* codes) {
  uint32_t half = 0;
  for (int t = 0; t < 4; ++t) half |= static_cast<uint32_t>(codes[t] & 15) << 4 * t;
  return half;
}
/// The eight codes (t, p) of a unit in CUDA's order, of a codebook: byte t has both of step t.
inline uint32_t pairs_word(const uint8_t* codes) {
  uint32_t word = 0;
  for (int e = 0; e < kUnitSlots; ++e)
    word |= static_cast<uint32_t>(codes[e] & 15) << (8 * (e % 4) + 4 * (e / 4));
  return word;
}
/// Adds `width` bits, from bit `from` on, of the codes of unit w to the words of their plane.
inline void add_to_plane(const uint8_t* codes, int w, int from, int width, uint32_t* plane) {
  for (int e = 0; e < kUnitSlots; ++e) {
    const uint32_t bits = static_cast<uint32_t>(codes[e]) >> from & ((1u << width) - 1);
    plane[width * w / 4] |= bits << (16 * (e / 4) + plane_bit(e % 4) + width * w % 4);
  }
}
/// The words of a lane and tile for all planes of unit w of `units` (shaders/common/layout.h).
inline void add_to_planes(const uint8_t* codes, int bits, int units, int w, uint32_t* words) {
  int from = 0;
  if (bits > 4) {
    words[w] = nibbles(codes) | nibbles(codes + 4) << 16;
    words += units;
    from = 4;
  }
  if (bits - from >= 2) {
    add_to_plane(codes, w, from, 2, words);
    words += (units + 1) / 2;
    from += 2;
  }
  if (bits - from == 1) add_to_plane(codes, w, from, 1, words);
}
/// The words of a unit of floats of 16 or 32 bits.
inline void float_words(const uint8_t* floats, int bits, uint32_t* words) {
  for (int t = 0; t < 4; ++t)
    if (bits == 32) {
      words[2 * t] = load<uint32_t>(floats + 4 * t);
      words[2 * t + 1] = load<uint32_t>(floats + 4 * (4 + t));
    } else {
      words[t] = load<uint16_t>(floats + 2 * t) |
                 static_cast<uint32_t>(load<uint16_t>(floats + 2 * (4 + t))) << 16;
    }
}
/// Steps t, t + 1 of a unit of INT8.
inline uint32_t int8_word(const uint8_t* codes, int t) {
  return (codes[t] | codes[t + 1] << 8 | codes[4 + t] << 16 |
          static_cast<uint32_t>(codes[5 + t]) << 24) ^
         0x80808080u;
}

}  // namespace metal_marlin::gpu
