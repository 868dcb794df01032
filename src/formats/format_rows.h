// The table of formats: one row per format, with its facts and no algorithms; and the names of
// dtypes. The library, the command and the tests take limits and names from here.
#pragma once

#include <cstdint>
#include <iterator>

#include "formats/codecs.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The numbers that codes stand for, in units of their scale.
enum class CodeNumbers : uint8_t {
  from_zero,    ///< 0..2^bits - 1, less a zero
  twos_signed,  ///< two's complement
  codebook,     ///< 16 values by index
  floats,       ///< E4M3 (8 bits), or the float itself
};

struct FormatRow {
  marlin_format format;
  const char* name;  ///< "MXFP4"
  int code_bits;     ///< 2 to 6, 8, 16 or 32
  CodeNumbers numbers;
  const float* codebook;   ///< of codes that are indices, but for CODEBOOK4
  int64_t default_group;   ///< also the only one when fixed_group
  bool fixed_group;        ///< part of the format's definition
  ScaleType default_type;  ///< of scales that the quantizer writes
  uint32_t scale_types;    ///< bit (1 << ScaleType): allowed
  uint32_t zero_kinds;     ///< bit (1 << ZeroKind): allowed
  bool quantized;          ///< the quantizer makes it from floats

  bool allows(ScaleType type) const noexcept {
    return (scale_types >> static_cast<int>(type) & 1u) != 0;
  }
  bool allows(ZeroKind kind) const noexcept {
    return (zero_kinds >> static_cast<int>(kind) & 1u) != 0;
  }
  /// 2:4 sparse weights have codes of kernels that pick activations by position.
  bool has_sparse_form() const noexcept {
    return format == MARLIN_FORMAT_INT4 || (numbers == CodeNumbers::codebook && codebook == kE2m1);
  }
  /// The code of 0 of integers without zeros.
  int zero_point() const noexcept {
    return numbers == CodeNumbers::from_zero ? 1 << code_bits >> 1 : 0;
  }
  bool has_codebook_of_floats() const noexcept {
    return numbers == CodeNumbers::codebook && codebook != kE2m1 && codebook != kIq4;
  }
  /// Codes whose products with 8-bit integers are no integers of 32 bits: every compute multiplies
  /// them as the default does.
  bool has_real_codes() const noexcept {
    return numbers == CodeNumbers::floats || has_codebook_of_floats();
  }
  /// Bytes of a canonical code.
  size_t code_bytes() const noexcept {
    return code_bits <= 8 ? 1 : static_cast<size_t>(code_bits / 8);
  }
};

