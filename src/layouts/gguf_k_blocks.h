// The types of GGUF blocks with codes of 5 bits, with the codebook of IQ4, and with two-level
// scales (K-quants): a super-block of 256 elements has integer scales (and minima) and one float16
// factor for each. Loops have constant lengths, so that compilers vectorize them.
#pragma once

#include "formats/codecs.h"
#include "layouts/gguf_blocks.h"

namespace metal_marlin::gguf {

inline uint8_t byte_at(const std::byte* p, int i) { return std::to_integer<uint8_t>(p[i]); }

/// 32 codes of 5 bits: split_16's nibbles, and bit e of a word for element e.
inline void split_32_of_5_bits(const std::byte* nibbles, uint32_t high, uint8_t* to) {
  split_16(nibbles, to);
  for (uint32_t e = 0; e < 32; ++e) to[e] = static_cast<uint8_t>(to[e] | (high >> e & 1u) << 4);
}

/// The inverse: the nibbles go to `nibbles`, and the result is the word of the high bits.
inline uint32_t put_32_of_5_bits(const uint8_t* codes, std::byte* nibbles) {
  uint8_t low[32];
  uint32_t high = 0;
  for (uint32_t e = 0; e < 32; ++e) {
    low[e] = codes[e] & 15;
    high |= uint32_t{codes[e]} >> 4 << e;
  }
  put_halves(low, 16, false, nibbles);
  return high;
}

struct Q5_0 : BlockOf<MARLIN_FORMAT_INT5, 32, 22, 32, ScaleType::f16> {
  static constexpr const char* kName = "Q5_0";
  static constexpr uint32_t kFileType = 8;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    split_32_of_5_bits(block + 6, load<uint32_t>(block + 2), to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scales, block);
    store(block + 2, put_32_of_5_bits(from.codes, block + 6));
  }
};

struct Q5_1 : BlockOf<MARLIN_FORMAT_INT5, 32, 24, 32, ScaleType::f16> {
  static constexpr const char* kName = "Q5_1";
  static constexpr ScaleType kZeros = ScaleType::f16;
  static constexpr uint32_t kFileType = 9;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    store(to.zeros, load<uint16_t>(block + 2));
    split_32_of_5_bits(block + 8, load<uint32_t>(block + 4), to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scales, block);
    copy_f16(from.zeros, block + 2);
    store(block + 4, put_32_of_5_bits(from.codes, block + 8));
  }
};

/// Q4_0 with other values of the codes.
struct Iq4Nl : Q4_0 {
  static constexpr const char* kName = "IQ4_NL";
  static constexpr marlin_format kFormat = MARLIN_FORMAT_IQ4;
  static constexpr uint32_t kFileType = 25;
};

struct Iq4Xs : BlockOf<MARLIN_FORMAT_IQ4, kFactorSpan, 136, 32, ScaleType::s6> {
  static constexpr const char* kName = "IQ4_XS";
  static constexpr uint32_t kFileType = 30;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scale_factor, load<uint16_t>(block));
    const unsigned high = load<uint16_t>(block + 2);
    for (int i = 0; i < 8; ++i) {
      const unsigned low = unsigned{byte_at(block, 4 + i / 2)} >> 4 * (i % 2) & 15u;
      to.scales[i] = static_cast<uint8_t>(static_cast<int>(low | (high >> 2 * i & 3u) << 4) - 32);
      split_16(block + 8 + 16 * i, to.codes + 32 * i);
    }
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scale_factor, block);
    unsigned high = 0;
    uint8_t low[8];
    for (int i = 0; i < 8; ++i) {
      const unsigned scale = from.scales[i] + 32u;
      low[i] = scale & 15u;
      high |= (scale >> 4 & 3u) << 2 * i;
      put_halves(from.codes + 32 * i, 16, false, block + 8 + 16 * i);
    }
    store(block + 2, static_cast<uint16_t>(high));
    for (int i = 0; i < 4; ++i)
      block[4 + i] = static_cast<std::byte>(low[2 * i] | low[2 * i + 1] << 4);
  }
};

/// Two bits of every element of a super-block: byte l of half h holds elements 128 h + 32 j + l at
/// bits 2 j.
inline void split_2_bits(const std::byte* __restrict from, uint8_t* __restrict to) {
  for (int h = 0; h < 2; ++h)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l)
        to[128 * h + 32 * j + l] = static_cast<uint8_t>(byte_at(from, 32 * h + l) >> 2 * j & 3);
}

