// The ranges of scales and of d for which their product is right.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "backends/cpu/hot_loops.h"

namespace metal_marlin::cpu {

/// The range of scales, as bits of magnitudes, for which the fast way of multiplying them by d is
/// right.
struct ScaleRange {
  uint32_t least, most;

  /// The scales whose product with any d of the tile is finite.
  static ScaleRange finite(float largest_d) {
    return {0, std::bit_cast<uint32_t>(
                   std::min(kLargestFloat, kLargestFloat / std::max(1.0f, largest_d)))};
  }
  /// For scales that are powers of two: the product with any d of the tile is a normal number, so
  /// its bits are the sum of the bits of both less the bits of 1.
  static ScaleRange exponents(float smallest_d, float largest_d) {
    if (!(smallest_d >= std::numeric_limits<float>::min())) return {~0u, 0};
    constexpr int64_t kNormal = 0x00800000, kOne = 0x3f800000, kLargestPower = 0x7f000000,
                      kLargest = 0x7f7fffff;
    return {static_cast<uint32_t>(
                std::max(kNormal, kNormal + kOne - std::bit_cast<int32_t>(smallest_d))),
            static_cast<uint32_t>(std::clamp<int64_t>(
                kLargest + kOne - std::bit_cast<int32_t>(largest_d), 0, kLargestPower))};
  }
  /// The range for the rows of a tile with these statistics (activations.h).
  template <bool kExponents>
  static ScaleRange of(const float* row_stats, int rows) {
    const float largest = *std::max_element(row_stats, row_stats + rows);
    return kExponents
               ? exponents(*std::min_element(row_stats + rows, row_stats + 2 * rows), largest)
               : finite(largest);
  }
  /// Whether scales with magnitudes in this range are inside.
  bool holds(uint32_t smallest, uint32_t largest) const {
    return least <= smallest && largest <= most;
  }
};

}  // namespace metal_marlin::cpu
