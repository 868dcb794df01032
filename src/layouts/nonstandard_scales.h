// Scale bytes that some writers give a meaning which the canonical type does not have, as 16-bit
// floats that hold it exactly.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace metal_marlin {

/// The float16 of an E4M3 magnitude (0..127) in which 0x7F is 480 instead of NaN. The bias is 15
/// instead of 7; subnormals m * 2^-9 are normal in float16.
constexpr uint16_t e4m3_magnitude_to_f16(unsigned byte) {
  const unsigned exponent = byte >> 3, mantissa = byte & 7u;
  if (exponent != 0) return static_cast<uint16_t>((exponent + 8) << 10 | mantissa << 7);
  if (mantissa == 0) return 0;
  const unsigned top = static_cast<unsigned>(std::bit_width(mantissa)) - 1;
  return static_cast<uint16_t>((top + 6) << 10 | (mantissa << (10 - top) & 0x3ffu));
}

/// MLX: E4M3 with sign, without NaN.
inline constexpr std::array<uint16_t, 256> kMlxE4m3 = [] {
  std::array<uint16_t, 256> table{};
  for (unsigned b = 0; b < 256; ++b)
    table[b] = static_cast<uint16_t>(e4m3_magnitude_to_f16(b & 127u) | (b & 128u) << 8);
  return table;
}();

/// MLX: E8M0 in which 0xFF is infinity, as bfloat16. The byte is the exponent of the bfloat16, and
/// 2^-127 is subnormal.
inline constexpr std::array<uint16_t, 256> kMlxE8m0 = [] {
  std::array<uint16_t, 256> table{};
  for (unsigned b = 0; b < 256; ++b) table[b] = static_cast<uint16_t>(b == 0 ? 0x0040u : b << 7);
  return table;
}();

/// GGUF: bit 7 is ignored, 0x7F (but not 0xFF) is 0.
inline constexpr std::array<uint16_t, 256> kGgufE4m3 = [] {
  std::array<uint16_t, 256> table{};
  for (unsigned b = 0; b < 256; ++b)
    table[b] = b == 0x7f ? uint16_t{0} : e4m3_magnitude_to_f16(b & 127u);
  return table;
}();

}  // namespace metal_marlin
