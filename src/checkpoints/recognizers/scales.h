// Scales of codes of a byte (FP8, INT8): how many rows and columns of the matrix share one.
#pragma once

#include "checkpoints/recognize.h"

namespace metal_marlin {

/// The names of scales and of tensor scales behind the name of a layer. Writers differ in nothing
/// else.
extern const std::span<const char* const> kScaleNames, kTensorScaleNames, kTensorDivisorNames;

/// Sets operands.scales, scale_rows and group_size from the shape of `scales`: one for the matrix,
/// for each expert, for each row, for some columns of a row, or for a block of rows and columns.
/// The values must have been taken.
void take_scales(const Finder& finder, TensorView scales, Finding& found);

/// Makes one number for the matrix, or one for each row, an operand of n rows.
void spread_over_rows(TensorView& view, const Finding& found);

}  // namespace metal_marlin
