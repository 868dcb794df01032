// The types of GGUF blocks, one struct each. A struct says which codes and scales a block holds,
// how a block becomes canonical and, if the library writes the type, the inverse. ggml's FP4 values
// are integers times a scale, so ggml reads a code 8 (-0) as +0. It is read and written as 0 here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "formats/weights.h"
#include "layouts/nonstandard_scales.h"

namespace metal_marlin::gguf {

inline constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0fu;

/// 16 bytes of codes: element j is the low nibble of byte j, element 16 + j the high one.
inline void split_16(const std::byte* from, uint8_t* to) {
  const auto a = load<uint64_t>(from), b = load<uint64_t>(from + 8);
  store(to, a & kLowNibbles);
  store(to + 8, b & kLowNibbles);
  store(to + 16, a >> 4 & kLowNibbles);
  store(to + 24, b >> 4 & kLowNibbles);
}

/// Replaces code 8 by 0 in eight codes, because ggml's code 8 is 0 and not -0. Bit 3 of a byte
/// stays if the bits below are not all zero, because adding 7 to them then carries into bit 3.
constexpr uint64_t without_negative_zero(uint64_t codes) {
  constexpr uint64_t kMagnitudes = 0x0707070707070707u;
  return codes & (((codes & kMagnitudes) + kMagnitudes) | kMagnitudes);
}

inline void split_16_fp4(const std::byte* from, uint8_t* to) {
  const auto a = load<uint64_t>(from), b = load<uint64_t>(from + 8);
  store(to, without_negative_zero(a & kLowNibbles));
  store(to + 8, without_negative_zero(b & kLowNibbles));
  store(to + 16, without_negative_zero(a >> 4 & kLowNibbles));
  store(to + 24, without_negative_zero(b >> 4 & kLowNibbles));
}

/// Writes `half` bytes: byte j has code j in its low nibble and code half + j in its high nibble.
inline void put_halves(const uint8_t* codes, int64_t half, bool fp4, std::byte* to) {
  const auto code = [&](int64_t i) { return fp4 && codes[i] == 8 ? 0u : unsigned{codes[i]}; };
  for (int64_t j = 0; j < half; ++j) to[j] = static_cast<std::byte>(code(j) | code(half + j) << 4);
}

/// Where read() writes the parts of one block: its codes, and its first scale and zero. Only types
/// that have zeros or factors write them.
struct BlockParts {
  uint8_t *codes, *scales, *zeros, *scale_factor, *zero_factor;
};

/// The same parts, from which write() makes a block.
struct BlockSource {
  const uint8_t *codes, *scales, *zeros, *scale_factor, *zero_factor;
};

/// Copies a float16 between a block and a part.
inline void copy_f16(const uint8_t* from, std::byte* to) { std::memcpy(to, from, 2); }

/// What a block holds: kElements codes in kBytes, and a scale for each kGroup codes. With kZeros,
/// it also holds additive zeros of this type. kFileType is llama.cpp's number for a file of this
/// type, and kMixedFileType, where there is one, for a file that is mostly of this type; llama.cpp
/// only prints them.
template <marlin_format FORMAT, int64_t ELEMENTS, int64_t BYTES, int64_t GROUP, ScaleType SCALES>
struct BlockOf {
  static constexpr marlin_format kFormat = FORMAT;
  static constexpr int64_t kElements = ELEMENTS, kBytes = BYTES, kGroup = GROUP;
  static constexpr ScaleType kScales = SCALES;
};

struct Q4_0 : BlockOf<MARLIN_FORMAT_INT4, 32, 18, 32, ScaleType::f16> {
  static constexpr const char* kName = "Q4_0";
  static constexpr uint32_t kFileType = 2;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    split_16(block + 2, to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scales, block);
    put_halves(from.codes, 16, false, block + 2);
  }
};

