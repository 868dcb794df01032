// Whether a product on the device is right: some of its elements against sums in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "timing_device.h"
#include "timing_operands.h"

namespace timing {

/// C[M, N] of a 16-bit type, of activations that the host has, too.
struct ProductToCheck {
  marlin_dtype dtype;
  int64_t m, n, k;
  const uint16_t* a;
  DevicePtr c;
};

struct Verdict {
  double worst = 0;  ///< the largest error over its bound
  double nmse = 0;   ///< sum of squared errors over sum of squares; rounding to bfloat16 alone makes 3e-6
  bool is_right() const { return worst <= 1; }
};

/// The first, the last and others at random: 64 of them, or all if there are no more.
std::vector<int64_t> some_of(int64_t count);

/// Checks up to 64 rows of C at the columns that `weights` has. A float32 sum may be (K + 8) 2^-23 sum |w a| from the true one,
/// and is then rounded to C's type.
Verdict check(const Device& device, const ProductToCheck& product, const DecodedRows& weights);

}  // namespace timing
