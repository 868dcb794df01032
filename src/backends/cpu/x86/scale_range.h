// What is known of scales and activations' scales before they are multiplied.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "backends/cpu/hot_loops.h"

namespace metal_marlin::cpu {

/// The scales, as bits of magnitudes, that the fast way of multiplying them by d is right for.
struct ScaleRange {
  uint32_t least, most;

  /// Any d of the tile keeps the product finite.
  static ScaleRange finite(float largest_d) {
    return {0, std::bit_cast<uint32_t>(
                   std::min(kLargestFloat, kLargestFloat / std::max(1.0f, largest_d)))};
  }
  /// Scales that are powers of two: the product of one and any d of the tile is a normal number, so
  /// that it is the sum of their bits less those of 1.
  static ScaleRange exponents(float smallest_d, float largest_d) {
    if (!(smallest_d >= std::numeric_limits<float>::min())) return {~0u, 0};
    constexpr int64_t kNormal = 0x00800000, kOne = 0x3f800000, kLargestPower = 0x7f000000,
                      kLargest = 0x7f7fffff;
    return {static_cast<uint32_t>(
                std::max(kNormal, kNormal + kOne - std::bit_cast<int32_t>(smallest_d))),
            static_cast<uint32_t>(std::clamp<int64_t>(
                kLargest + kOne - std::bit_cast<int32_t>(largest_d), 0, kLargestPower))};
  }
  /// Of the rows of a tile, whose statistics these are (activations.h).
  template <bool kExponents>
  static ScaleRange of(const float* row_stats, int rows) {
    const float largest = *std::max_element(row_stats, row_stats + rows);
    return kExponents
               ? exponents(*std::min_element(row_stats + rows, row_stats + 2 * rows), largest)
               : finite(largest);
  }
  /// Scales whose magnitudes lie between these.
  bool holds(uint32_t smallest, uint32_t largest) const {
    return least <= smallest && largest <= most;
  }
};

}  // namespace metal_marlin::cpu
