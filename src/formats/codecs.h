// The scalar codecs of the number types. Each is exact if the target can hold the value; otherwise
// it rounds to nearest even.
#pragma once

#include <bit>
#include <cstdint>

#include "formats/weights.h"

namespace metal_marlin {

/// E2M1 values of codes 0..15: sign, 2 exponent bits (bias 1), 1 mantissa bit. Code 8 is -0.
inline constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// The values of GGUF's IQ4_NL and IQ4_XS: integers at uneven distances.
inline constexpr float kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

/// The values of NF4, the quantiles of a normal distribution that bitsandbytes uses (Dettmers et
/// al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023, appendix E).
inline constexpr float kNf4[16] = {
    -0x1p+0f,        -0x1.647362p-1f, -0x1.0cd660p-1f, -0x1.946540p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0.0f,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  0x1p+0f};

constexpr float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(uint32_t{h} << 16); }
/// NaN stays NaN (quiet).
constexpr uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(u >> 16 | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
constexpr float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = h >> 10 & 31u,
                 mantissa = h & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112u) << 23 | mantissa << 13);
  // A subnormal is mantissa * 2^-24. It is normalized by hand, so that the flush-to-zero mode of
  // the host does not affect it.
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(mantissa) - 21;
  return std::bit_cast<float>(sign | static_cast<uint32_t>(113 - shift) << 23 |
                              (mantissa << (13 + shift) & 0x7fffffu));
}
/// Overflow gives infinity, NaN stays NaN.
uint16_t f32_to_f16(float f);
/// 2^(e - 127); 0 is 2^-127, 255 is NaN (OCP MX v1.0).
constexpr float e8m0_to_f32(uint8_t e) {
  if (e == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(e == 0 ? 0x00400000u : uint32_t{e} << 23);
}
/// E4M3FN: bias 7, no infinity, 0x7F and 0xFF are NaN, subnormals m * 2^-9.
constexpr float e4m3_to_f32(uint8_t b) {
  const uint32_t sign = uint32_t{b & 0x80u} << 24, exponent = b >> 3 & 15u, mantissa = b & 7u;
  if ((b & 0x7f) == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 120u) << 23 | mantissa << 20);
  if (mantissa == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(mantissa) - 28;
  return std::bit_cast<float>(sign | static_cast<uint32_t>(121 - shift) << 23 |
                              (mantissa << (20 + shift) & 0x7fffffu));
}
/// Saturates at 448; NaN stays NaN.
uint8_t f32_to_e4m3(float f);

/// Exact, even if the host has set denormals-are-zero.
double f32_to_f64(float f);
/// Right even for a subnormal result if the host has set flush-to-zero. The rounding mode must be
/// to nearest.
float f64_to_f32(double x);

/// Bytes of one element of the dtypes that products read and write; 0 for every other dtype.
constexpr size_t float_bytes(marlin_dtype d) {
  if (d == MARLIN_F32) return 4;
  return d == MARLIN_F16 || d == MARLIN_BF16 ? 2 : 0;
}

/// One stored scale as float32; exact. Of a two-level scale, this is the integer,
/// and of a nested one the byte.
float decode_scale(ScaleType type, const uint8_t* p);
/// The float of F32, F16 or BF16 that is nearest to x; infinity if x is beyond the type.
float round_scale_to(ScaleType type, double x);
/// Stores what round_scale_to gave.
void encode_scale(ScaleType type, float scale, uint8_t* p);
/// Reads n floats from F32, F16 or BF16 memory of any alignment; exact.
void decode_floats(marlin_dtype dtype, const void* from, int64_t n, float* to);
/// Writes n floats to F32, F16 or BF16 memory; rounds to nearest even.
void encode_floats(marlin_dtype dtype, const float* from, int64_t n, void* to);

}  // namespace metal_marlin
