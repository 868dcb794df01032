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
  i8add,   ///< the same with additive zeros
};

constexpr bool is_eight_bits(CodeKind kind) {
  return kind == CodeKind::i8 || kind == CodeKind::i8add;
}
constexpr bool is_additive(CodeKind kind) {
  return kind == CodeKind::u4add || kind == CodeKind::i8add;
}

constexpr CodeKind code_kind(marlin_format format, ZeroKind zeros) {
  const bool additive = zeros == ZeroKind::additive;
  switch (format) {
    case MARLIN_INT4:
      if (additive) return CodeKind::u4add;
      return zeros == ZeroKind::integer ? CodeKind::u4zero : CodeKind::u4;
    case MARLIN_FP4:
    case MARLIN_MXFP4:
    case MARLIN_NVFP4:
      return CodeKind::fp4;
    default:
      return additive ? CodeKind::i8add : CodeKind::i8;
  }
}

}  // namespace metal_marlin
