// Fits codes and scales to floats by least squares, for the types of weights that have no rule in
// quantize.h: codes with additive zeros, two-level scales, and integers and codebooks beside those.
//
// - What is minimized is the sum of norm(k)^2 (w - w')^2 over a row, where norm is the norm of the
//   column's activations (all 1 if none are given). If inputs of different columns do not
//   correlate, this is the error of the product.
// - A scale and its codes are fitted in turn: for given codes, the best scale is a quotient of two
//   sums (with a zero: the solution of two linear equations); for a given scale, the best codes are
//   the nearest ones. Each step lowers the sum, so the search ends in a local minimum. It starts
//   from several scales near the one at which the largest weight meets the last code.
// - Two-level scales start from such fits of their groups. The factors then follow from the codes
//   of the whole block by the same equations and are rounded to float16. The integers of each group
//   are chosen again among their neighbors.
// - Everything is in double, with sums in the order of k. Quotients are rounded to nearest, ties to
//   even; of two codes of a codebook that are equally near, the lower one is taken.
// - A group of zeros has scale 0. A scale may be negative where its type allows it.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "formats/quantize.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Whether weights of this meta are made here, and not by a rule of quantize.h.
bool is_fitted(const WeightMeta& meta);

/// `meta` says what to make; check_meta has accepted it, and it is not sparse, has no integer zeros
/// and no group index. `norms` are [k] or empty, and live as long as the source. A NaN, an infinity
/// and a scale beyond its type are MARLIN_E_FORMAT with row and column, from read().
Result<std::unique_ptr<WeightSource>> make_fitted(const FloatMatrix& matrix, const WeightMeta& meta,
                                                  std::span<const float> norms);

}  // namespace metal_marlin
