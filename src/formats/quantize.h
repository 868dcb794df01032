// Quantizes floats to canonical weights, a stripe of rows at a time. Two implementations of these
// rules get the same codes:
//
// - Quotients are computed in double, where a quotient of two floats never becomes a false tie.
//   Everything is rounded to nearest, ties to even. Scales are rounded to their stored type before
//   codes are chosen.
// - INT4 symmetric: s = max|w| / 7, code = round(w / s) + 8 in 1..15 (the MSE search may also use
//   0). INT4 asymmetric: s = (max - min) / 15 with 0 inside [min, max], zero = round(-min / s),
//   code = round(w / s) + zero in 0..15. INT8: s = max|w| / 127, code = round(w / s) in -127..127
//   (Q8_0's rule, but Q8_0 breaks ties away from zero and divides by the scale before its rounding
//   to float16). FP4: s = max|w| / 6, code = nearest E2M1 to w / s, ties to the even code; the code
//   has the sign of w, even if it becomes 0. MXFP4: s = 2^(floor(log2(max|w|)) - 2), clamped to
//   E8M0; values above 6 s saturate (OCP MX v1.0). NVFP4: tensor scale t = float32(max of all |w| /
//   2688), s = E4M3(max|w| / 6 / t), at least 2^-9; codes are those of FP4 for w / (s t). If the
//   file stores a divisor, t is the exact reciprocal of float32(2688 / max of all |w|).
// - A group of zeros has scale 1 (E8M0: 2^-127) and the codes of 0.
// - Scales of INT4, INT8 and FP4 are float16. If the largest scale of the matrix would overflow (>
//   65504) or be subnormal (< 2^-14), they are float32. No scale is rounded to 0: a scale is at
//   least 2^-24 (float32: 2^-126).
// - The MSE search takes the scale with the least sum of squared errors over the group, and the
//   larger scale on ties. If there are norms of columns (SparseRule::column_norms), the square of a
//   norm weighs the squared errors of its column; a norm of 0 counts as in fit_group.h. The
//   candidates are the rule's own scale times 0.70 + 0.35 i / 23, i = 0..23, rounded to the stored
//   type; for E8M0 they are e and e + 1.
// - 2:4 sparsity (prune.h) comes first: these rules see 0 in place of elements that are not kept.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "formats/prune.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The largest scale and the largest code of NVFP4. Without a tensor scale, their product is its
/// largest weight.
inline constexpr double kE4m3Max = 448, kE2m1Max = 6;

/// Borrowed floats W[n, k] (row-major, any alignment). They must live as long as the source that is
/// made from them.
struct FloatMatrix {
  const void* data = nullptr;
  marlin_dtype dtype = MARLIN_F32;  ///< F32, F16 or BF16
  int64_t n = 0, k = 0;
  int64_t row_stride = 0;  ///< in elements, at least k (with `kept` k / 2)
  std::string name;        ///< for messages
  /// For 2:4 sparse floats: rows hold only the k / 2 kept elements, and this function fills the k /
  /// 4 masks of a row (Stripe::kept). The pattern stays unchanged, even if a kept element is 0.
  /// Formats without a sparse form (INT8) become dense.
  std::function<Status(int64_t row, uint8_t* kept)> kept = nullptr;
};

/// Reads the k numbers of a row of a dense matrix; a NaN or an infinity is MARLIN_E_FORMAT with row
/// and column.
Status read_finite_row(const FloatMatrix& matrix, int64_t row, std::span<double> out);

struct QuantizeOptions {
  bool asymmetric = false;  ///< INT4 only: an integer zero point per group
  bool search_mse = false;
  bool divide_tensor_scale =
      false;  ///< NVFP4: store the reciprocal, float32(2688 / max|w|), as compressed-tensors does
  SparseRule sparse{};
};

/// Takes the group_size of resolve_group_size. Reads the matrix once here for its largest magnitude
/// (MXFP4: only to prune or to check that it obeys 2:4); read() quantizes the rows. NaN, infinity,
/// and more than two non-zeros in a block that should obey 2:4 are MARLIN_E_FORMAT with row and
/// column, from here or from read(). With sparsity, k must be a multiple of 4 (else
/// MARLIN_E_SHAPE), and INT8 is MARLIN_E_UNSUPPORTED.
Result<std::unique_ptr<WeightSource>> make_quantized(const FloatMatrix& matrix,
                                                     marlin_format format, int64_t group_size,
                                                     const QuantizeOptions& options);

}  // namespace metal_marlin