struct Q4_1 : BlockOf<MARLIN_FORMAT_INT4, 32, 20, 32, ScaleType::f16> {
  static constexpr const char* kName = "Q4_1";
  static constexpr ScaleType kZeros = ScaleType::f16;
  static constexpr uint32_t kFileType = 3;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    store(to.zeros, load<uint16_t>(block + 2));
    split_16(block + 4, to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scales, block);
    copy_f16(from.zeros, block + 2);
    put_halves(from.codes, 16, false, block + 4);
  }
};

struct Q8_0 : BlockOf<MARLIN_FORMAT_INT8, 32, 34, 32, ScaleType::f16> {
  static constexpr const char* kName = "Q8_0";
  static constexpr uint32_t kFileType = 7;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    std::memcpy(to.codes, block + 2, 32);
  }
  static void write(BlockSource from, std::byte* block) {
    copy_f16(from.scales, block);
    std::memcpy(block + 2, from.codes, 32);
  }
};

struct Mxfp4 : BlockOf<MARLIN_FORMAT_MXFP4, 32, 17, 32, ScaleType::e8m0> {
  static constexpr const char* kName = "MXFP4";
  static constexpr uint32_t kFileType = 38;
  /// ggml's own validation rejects this byte. Its kernels read it as 2^128, which no float scale
  /// holds.
  static constexpr uint8_t kNoScale = 0xff;
  static void read(const std::byte* block, BlockParts to) {
    *to.scales = std::to_integer<uint8_t>(*block);
    split_16_fp4(block + 1, to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    *block = std::byte{*from.scales};
    put_halves(from.codes, 16, true, block + 1);
  }
};

/// Four groups of 16; element 16 g + j is the low nibble of byte 8 g + j, element 16 g + 8 + j the
/// high one.
struct Nvfp4Codes {
  static constexpr int64_t kElements = 64, kBytes = 36, kGroup = 16;
  static void read_codes(const std::byte* block, uint8_t* codes) {
    for (int g = 0; g < 4; ++g) {
      const auto x = load<uint64_t>(block + 4 + 8 * g);
      store(codes + 16 * g, without_negative_zero(x & kLowNibbles));
      store(codes + 16 * g + 8, without_negative_zero(x >> 4 & kLowNibbles));
    }
  }
};

/// For matrices with a scale byte 0xFF, which means 480 and is not an E4M3 number.
struct Nvfp4AsF16 : Nvfp4Codes {
  static void read(const std::byte* block, BlockParts to) {
    for (int g = 0; g < 4; ++g)
      store(to.scales + 2 * g, kGgufE4m3[std::to_integer<uint8_t>(block[g])]);
    read_codes(block, to.codes);
  }
};

struct Nvfp4 : Nvfp4Codes {
  static constexpr const char* kName = "NVFP4";
  static constexpr marlin_format kFormat = MARLIN_FORMAT_NVFP4;
  static constexpr ScaleType kScales = ScaleType::e4m3;
  static constexpr uint32_t kFileType = 39;
  static void read(const std::byte* block, BlockParts to) {
    for (int g = 0; g < 4; ++g) {
      const auto b = std::to_integer<uint8_t>(block[g]);
      to.scales[g] = b == 0x7f ? uint8_t{0} : static_cast<uint8_t>(b & 0x7f);
    }
    read_codes(block, to.codes);
  }
  static void write(BlockSource from, std::byte* block) {
    std::memcpy(block, from.scales, 4);
    for (int g = 0; g < 4; ++g) put_halves(from.codes + 16 * g, 8, true, block + 4 + 8 * g);
  }

  /// The same blocks with float16 scales, and whether any of `count` blocks needs them.
  using WithF16Scales = Nvfp4AsF16;
  static bool needs_f16_scales(const std::byte* blocks, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto four = load<uint32_t>(blocks + i * kBytes);
      // A byte is all ones if one more than its lower seven bits reaches the eighth, which is set.
      if ((((four & 0x7f7f7f7fu) + 0x01010101u) & four & 0x80808080u) != 0) return true;
    }
    return false;
  }
};

}  // namespace metal_marlin::gguf