/// Adds one bit of every element of a super-block to its code, at bit `place`: bit i of byte l is
/// of element 32 i + l.
inline void add_bits(const std::byte* __restrict from, int place, uint8_t* __restrict codes) {
  for (int i = 0; i < 8; ++i)
    for (int l = 0; l < 32; ++l) {
      uint8_t& code = codes[32 * i + l];
      code = static_cast<uint8_t>(code | (byte_at(from, l) >> i & 1) << place);
    }
}

/// The inverse of split_2_bits; higher bits of the codes are left out.
inline void put_2_bits(const uint8_t* codes, std::byte* to) {
  for (int h = 0; h < 2; ++h)
    for (int l = 0; l < 32; ++l) {
      unsigned byte = 0;
      for (int j = 0; j < 4; ++j) byte |= (codes[128 * h + 32 * j + l] & 3u) << 2 * j;
      to[32 * h + l] = static_cast<std::byte>(byte);
    }
}

/// The inverse of add_bits.
inline void put_bits(const uint8_t* codes, int place, std::byte* to) {
  for (int l = 0; l < 32; ++l) {
    unsigned byte = 0;
    for (int i = 0; i < 8; ++i) byte |= (unsigned{codes[32 * i + l]} >> place & 1u) << i;
    to[l] = static_cast<std::byte>(byte);
  }
}

// NOLINTBEGIN(readability-identifier-naming): the names of the types in files
struct Q2_K : BlockOf<MARLIN_FORMAT_INT2, kFactorSpan, 84, 16, ScaleType::u4> {
  static constexpr const char* kName = "Q2_K";
  static constexpr ScaleType kZeros = ScaleType::u4;
  static constexpr uint32_t kFileType = 10;
  static void read(const std::byte* block, BlockParts to) {
    for (int i = 0; i < 16; ++i) {
      to.scales[i] = byte_at(block, i) & 15;
      to.zeros[i] = byte_at(block, i) >> 4;
    }
    split_2_bits(block + 16, to.codes);
    store(to.scale_factor, load<uint16_t>(block + 80));
    store(to.zero_factor, load<uint16_t>(block + 82));
  }
  static void write(BlockSource from, std::byte* block) {
    for (int i = 0; i < 16; ++i)
      block[i] = static_cast<std::byte>(from.scales[i] | from.zeros[i] << 4);
    put_2_bits(from.codes, block + 16);
    copy_f16(from.scale_factor, block + 80);
    copy_f16(from.zero_factor, block + 82);
  }
};

/// The file stores q in -4..3; the code is q + 4.
struct Q3_K : BlockOf<MARLIN_FORMAT_INT3, kFactorSpan, 110, 16, ScaleType::s6> {
  static constexpr const char* kName = "Q3_K";
  static constexpr uint32_t kFileType = 11, kMixedFileType = 12;
  static void read(const std::byte* block, BlockParts to) {
    split_2_bits(block + 32, to.codes);
    add_bits(block, 2, to.codes);
    const std::byte* const scales = block + 96;
    for (int i = 0; i < 16; ++i) {
      const unsigned low = unsigned{byte_at(scales, i % 8)} >> (i < 8 ? 0 : 4) & 15u;
      const unsigned high = unsigned{byte_at(scales, 8 + i % 4)} >> 2 * (i / 4) & 3u;
      to.scales[i] = static_cast<uint8_t>(static_cast<int>(low | high << 4) - 32);
    }
    store(to.scale_factor, load<uint16_t>(block + 108));
  }
  static void write(BlockSource from, std::byte* block) {
    put_bits(from.codes, 2, block);
    put_2_bits(from.codes, block + 32);
    std::byte* const scales = block + 96;
    std::memset(scales, 0, 12);
    for (int i = 0; i < 16; ++i) {
      const unsigned scale = from.scales[i] + 32u;
      scales[i % 8] |= static_cast<std::byte>((scale & 15u) << (i < 8 ? 0 : 4));
      scales[8 + i % 4] |= static_cast<std::byte>((scale >> 4 & 3u) << 2 * (i / 4));
    }
    copy_f16(from.scale_factor, block + 108);
  }
};

/// The 6-bit scales and minima of 8 groups in 12 bytes.
inline void split_scales_and_minima(const std::byte* from, uint8_t* scales, uint8_t* minima) {
  for (int i = 0; i < 4; ++i) {
    const uint8_t a = byte_at(from, i), b = byte_at(from, 4 + i), c = byte_at(from, 8 + i);
    scales[i] = a & 63;
    minima[i] = b & 63;
    scales[4 + i] = static_cast<uint8_t>((c & 15) | a >> 6 << 4);
    minima[4 + i] = static_cast<uint8_t>(c >> 4 | b >> 6 << 4);
  }
}

