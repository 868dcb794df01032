// 16-bit floats as bits, to float and back.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace llm {

// Shifted into place, a float16 is its value times 2^-112, subnormals too.
inline float float16_to_float(uint16_t half) {
  const float magnitude = std::bit_cast<float>(uint32_t{half & 0x7FFFu} << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | uint32_t{half & 0x8000u} << 16);
}

// To nearest, ties to even; beyond 65504 to 65504.
inline uint16_t float_to_float16(float x) {
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 16 & 0x8000;
  const float magnitude = std::min(std::fabs(x), 65504.0f);
  if (magnitude < 0x1p-14f) {  // a subnormal: 1/2 has its last bit where that of float16 is
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f)));
  }
  const auto bits = std::bit_cast<uint32_t>(magnitude * 0x1p-112f);
  return static_cast<uint16_t>(sign | (bits + 0xFFF + (bits >> 13 & 1)) >> 13);
}

inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace llm
