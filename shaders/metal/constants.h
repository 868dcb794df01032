// Function constants: what a pipeline is specialised for. The compiler folds them, so a kernel pays for nothing it does not use.
// The kernels want IEEE arithmetic (MTLCompileOptions.mathMode safe): NaN and infinity must survive, a * b + c may be fused.
#pragma once
#include <metal_stdlib>
#include <metal_simdgroup_matrix>

#include "../common/arguments.h"

using namespace metal;

#define UNROLL _Pragma("clang loop unroll(full)")

constant uint scale_type [[function_constant(MARLIN_CONSTANT_SCALE_TYPE)]];
constant uint zero_kind [[function_constant(MARLIN_CONSTANT_ZERO_KIND)]];
constant uint group_shift [[function_constant(MARLIN_CONSTANT_GROUP_SHIFT)]];
constant uint row_factor [[function_constant(MARLIN_CONSTANT_ROW_FACTOR)]];
constant bool a_aligned [[function_constant(MARLIN_CONSTANT_ALIGNED)]];
constant bool a_ragged [[function_constant(MARLIN_CONSTANT_RAGGED)]];
constant uint output_type [[function_constant(MARLIN_CONSTANT_OUTPUT_TYPE)]];
constant uint bias_type [[function_constant(MARLIN_CONSTANT_BIAS_TYPE)]];
constant uint epilogue [[function_constant(MARLIN_CONSTANT_EPILOGUE)]];
constant bool accumulate [[function_constant(MARLIN_CONSTANT_ACCUMULATE)]];
constant bool partial [[function_constant(MARLIN_CONSTANT_PARTIAL)]];
constant bool interleaved [[function_constant(MARLIN_CONSTANT_INTERLEAVED)]];
constant bool has_slot_to_k [[function_constant(MARLIN_CONSTANT_SLOT_TO_K)]];
constant bool quantized [[function_constant(MARLIN_CONSTANT_QUANTIZED)]];
constant bool has_row_list [[function_constant(MARLIN_CONSTANT_ROW_LIST)]];

constant bool has_zeros = zero_kind != kZeroNone;
constant bool additive = zero_kind >= kZeroF32;
constant bool has_row_factor = row_factor != kRowFactorNone;
constant bool has_bias = bias_type != kFloatNone;
constant bool finished = !partial;  // C is written, else raw sums are
constant bool finishes_factor = finished && has_row_factor;
constant bool finishes_bias = finished && has_bias;

// Fragments of an 8x8 matrix: see ../common/layout.h. ushort versions of lane_row and lane_column.
static inline ushort fragment_row(ushort lane) { return ushort(lane_row(lane)); }
static inline ushort fragment_column(ushort lane) { return ushort(lane_column(lane)); }
