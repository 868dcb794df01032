// Function constants, for which a pipeline is specialized. The compiler folds them, so a kernel
// pays only for the features that it uses. The kernels need IEEE arithmetic
// (MTLCompileOptions.mathMode safe): NaN and infinity must survive, and a * b + c may be fused.
#pragma once
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "../common/arguments.h"

using namespace metal;

#define UNROLL _Pragma("clang loop unroll(full)")

// A constant that a pipeline does not set is 0. A host sets only the constants that a kernel reads.
#define MARLIN_CONSTANT(type, name, index)                 \
  constant type given_##name [[function_constant(index)]]; \
  constant type name = is_function_constant_defined(given_##name) ? given_##name : type(0);

MARLIN_CONSTANT(uint, scale_type, MARLIN_CONSTANT_SCALE_TYPE)
MARLIN_CONSTANT(uint, zero_kind, MARLIN_CONSTANT_ZERO_KIND)
MARLIN_CONSTANT(uint, group_shift, MARLIN_CONSTANT_GROUP_SHIFT)
MARLIN_CONSTANT(uint, row_factor, MARLIN_CONSTANT_ROW_FACTOR)
MARLIN_CONSTANT(bool, a_aligned, MARLIN_CONSTANT_ALIGNED)
MARLIN_CONSTANT(bool, a_ragged, MARLIN_CONSTANT_RAGGED)
MARLIN_CONSTANT(uint, output_type, MARLIN_CONSTANT_OUTPUT_TYPE)
MARLIN_CONSTANT(uint, bias_type, MARLIN_CONSTANT_BIAS_TYPE)
MARLIN_CONSTANT(uint, epilogue, MARLIN_CONSTANT_EPILOGUE)
MARLIN_CONSTANT(bool, accumulate, MARLIN_CONSTANT_ACCUMULATE)
MARLIN_CONSTANT(bool, partial, MARLIN_CONSTANT_PARTIAL)
MARLIN_CONSTANT(bool, interleaved, MARLIN_CONSTANT_INTERLEAVED)
MARLIN_CONSTANT(bool, has_slot_to_k, MARLIN_CONSTANT_SLOT_TO_K)
MARLIN_CONSTANT(bool, quantized, MARLIN_CONSTANT_QUANTIZED)
MARLIN_CONSTANT(bool, has_row_list, MARLIN_CONSTANT_ROW_LIST)
MARLIN_CONSTANT(uint, routing, MARLIN_CONSTANT_ROUTING)
MARLIN_CONSTANT(uint, code_form, MARLIN_CONSTANT_CODE_FORM)
MARLIN_CONSTANT(bool, sorts_rows, MARLIN_CONSTANT_SORTS_ROWS)

constant bool has_codebook = zero_kind == kZeroCodebook;
constant bool has_zeros = zero_kind != kZeroNone;  // or a codebook in their place
constant bool additive = zero_kind >= kZeroF32 && !has_codebook;
constant uint code_bits = code_form;  // of planes
constant bool joined = zero_kind == kZeroJoined;
constant bool two_level = scale_type == kScaleTwoLevel;
constant bool nested = scale_type == kScaleNested;
constant bool scale_pairs = group_shift == 4 && scale_type >= kScaleE8m0;  // see scale_quad_at()
constant bool zero_pairs = group_shift == 4 && zero_kind == kZeroInteger;
constant bool has_row_factor = row_factor != kRowFactorNone;
constant bool has_bias = bias_type != kFloatNone;
constant bool finished = !partial;  // the kernel writes C; otherwise it writes raw sums
constant bool routed = routing != kRoutingNone;
constant bool sorts_scales = sorts_rows && has_bias;  // then bias_type is that of the scales
constant bool finishes_factor = finished && has_row_factor;
constant bool finishes_bias = finished && has_bias;

// Fragments of an 8x8 matrix (../common/layout.h): ushort versions of lane_row and lane_column.
static inline ushort fragment_row(ushort lane) { return ushort(lane_row(lane)); }
static inline ushort fragment_column(ushort lane) { return ushort(lane_column(lane)); }
