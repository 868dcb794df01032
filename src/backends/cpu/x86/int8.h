// What the INT8 kernels of x86 share: how they read dense codes (layout.h), and the ranges of
// scales and of d for which their product is right.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "backends/cpu/hot_loops.h"
#include "backends/cpu/kernels.h"

namespace metal_marlin::cpu {

enum class Reading : uint8_t {
  nibbles,     ///< lines of 4-bit codes
  less_zeros,  ///< the same, less integer zeros
  looked_up,   ///< 4-bit indices of FP4; AVX-512: and of IQ4
  iq4,         ///< AVX2: 4-bit indices in the codebook of IQ4, whose integers are signed
  two_bits,    ///< AVX2: a plane of 2 bits
  three_bits,  ///< AVX2: a plane of 2 bits and one of 1 bit
  five_bits,   ///< a plane of 4 bits and one of 1 bit
  six_bits,    ///< a plane of 4 bits and one of 2 bits
  bytes,       ///< lines of signed bytes, which may be expanded ones
  expanded,    ///< AVX2: lines of unsigned bytes, expanded ones of 4-bit codes
};

/// The reading that leaves codes packed, if there is one.
inline Reading packed_reading(const PanelArgs& args) {
  const PanelLayout& layout = *args.layout;
  if (layout.expansion == Expansion::iq4) return Reading::iq4;
  if (args.code == CodeKind::fp4) return Reading::looked_up;
  if (args.code == CodeKind::u4zero) return Reading::less_zeros;
  if (!is_eight_bits(args.code)) return Reading::nibbles;
  if (layout.expansion != Expansion::integers || layout.zero_kind == ZeroKind::integer)
    return Reading::bytes;
  switch (layout.code_bits) {
    case 2:
      return Reading::two_bits;
    case 3:
      return Reading::three_bits;
    case 5:
      return Reading::five_bits;
    default:
      return Reading::six_bits;
  }
}

/// Calls call.operator()<kReading>() for one of these readings.
template <Reading kFirst, Reading... kOthers, class Call>
void with_reading_of(Reading reading, Call call) {
  if constexpr (sizeof...(kOthers) != 0)
    if (reading != kFirst) return with_reading_of<kOthers...>(reading, call);
  call.template operator()<kFirst>();
}

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
