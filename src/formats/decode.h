// The true value of a weight: the exact real number that its code and scales define, rounded once
// to float32.
#pragma once

#include <cstdint>

#include "formats/weights.h"

namespace metal_marlin {

/// The decoded scale and zero of one group.
struct GroupScale {
  float scale = 1;           ///< a nested scale is rounded
  float zero = 0;            ///< integer zero point, or the additive zero
  double high = 0, low = 0;  ///< of nested scales: their sum is the exact scale
};
GroupScale decode_group(const WeightMeta& meta, const Stripe& stripe, int64_t row, int64_t group);
/// The value of one code (without tensor scale if `tensor` is null). It is rounded once, even if
/// the host has set flush-to-zero. A tensor scale together with an additive zero would round twice;
/// check_meta (format_table.h) refuses it.
float decode_value(const WeightMeta& meta, uint32_t code, GroupScale group,
                   const TensorScale* tensor);
/// The tensor scale of a row, or null.
const TensorScale* tensor_scale_of(const WeightMeta& meta, int64_t row);
/// Decodes the rows of a stripe that starts at row `first_row` of the matrix; out is
/// [rows][meta.k].
void decode_rows(const WeightMeta& meta, const Stripe& stripe, int64_t first_row, int64_t rows,
                 float* out);

}  // namespace metal_marlin
