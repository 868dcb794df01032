// Products checked against float64: the accuracy contract as the command can see it, through
// unpacked weights only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "host_matrix.h"
#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// How far C is from A W^T in float64, W being the unpacked weights and A the activations as given.
struct Verdict {
  double nmse =
      0;  ///< sum of squared errors / sum of squared true values, over the finite elements
  double worst = 0;     ///< the largest error as a fraction of its element's bound
  int64_t checked = 0;  ///< elements
  int64_t wrong =
      0;  ///< elements beyond their bound, or finite where they must not be and the other way round
  int64_t m = 0, n = 0;   ///< the element of `worst`
  double limit_nmse = 0;  ///< what nmse may be
  bool ok() const { return wrong == 0 && nmse <= limit_nmse; }
};

/// One product C[M, N] = A[M, K] W^T that the library computed, and what came of checking it.
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
/// S = sum |a| |w| where weights are decoded to their value first. Where zero points may be
/// corrected by sums of activations (INT4, and INT8 with additive zeros), S = sum |a| (|q s| + |z
/// s|); s is not visible from outside, but the distances between a group's values are multiples of
/// it, so the least of them bounds it from above. INT8 compute is held to the same with |w| d / 2 a
/// term on top: rounding a block of 32 activations to steps of d = max|a| / 127 moves each by at
/// most d / 2. nmse may be 1e-11 (float32 out), 1e-7 (float16), 5e-6 (bfloat16), and 5e-4 with INT8
/// compute, the tolerance that engines with 8-bit activations accept.
void check_products(const marlin_weights* weights, std::span<Product> products,
                    std::span<const RowRange> rows, unsigned threads);

/// All rows of [0, n), in pieces.
std::vector<RowRange> every_row(int64_t n);
/// Up to `count` rows from the start, the middle and the end.
std::vector<RowRange> sampled_rows(int64_t n, int64_t count);

}  // namespace metal_marlin::tools
