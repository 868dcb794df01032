// Checks products against float64. The command sees only unpacked weights, so this is the accuracy
// contract in terms of unpacked weights.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "host_matrix.h"
#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// The difference between C and A W^T in float64, where W are the unpacked weights and A are the
/// given activations.
struct Verdict {
  double nmse =
      0;  ///< sum of squared errors / sum of squared true values, over the finite elements
  double worst = 0;     ///< the largest error as a fraction of its element's bound
  int64_t checked = 0;  ///< elements
  int64_t wrong =
      0;  ///< elements beyond their bound, or finite although they must not be, or the reverse
  int64_t m = 0, n = 0;   ///< the element of `worst`
  double limit_nmse = 0;  ///< the largest nmse that is allowed
  bool ok() const { return wrong == 0 && nmse <= limit_nmse; }
  /// What is wrong: "3 of 210 elements out of bounds, worst 12 x at [1, 64]", or the nmse and its
  /// limit.
  std::string complaint() const;
};

/// One product C[M, N] = A[M, K] W^T that the library computed, and the result of its check.
struct Product {
  const HostMatrix* a;
  const HostMatrix* c;
  int64_t m;  ///< the first m rows count
  marlin_compute compute;
  std::span<const int32_t> experts =
      {};  ///< of several: that of each row of C, as many to each row of A
  Verdict verdict = {};
};

struct RowRange {
  int64_t first, count;  ///< rows of W, columns of C
};

/// Checks the products against the given rows of W. Per element, with gamma = K u / (1 - K u) and u
/// = 2^-24:
///
///   |C - C64| <= gamma S + K 2^-126 max(1, max|a|, max|w|) + one rounding of the output
///
/// S = sum |a| |w| if weights are decoded to their value first. If sums of activations may correct
/// zero points (INT4, and INT8 with additive zeros), S = sum |a| (|q s| + |z s|). s is not visible
/// from outside, but the distances between the values of a group are multiples of s, so the
/// smallest distance bounds it from above. INT8 compute adds |w| d / 2 per term: rounding a block
/// of 32 activations to steps of d = max|a| / 127 moves each by at most d / 2. C need not be finite
/// where S exceeds float32, because a sum may then overflow on the way.
///
/// nmse may be 1e-11 (float32 output), 1e-7 (float16), 5e-6 (bfloat16), and 5e-4 with INT8 compute,
/// which engines with 8-bit activations accept; all times 1 + 64 / n if n elements are checked, and
/// times sum (a w)^2 / sum C64^2 if that is above 1. The true values of a few elements may all be
/// small beside the terms of their sums, by which errors go.
///
/// `on_rows` learns how many rows have been checked since its last call. Its calls do not overlap.
void check_products(const marlin_weights* weights, std::span<Product> products,
                    std::span<const RowRange> rows, unsigned threads,
                    const std::function<void(int64_t)>& on_rows = {});

/// All rows of [0, n), in pieces.
std::vector<RowRange> every_row(int64_t n);
/// Up to `count` rows from the start, the middle and the end.
std::vector<RowRange> sampled_rows(int64_t n, int64_t count);

}  // namespace metal_marlin::tools
