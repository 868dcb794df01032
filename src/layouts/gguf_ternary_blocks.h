// Types of GGUF blocks with one or two bits for each element, which can only be read: INT2 has
// codes that Q1_0 and TQ1_0 do not hold, and the values of Q2_0 and TQ2_0 count from -1, which
// takes zero points in a kind of weights where blocks have none. They have no write(), hence no
// kFileType.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "formats/weights.h"
#include "layouts/gguf_blocks.h"

namespace metal_marlin::gguf {

/// Bit i of the block: d if it is set, else -d.
struct Q1_0 : BlockOf<MARLIN_FORMAT_INT2, 128, 18, 128, ScaleType::f16> {
  static constexpr const char* kName = "Q1_0";
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    for (int64_t i = 0; i < kElements; ++i) {
      const uint32_t bit = std::to_integer<uint32_t>(block[2 + i / 8]) >> (i % 8) & 1;
      to.codes[i] = static_cast<uint8_t>(1 + 2 * bit);  // less the implied zero point 2: -1 or 1
    }
  }
};

/// Element i is (q - 1) d, and q the i-th pair of bits.
struct Q2_0 : BlockOf<MARLIN_FORMAT_INT2, 64, 18, 64, ScaleType::f16> {
  static constexpr const char* kName = "Q2_0";
  static constexpr uint8_t kIntegerZero = 1;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block));
    *to.zeros = kIntegerZero;
    for (int64_t i = 0; i < kElements; ++i)
      to.codes[i] = std::to_integer<uint8_t>(block[2 + i / 4] >> (2 * (i % 4)) & std::byte{3});
  }
};

/// Elements 128 h + 32 l + j are (q - 1) d, and q the l-th pair of bits of byte 32 h + j.
struct Tq2_0 : BlockOf<MARLIN_FORMAT_INT2, 256, 66, 256, ScaleType::f16> {
  static constexpr const char* kName = "TQ2_0";
  static constexpr uint8_t kIntegerZero = 1;
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block + 64));
    *to.zeros = kIntegerZero;
    for (int64_t i = 0; i < kElements; ++i) {
      const std::byte four = block[i / 128 * 32 + i % 32];
      to.codes[i] = std::to_integer<uint8_t>(four >> (2 * (i % 128 / 32)) & std::byte{3});
    }
  }
};

/// A byte b holds five digits of base 3, the first of which is floor(3 b / 256). The next ones
/// follow from b times 3, 9, 27 and 81, modulo 256. A digit t is the value (t - 1) d. The bytes of
/// a run lie side by side: its first digits, then its second digits, and so on.
struct Tq1_0 : BlockOf<MARLIN_FORMAT_INT2, 256, 54, 256, ScaleType::f16> {
  static constexpr const char* kName = "TQ1_0";
  static void read(const std::byte* block, BlockParts to) {
    store(to.scales, load<uint16_t>(block + 52));
    uint8_t* code = to.codes;
    const auto take = [&](const std::byte* run, int64_t bytes, int digits) {
      uint32_t power = 1;
      for (int digit = 0; digit < digits; ++digit, power *= 3) {
        for (int64_t i = 0; i < bytes; ++i) {
          const uint32_t rest = std::to_integer<uint32_t>(run[i]) * power & 0xff;
          *code++ = static_cast<uint8_t>(1 + (3 * rest >> 8));  // less the implied 2: -1, 0 or 1
        }
      }
    };
    take(block, 32, 5);
    take(block + 32, 16, 5);
    take(block + 48, 4, 4);
  }
};

}  // namespace metal_marlin::gguf