namespace format_rows {

constexpr uint32_t bit(ScaleType t) { return 1u << static_cast<int>(t); }
constexpr uint32_t bit(ZeroKind k) { return 1u << static_cast<int>(k); }
inline constexpr uint32_t kFloatScales =
    bit(ScaleType::f32) | bit(ScaleType::f16) | bit(ScaleType::bf16);

/// Two-level zeros are unsigned: they are subtracted.
inline constexpr uint32_t kAdditiveZeros = kFloatScales | bit(ScaleType::u4) | bit(ScaleType::u6);
inline constexpr uint32_t kIntegerZeros =
    bit(ZeroKind::none) | bit(ZeroKind::integer) | bit(ZeroKind::additive);

// MXFP4 and NVFP4 also take float scales, because some writers give a byte a meaning that the OCP
// type does not have: 480 for E4M3 0x7F in MLX, infinity for E8M0 0xFF. The readers of these files
// return the scales as floats.
inline constexpr int64_t kWholeRow = INT32_MAX;
inline constexpr uint32_t kNoZeros = bit(ZeroKind::none);
inline constexpr auto kFromZero = CodeNumbers::from_zero, kSigned = CodeNumbers::twos_signed,
                      kCodebook = CodeNumbers::codebook, kFloats = CodeNumbers::floats;

/// All rows, in the order of their numbers.
inline constexpr FormatRow kFormatRows[] = {
    {MARLIN_FORMAT_INT4, "INT4", 4, kFromZero, nullptr, 32, false, ScaleType::f16,
     kFloatScales | bit(ScaleType::u6), kIntegerZeros, true},
    {MARLIN_FORMAT_FP4, "FP4", 4, kCodebook, kE2m1, 32, false, ScaleType::f16, kFloatScales,
     kNoZeros, true},
    {MARLIN_FORMAT_MXFP4, "MXFP4", 4, kCodebook, kE2m1, 32, true, ScaleType::e8m0,
     kFloatScales | bit(ScaleType::e8m0), kNoZeros, true},
    {MARLIN_FORMAT_NVFP4, "NVFP4", 4, kCodebook, kE2m1, 16, true, ScaleType::e4m3,
     kFloatScales | bit(ScaleType::e4m3), kNoZeros, true},
    {MARLIN_FORMAT_INT8, "INT8", 8, kSigned, nullptr, 32, false, ScaleType::f16, kFloatScales,
     bit(ZeroKind::none) | bit(ZeroKind::additive), true},
    {MARLIN_FORMAT_INT2, "INT2", 2, kFromZero, nullptr, 32, false, ScaleType::f16,
     kFloatScales | bit(ScaleType::u4), kIntegerZeros, false},
    {MARLIN_FORMAT_INT3, "INT3", 3, kFromZero, nullptr, 32, false, ScaleType::f16,
     kFloatScales | bit(ScaleType::s6), kIntegerZeros, false},
    {MARLIN_FORMAT_INT5, "INT5", 5, kFromZero, nullptr, 32, false, ScaleType::f16,
     kFloatScales | bit(ScaleType::u6), kIntegerZeros, false},
    {MARLIN_FORMAT_INT6, "INT6", 6, kFromZero, nullptr, 32, false, ScaleType::f16,
     kFloatScales | bit(ScaleType::s8), kIntegerZeros, false},
    {MARLIN_FORMAT_IQ4, "IQ4", 4, kCodebook, kIq4, 32, false, ScaleType::f16,
     kFloatScales | bit(ScaleType::s6), kNoZeros, false},
    {MARLIN_FORMAT_UINT8, "UINT8", 8, kFromZero, nullptr, 32, false, ScaleType::f16, kFloatScales,
     kIntegerZeros, false},
    {MARLIN_FORMAT_FP8, "FP8", 8, kFloats, nullptr, 128, false, ScaleType::f32,
     kFloatScales | bit(ScaleType::e8m0), kNoZeros, false},
    {MARLIN_FORMAT_NF4, "NF4", 4, kCodebook, kNf4, 64, false, ScaleType::f32,
     kFloatScales | bit(ScaleType::nested), kNoZeros, false},
    {MARLIN_FORMAT_CODEBOOK4, "CODEBOOK4", 4, kCodebook, nullptr, 64, false, ScaleType::f32,
     kFloatScales | bit(ScaleType::nested), kNoZeros, false},
    // A float is a code whose scale is 2^0, one for a row.
    {MARLIN_FORMAT_FLOAT32, "FLOAT32", 32, kFloats, nullptr, kWholeRow, false, ScaleType::e8m0,
     bit(ScaleType::e8m0), kNoZeros, false},
    {MARLIN_FORMAT_FLOAT16, "FLOAT16", 16, kFloats, nullptr, kWholeRow, false, ScaleType::e8m0,
     bit(ScaleType::e8m0), kNoZeros, false},
    {MARLIN_FORMAT_BFLOAT16, "BFLOAT16", 16, kFloats, nullptr, kWholeRow, false, ScaleType::e8m0,
     bit(ScaleType::e8m0), kNoZeros, false},
};

}  // namespace format_rows
using format_rows::kFormatRows;

/// Decoding looks rows up for each element, so that a row's place follows from its number.
constexpr bool rows_follow_numbers() {
  marlin_format number = 1;
  for (const FormatRow& row : kFormatRows)
    if (row.format != number++) return false;
  return true;
}
static_assert(rows_follow_numbers());

/// "F32"; null for a number that is no dtype.
constexpr const char* dtype_name(marlin_dtype dtype) {
  constexpr const char* kNames[] = {"F32", "F16",  "BF16", "I8", "I32", "U32",
                                    "U4",  "E8M0", "E4M3", "U8", "I16", "I64"};
  return dtype >= 1 && dtype <= static_cast<marlin_dtype>(std::size(kNames)) ? kNames[dtype - 1]
                                                                             : nullptr;
}

}  // namespace metal_marlin