/// The inverse.
inline void put_scales_and_minima(const uint8_t* scales, const uint8_t* minima, std::byte* to) {
  for (int i = 0; i < 4; ++i) {
    to[i] = static_cast<std::byte>(scales[i] | scales[4 + i] >> 4 << 6);
    to[4 + i] = static_cast<std::byte>(minima[i] | minima[4 + i] >> 4 << 6);
    to[8 + i] = static_cast<std::byte>((scales[4 + i] & 15) | minima[4 + i] << 4);
  }
}

/// Nibbles of every element of a super-block: byte l of quarter c holds element 64 c + l in its low
/// nibble and element 64 c + 32 + l in its high one.
inline void split_nibbles(const std::byte* __restrict from, uint8_t* __restrict to) {
  for (int c = 0; c < 4; ++c)
    for (int l = 0; l < 32; ++l) {
      to[64 * c + l] = byte_at(from, 32 * c + l) & 15;
      to[64 * c + 32 + l] = byte_at(from, 32 * c + l) >> 4;
    }
}

/// The inverse; higher bits of the codes are left out.
inline void put_nibbles(const uint8_t* codes, std::byte* to) {
  for (int c = 0; c < 4; ++c)
    for (int l = 0; l < 32; ++l)
      to[32 * c + l] =
          static_cast<std::byte>((codes[64 * c + l] & 15) | codes[64 * c + 32 + l] << 4);
}

struct Q4_K : BlockOf<MARLIN_FORMAT_INT4, kFactorSpan, 144, 32, ScaleType::u6> {
  static constexpr const char* kName = "Q4_K";
  static constexpr ScaleType kZeros = ScaleType::u6;
  static constexpr uint32_t kFileType = 14, kMixedFileType = 15;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scale_factor, load<uint16_t>(block));
    store(to.zero_factor, load<uint16_t>(block + 2));
    split_scales_and_minima(block + 4, to.scales, to.zeros);
    split_nibbles(block + 16, to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scale_factor, block);
    copy_f16(from.zero_factor, block + 2);
    put_scales_and_minima(from.scales, from.zeros, block + 4);
    put_nibbles(from.codes, block + 16);
  }
};

struct Q5_K : BlockOf<MARLIN_FORMAT_INT5, kFactorSpan, 176, 32, ScaleType::u6> {
  static constexpr const char* kName = "Q5_K";
  static constexpr ScaleType kZeros = ScaleType::u6;
  static constexpr uint32_t kFileType = 16, kMixedFileType = 17;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scale_factor, load<uint16_t>(block));
    store(to.zero_factor, load<uint16_t>(block + 2));
    split_scales_and_minima(block + 4, to.scales, to.zeros);
    split_nibbles(block + 48, to.codes);
    add_bits(block + 16, 4, to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scale_factor, block);
    copy_f16(from.zero_factor, block + 2);
    put_scales_and_minima(from.scales, from.zeros, block + 4);
    put_bits(from.codes, 4, block + 16);
    put_nibbles(from.codes, block + 48);
  }
};

struct Q6_K : BlockOf<MARLIN_FORMAT_INT6, kFactorSpan, 210, 16, ScaleType::s8> {
  static constexpr const char* kName = "Q6_K";
  static constexpr uint32_t kFileType = 18;
  static void read(const std::byte* block, BlockParts to) {
    split_2_bits(block + 128, to.codes);
    for (int h = 0; h < 2; ++h)
      for (int j = 0; j < 4; ++j)
        for (int l = 0; l < 32; ++l) {
          const int low = byte_at(block, 64 * h + 32 * (j % 2) + l) >> (j < 2 ? 0 : 4) & 15;
          uint8_t& code = to.codes[128 * h + 32 * j + l];
          code = static_cast<uint8_t>(low | code << 4);
        }
    std::memcpy(to.scales, block + 192, 16);
    store(to.scale_factor, load<uint16_t>(block + 208));
  }
  static void write(BlockSource from, std::byte* block) {
    for (int h = 0; h < 2; ++h)
      for (int j = 0; j < 2; ++j)
        for (int l = 0; l < 32; ++l) {
          const uint8_t* const code = from.codes + 128 * h + 32 * j + l;
          block[64 * h + 32 * j + l] = static_cast<std::byte>((code[0] & 15) | code[64] << 4);
        }
    uint8_t high[kElements];
    for (int i = 0; i < kElements; ++i) high[i] = from.codes[i] >> 4;
    put_2_bits(high, block + 128);
    std::memcpy(block + 192, from.scales, 16);
    copy_f16(from.scale_factor, block + 208);
  }
};
// NOLINTEND(readability-identifier-naming)

}  // namespace metal_marlin::gguf
