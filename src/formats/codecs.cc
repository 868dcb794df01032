#include "formats/codecs.h"

#include <cmath>

#include "base/bits.h"

namespace metal_marlin {
namespace {

/// v / 2^shift rounded to nearest, ties to even; shift 1..31.
constexpr uint32_t shift_right_rne(uint32_t v, uint32_t shift) {
  const uint32_t half = 1u << (shift - 1);
  return (v + (half - 1) + (v >> shift & 1u)) >> shift;
}

/// The significand of a finite float with its hidden bit: the value is significand * 2^(exponent
/// field - 150).
constexpr uint32_t significand(uint32_t magnitude) { return (magnitude & 0x7fffffu) | 0x800000u; }

}  // namespace

// Both encoders below work on bits only, so that neither the flush-to-zero mode nor the rounding
// mode of the host affects them. In the normal range of the target, they rebias the exponent and
// round the mantissa. A carry into the exponent gives the next binade, which is the right result.
// Below the normal range, they shift the significand to units of the target's smallest step.

uint16_t f32_to_f16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f), magnitude = u & 0x7fffffffu,
                 sign = u >> 16 & 0x8000u;
  uint32_t h;
  if (magnitude > 0x7f800000u) {
    h = 0x7e00u | (magnitude >> 13 & 0x1ffu);
  } else if (magnitude >= 0x47800000u) {  // 2^16; [65520, 2^16) reaches infinity by the carry
    h = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14
    h = shift_right_rne(magnitude - (112u << 23), 13);
  } else if (magnitude >= 0x33000000u) {  // 2^-25, half of the smallest step 2^-24
    h = shift_right_rne(significand(magnitude), 126u - (magnitude >> 23));
  } else {
    h = 0;
  }
  return static_cast<uint16_t>(sign | h);
}

uint8_t f32_to_e4m3(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f), magnitude = u & 0x7fffffffu,
                 sign = u >> 24 & 0x80u;
  uint32_t b;
  if (magnitude > 0x7f800000u) {
    b = 0x7fu;
  } else if (magnitude >= 0x43e00000u) {  // 448
    b = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6
    b = shift_right_rne(magnitude - (120u << 23), 20);
  } else if (magnitude >= 0x3a800000u) {  // 2^-10, half of the smallest step 2^-9
    b = shift_right_rne(significand(magnitude), 141u - (magnitude >> 23));
  } else {
    b = 0;
  }
  return static_cast<uint8_t>(sign | b);
}

// A processor that flushes subnormals would flush subnormal floats on the way to double and back.
// The functions below therefore move their bits by hand.

double f32_to_f64(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7f800000u) != 0) return f;
  const double magnitude = static_cast<double>(u & 0x7fffffu) * 0x1p-149;
  return u >> 31 != 0 ? -magnitude : magnitude;
}

float f64_to_f32(double x) {
  const double magnitude = std::fabs(x);
  if (!(magnitude < 0x1p-126)) return static_cast<float>(x);
  // The magnitude is counted in float's smallest step and added to 2^52, where doubles are the
  // integers. The sum rounds to nearest even, and its low bits are the bits of the float (2^23
  // steps are the smallest normal number).
  const double steps = magnitude * 0x1p149 + 0x1p52;
  const auto pattern = static_cast<uint32_t>(std::bit_cast<uint64_t>(steps) & 0xffffffffu);
  return std::bit_cast<float>(pattern | (std::signbit(x) ? 0x80000000u : 0u));
}

float decode_scale(ScaleType type, const uint8_t* p) {
  switch (type) {
    case ScaleType::f32:
      return load<float>(p);
    case ScaleType::f16:
      return f16_to_f32(load<uint16_t>(p));
    case ScaleType::bf16:
      return bf16_to_f32(load<uint16_t>(p));
    case ScaleType::e8m0:
      return e8m0_to_f32(*p);
    case ScaleType::e4m3:
      return e4m3_to_f32(*p);
    case ScaleType::u4:
    case ScaleType::u6:
    case ScaleType::nested:
      return static_cast<float>(*p);
    case ScaleType::s6:
    case ScaleType::s8:
      return static_cast<float>(static_cast<int8_t>(*p));
  }
  return 0;
}

float round_scale_to(ScaleType type, double x) {
  const float f = f64_to_f32(x);
  if (type == ScaleType::f16) return f16_to_f32(f32_to_f16(f));
  return type == ScaleType::bf16 ? bf16_to_f32(f32_to_bf16(f)) : f;
}

void encode_scale(ScaleType type, float scale, uint8_t* p) {
  if (type == ScaleType::f32) return store(p, scale);
  store(p, type == ScaleType::f16 ? f32_to_f16(scale) : f32_to_bf16(scale));
}

void decode_floats(marlin_dtype dtype, const void* from, int64_t n, float* to) {
  const auto* p = static_cast<const uint8_t*>(from);
  if (dtype == MARLIN_F32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  } else if (dtype == MARLIN_F16) {
    for (int64_t i = 0; i < n; ++i) to[i] = f16_to_f32(load<uint16_t>(p + 2 * i));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = bf16_to_f32(load<uint16_t>(p + 2 * i));
  }
}

void encode_floats(marlin_dtype dtype, const float* from, int64_t n, void* to) {
  auto* p = static_cast<uint8_t*>(to);
  if (dtype == MARLIN_F32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  } else if (dtype == MARLIN_F16) {
    for (int64_t i = 0; i < n; ++i) store(p + 2 * i, f32_to_f16(from[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) store(p + 2 * i, f32_to_bf16(from[i]));
  }
}

}  // namespace metal_marlin
