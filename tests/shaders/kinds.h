// Every kind of code that a kernel decodes, with the groups, scales and zeros its files have.
#pragma once

#include <iterator>
#include <ostream>
#include <string>

#include "formats/format_table.h"
#include "problem.h"

namespace shaders {

inline constexpr Kind kKinds[] = {
    {"int4", MARLIN_FORMAT_INT4, ZeroKind::none, ScaleType::f16},
    {"int4_zeros", MARLIN_FORMAT_INT4, ZeroKind::integer, ScaleType::f16},
    {"int4_additive", MARLIN_FORMAT_INT4, ZeroKind::additive, ScaleType::bf16},
    {"fp4", MARLIN_FORMAT_FP4, ZeroKind::none, ScaleType::f32},
    {"mxfp4", MARLIN_FORMAT_MXFP4, ZeroKind::none, ScaleType::e8m0},
    {"nvfp4", MARLIN_FORMAT_NVFP4, ZeroKind::none, ScaleType::e4m3, false, ScaleType::f16, 16},
    {"int8", MARLIN_FORMAT_INT8, ZeroKind::none, ScaleType::f16},
    {"int8_additive", MARLIN_FORMAT_INT8, ZeroKind::additive, ScaleType::f32},
    {"int4_sparse", MARLIN_FORMAT_INT4, ZeroKind::none, ScaleType::bf16, true},
    {"int4_zeros_sparse", MARLIN_FORMAT_INT4, ZeroKind::integer, ScaleType::f32, true},
    {"int4_additive_sparse", MARLIN_FORMAT_INT4, ZeroKind::additive, ScaleType::f16, true},
    {"fp4_sparse", MARLIN_FORMAT_FP4, ZeroKind::none, ScaleType::f16, true},
    {"mxfp4_sparse", MARLIN_FORMAT_MXFP4, ZeroKind::none, ScaleType::e8m0, true},
    {"nvfp4_sparse", MARLIN_FORMAT_NVFP4, ZeroKind::none, ScaleType::e4m3, true, ScaleType::f16, 16},
    {"int2_zeros", MARLIN_FORMAT_INT2, ZeroKind::integer, ScaleType::f16},
    {"int3_additive", MARLIN_FORMAT_INT3, ZeroKind::additive, ScaleType::f16},
    {"int5", MARLIN_FORMAT_INT5, ZeroKind::none, ScaleType::f16},
    {"int6_zeros", MARLIN_FORMAT_INT6, ZeroKind::integer, ScaleType::bf16},
    {"q2_k", MARLIN_FORMAT_INT2, ZeroKind::additive, ScaleType::u4, false, ScaleType::u4, 16},
    {"q3_k", MARLIN_FORMAT_INT3, ZeroKind::none, ScaleType::s6, false, ScaleType::f16, 16},
    {"q4_k", MARLIN_FORMAT_INT4, ZeroKind::additive, ScaleType::u6, false, ScaleType::u6},
    {"q5_k", MARLIN_FORMAT_INT5, ZeroKind::additive, ScaleType::u6, false, ScaleType::u6},
    {"q6_k", MARLIN_FORMAT_INT6, ZeroKind::none, ScaleType::s8, false, ScaleType::f16, 16},
    {"uint8_zeros", MARLIN_FORMAT_UINT8, ZeroKind::integer, ScaleType::f16},
    {"fp8", MARLIN_FORMAT_FP8, ZeroKind::none, ScaleType::bf16},
    {"mxfp8", MARLIN_FORMAT_FP8, ZeroKind::none, ScaleType::e8m0},
    {"iq4_nl", MARLIN_FORMAT_IQ4, ZeroKind::none, ScaleType::f16},
    {"iq4_xs", MARLIN_FORMAT_IQ4, ZeroKind::none, ScaleType::s6},
    {"nf4", MARLIN_FORMAT_NF4, ZeroKind::none, ScaleType::f32},
    {"nf4_nested", MARLIN_FORMAT_NF4, ZeroKind::none, ScaleType::nested},
    {"codebook4", MARLIN_FORMAT_CODEBOOK4, ZeroKind::none, ScaleType::f32},
    {"f32", MARLIN_FORMAT_FLOAT32, ZeroKind::none, ScaleType::e8m0, false, ScaleType::f16, 0},
    {"f16", MARLIN_FORMAT_FLOAT16, ZeroKind::none, ScaleType::e8m0, false, ScaleType::f16, 0},
    {"bf16", MARLIN_FORMAT_BFLOAT16, ZeroKind::none, ScaleType::e8m0, false, ScaleType::f16, 0},
};

inline size_t number_of(const Kind& kind) {
  size_t number = 0;
  while (kKinds[number].name != std::string(kind.name)) ++number;
  return number;
}

/// Floats as they are, whose only scale is 2^0.
inline bool is_float(const Kind& kind) { return metal_marlin::float_dtype(kind.format) != 0; }

/// Numbers that need float32: tensor operations do not take them.
inline bool is_real(const Kind& kind) {
  const metal_marlin::FormatRow& row = *metal_marlin::format_row(kind.format);
  return is_float(kind) || row.has_codebook_of_floats() || kind.format == MARLIN_FORMAT_IQ4;
}

/// Those that tensor operations on registers take: codes of four or eight bits.
inline bool is_in_fragments(const Kind& kind) {
  return !is_real(kind) && !kind.sparse && metal_marlin::format_row(kind.format)->code_bits % 4 == 0;
}

}  // namespace shaders
