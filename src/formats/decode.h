// The true value of a weight: the exact real number that its code and scales stand for, rounded
// once to float32.
#pragma once

#include <cstdint>

#include "formats/weights.h"

namespace metal_marlin {

/// What one group's scale and zero mean, decoded once.
struct GroupScale {
  float scale = 1;
  float zero = 0;  ///< integer zero point, or the additive zero
};
GroupScale decode_group(const WeightMeta& meta, const Stripe& stripe, int64_t row, int64_t group);
/// The value of one code (without tensor scale when `tensor` is null). Rounds once, and right also
/// under a host's flush-to-zero; a tensor scale on top of an additive zero, which check_meta
/// (format_table.h) refuses, would round twice.
float decode_value(const WeightMeta& meta, uint8_t code, GroupScale group,
                   const TensorScale* tensor);
/// The tensor scale of a row, or null.
const TensorScale* tensor_scale_of(const WeightMeta& meta, int64_t row);
/// Decodes the rows of a stripe that starts at row `first_row` of the matrix; out is
/// [rows][meta.k].
void decode_rows(const WeightMeta& meta, const Stripe& stripe, int64_t first_row, int64_t rows,
                 float* out);

}  // namespace metal_marlin
