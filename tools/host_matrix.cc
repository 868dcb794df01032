#include "host_matrix.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace metal_marlin::tools {

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent - 15 + 127;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  // Adding just under half of the last kept place, plus its parity, rounds ties to even. A carry
  // moves to the exponent.
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520)
    return static_cast<uint16_t>(sign | 0x7c00);  // halfway from 65504 to 65536: ties go up
  if (magnitude <
      0x1p-14f) {  // subnormal: adding 0.5 leaves magnitude / 2^-24 rounded in the low bits
    return static_cast<uint16_t>(
        sign | (std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rebased = std::bit_cast<uint32_t>(magnitude) - ((127u - 15u) << 23);
  return static_cast<uint16_t>(sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
}

HostMatrix::HostMatrix(int64_t rows, int64_t cols, marlin_dtype dtype)
    : rows_(rows), cols_(cols), dtype_(dtype), element_(dtype == MARLIN_F32 ? 4 : 2) {
  bytes_.resize(static_cast<size_t>(rows) * static_cast<size_t>(cols) * element_);
}

HostMatrix HostMatrix::random(int64_t rows, int64_t cols, marlin_dtype dtype, uint64_t seed) {
  HostMatrix matrix(rows, cols, dtype);
  Random random(seed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) matrix.set(r, c, random.normal());
  }
  return matrix;
}

float HostMatrix::at(int64_t row, int64_t col) const {
  const std::byte* p = bytes_.data() + static_cast<size_t>(row * cols_ + col) * element_;
  if (dtype_ == MARLIN_F32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return dtype_ == MARLIN_F16 ? from_f16(bits) : from_bf16(bits);
}

void HostMatrix::set(int64_t row, int64_t col, float value) {
  std::byte* p = bytes_.data() + static_cast<size_t>(row * cols_ + col) * element_;
  if (dtype_ == MARLIN_F32) {
    std::memcpy(p, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype_ == MARLIN_F16 ? to_f16(value) : to_bf16(value);
  std::memcpy(p, &bits, sizeof bits);
}

marlin_matrix HostMatrix::view(int64_t rows) const {
  marlin_matrix matrix{};
  // The ABI has one matrix type for inputs and outputs. It writes only matrices that are given as
  // C.
  matrix.data = const_cast<std::byte*>(bytes_.data());
  matrix.rows = rows;
  matrix.cols = cols_;
  matrix.dtype = dtype_;
  return matrix;
}

}  // namespace metal_marlin::tools
