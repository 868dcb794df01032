// How a code becomes a number before its scale multiplies it: the one vocabulary of codes, in which
// kernels of every backend are named.
#pragma once

#include <cstdint>

#include "formats/weights.h"

namespace metal_marlin {

enum class CodeKind : uint8_t {
  u4,      ///< INT4 with zero point 8
  u4zero,  ///< INT4 with integer zero points
  u4add,   ///< INT4 with additive zeros
  fp4,     ///< E2M1
  i8,      ///< integers in bytes: INT8; others as they are expanded, less integer zero points
  i8add,   ///< the same with additive zeros; UINT8, whose codes are stored less 128
  lut4,    ///< 4-bit indices of 16 floats: NF4, CODEBOOK4
  bf16,    ///< BF16, and E4M3, which is expanded to it
  f16,
  f32,
};

constexpr bool is_eight_bits(CodeKind kind) {
  return kind == CodeKind::i8 || kind == CodeKind::i8add;
}
/// Codes that only float activations multiply (FormatRow::has_real_codes).
constexpr bool is_real(CodeKind kind) { return kind >= CodeKind::lut4; }
/// Codes that are floats, or become floats before they are multiplied.
constexpr bool is_float_line(CodeKind kind) { return kind >= CodeKind::bf16; }
constexpr bool is_additive(CodeKind kind) {
  return kind == CodeKind::u4add || kind == CodeKind::i8add;
}

constexpr CodeKind code_kind(marlin_format format, ZeroKind zeros) {
  const bool additive = zeros == ZeroKind::additive;
  switch (format) {
    case MARLIN_FORMAT_INT4:
      if (additive) return CodeKind::u4add;
      return zeros == ZeroKind::integer ? CodeKind::u4zero : CodeKind::u4;
    case MARLIN_FORMAT_FP4:
    case MARLIN_FORMAT_MXFP4:
    case MARLIN_FORMAT_NVFP4:
      return CodeKind::fp4;
    case MARLIN_FORMAT_UINT8:
      return CodeKind::i8add;
    case MARLIN_FORMAT_NF4:
    case MARLIN_FORMAT_CODEBOOK4:
      return CodeKind::lut4;
    case MARLIN_FORMAT_FP8:
    case MARLIN_FORMAT_BFLOAT16:
      return CodeKind::bf16;
    case MARLIN_FORMAT_FLOAT16:
      return CodeKind::f16;
    case MARLIN_FORMAT_FLOAT32:
      return CodeKind::f32;
    default:
      return additive ? CodeKind::i8add : CodeKind::i8;
  }
}

}  // namespace metal_marlin
