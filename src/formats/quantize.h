// Floats to canonical weights, a stripe of rows at a time. Two builders that follow these rules get
// the same codes:
//
// - Quotients are taken in double, where a quotient of two floats never falls on a false tie;
//   everything is rounded to nearest, ties to even. Scales are rounded to their stored type before
//   codes are chosen.
// - INT4 symmetric: s = max|w| / 7, code = round(w / s) + 8 in 1..15 (the MSE search may also use
//   0). INT4 asymmetric: s = (max - min) / 15 with 0 inside [min, max], zero = round(-min / s),
//   code = round(w / s) + zero in 0..15. INT8: s = max|w| / 127, code = round(w / s) in -127..127
//   (Q8_0's rule, but Q8_0 breaks ties away from zero and divides by the scale before its rounding
//   to float16). FP4: s = max|w| / 6, code = nearest E2M1 to w / s, ties to the even code; the sign
//   of w is kept, also of those that become 0. MXFP4: s = 2^(floor(log2(max|w|)) - 2), clamped to
//   E8M0; values above 6 s saturate (OCP MX v1.0). NVFP4: tensor scale t = float32(max of all |w| /
//   2688), s = E4M3(max|w| / 6 / t), at least 2^-9; codes as FP4 of w / (s t). Where the file
//   stores what t divides by, t is the exact reciprocal of float32(2688 / max of all |w|).
// - A group of zeros has scale 1 (E8M0: 2^-127) and the codes of 0.
// - Scales of INT4, INT8 and FP4 are float16. Where that is of no use, because the largest scale of
//   the matrix would overflow (> 65504) or be subnormal (< 2^-14), they are float32. No scale is
//   rounded to 0: at least 2^-24 (float32: 2^-126).
// - MSE search: the scale with the least sum of squared errors over the group, ties to the larger
//   scale, among the rule's own scale times 0.70 + 0.35 i / 23, i = 0..23, rounded to the stored
//   type; for E8M0 among e and e + 1.
// - 2:4 sparsity (prune.h) comes first: all of the above sees 0 in place of what is not kept.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "formats/prune.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Borrowed floats W[n, k] (row-major, any alignment), alive as long as the source made from them.
struct FloatMatrix {
  const void* data = nullptr;
  marlin_dtype dtype = MARLIN_F32;  ///< F32, F16 or BF16
  int64_t n = 0, k = 0;
  int64_t row_stride = 0;  ///< in elements, at least k (with `kept` k / 2)
  std::string name;        ///< for messages
  /// 2:4: rows hold the k / 2 kept elements only, and this fills the k / 4 masks of a row
  /// (Stripe::kept). The pattern is kept as it is, also where a kept element is 0; formats without
  /// a sparse form (INT8) become dense.
  std::function<Status(int64_t row, uint8_t* kept)> kept = nullptr;
};

struct QuantizeOptions {
  bool asymmetric = false;  ///< INT4 only: an integer zero point a group
  bool search_mse = false;
  bool divide_tensor_scale =
      false;  ///< NVFP4: store the reciprocal, float32(2688 / max|w|), as compressed-tensors does
  SparseRule sparse{};
};

/// group_size as resolve_group_size takes it. Reads the matrix once here for its largest magnitude
/// (MXFP4: only to prune or to check that it obeys 2:4); rows are quantized as they are read.
/// MARLIN_E_FORMAT with row and column, from here or from read(), for NaN and infinity, and for
/// more than two non-zeros in a block that should obey 2:4. Sparse: MARLIN_E_SHAPE unless k % 4 ==
/// 0, MARLIN_E_UNSUPPORTED for INT8.
Result<std::unique_ptr<WeightSource>> make_quantized(const FloatMatrix& matrix,
                                                     marlin_format format, int64_t group_size,
                                                     const QuantizeOptions& options);

}  // namespace metal_marlin
