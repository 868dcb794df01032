// 16-bit floats as bits, to float.
#pragma once

#include <bit>
#include <cstdint>

namespace llm {

// Shifted into place, a float16 is its value times 2^-112, subnormals too.
inline float float16_to_float(uint16_t half) {
  const float magnitude = std::bit_cast<float>(uint32_t{half & 0x7FFFu} << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | uint32_t{half & 0x8000u} << 16);
}

inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace llm
