// Unpacks codes to one byte per code: 4-bit codes from words of eight, and codes of any width from
// a stream without gaps or from padded words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace metal_marlin {

/// Byte i of the result is nibble i (low first) of the word: each step moves the upper half of
/// every piece up by its own width.
constexpr uint64_t spread_nibbles(uint32_t word) {
  uint64_t x = word;
  x = (x | x << 16) & 0x0000ffff0000ffffu;
  x = (x | x << 8) & 0x00ff00ff00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
}

/// Unpacks k codes from ceil(k / 2) bytes, low nibble first.
inline void unpack_nibbles(const std::byte* from, int64_t k, uint8_t* to) {
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) store(to + i, spread_nibbles(load<uint32_t>(from + i / 2)));
  for (; i < k; ++i)
    to[i] = static_cast<uint8_t>(std::to_integer<uint32_t>(from[i / 2]) >> (i % 2 * 4) & 15u);
}

/// Unpacks k codes of `bits` bits from ceil(k * bits / 8) bytes: code i has the bits [i * bits,
/// i * bits + bits), from the lowest bit of the first byte on. Eight codes take `bits` bytes.
inline void unpack_stream(const std::byte* from, int bits, int64_t k, uint8_t* to) {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int64_t i = 0; i < k; i += 8, from += bits) {
    const int64_t codes = k - i < 8 ? k - i : 8;
    uint64_t word = 0;
    std::memcpy(&word, from, static_cast<size_t>((codes * bits + 7) / 8));
    for (int64_t j = 0; j < codes; ++j) to[i + j] = static_cast<uint8_t>(word >> (j * bits) & mask);
  }
}

/// Packs k codes of `bits` bits into such bytes.
inline void pack_stream(const uint8_t* from, int bits, int64_t k, std::byte* to) {
  for (int64_t i = 0; i < k; i += 8, to += bits) {
    const int64_t codes = k - i < 8 ? k - i : 8;
    uint64_t word = 0;
    for (int64_t j = 0; j < codes; ++j) word |= uint64_t{from[i + j]} << (j * bits);
    std::memcpy(to, &word, static_cast<size_t>((codes * bits + 7) / 8));
  }
}

/// Code i of such a stream, of which word(index) is the 32-bit word at this index.
template <class Word>
uint32_t code_of_stream(Word word, int bits, int64_t i) {
  const int64_t index = i * bits / 32, shift = i * bits % 32;
  uint64_t two = word(index);
  if (shift + bits > 32) two |= uint64_t{word(index + 1)} << 32;
  return static_cast<uint32_t>(two >> shift & ((uint64_t{1} << bits) - 1));
}

/// Unpacks k codes of `bits` bits from 32-bit words of 32 / bits codes each, lowest first.
inline void unpack_padded_words(const std::byte* from, int bits, int64_t k, uint8_t* to) {
  const int64_t each = 32 / bits;
  const uint32_t mask = (1u << bits) - 1;
  for (int64_t i = 0; i < k; i += each, from += 4) {
    const auto word = load<uint32_t>(from);
    for (int64_t j = 0; j < each && i + j < k; ++j)
      to[i + j] = static_cast<uint8_t>(word >> (j * bits) & mask);
  }
}

/// Transposes two 8 x 8 matrices of nibbles at once. The rows are x[0..7]; one matrix is in the
/// lower half of each, and the other is in the upper half. Three rounds swap blocks of 4, 2 and 1
/// (Warren, "Hacker's Delight", 7-3).
constexpr void transpose_nibbles(uint64_t (&x)[8]) {
  constexpr uint64_t kLow[3] = {0x0000ffff0000ffffu, 0x00ff00ff00ff00ffu, 0x0f0f0f0f0f0f0f0fu};
  for (int round = 0, half = 4; half > 0; ++round, half /= 2) {
    for (int i = 0; i < 8; ++i) {
      if ((i & half) != 0) continue;
      const uint64_t swap = (x[i] >> 4 * half ^ x[i + half]) & kLow[round];
      x[i + half] ^= swap;
      x[i] ^= swap << 4 * half;
    }
  }
}

}  // namespace metal_marlin
