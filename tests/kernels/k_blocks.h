// GGUF's K-quants, written from the definitions in docs/formats.md: super-blocks of 256 elements, whose groups have small
// integers for scales and minima, times float16 factors of the super-block.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace trial {

inline constexpr int64_t kSuperBlock = 256;

/// The format's K-quant: Q2_K to Q6_K are INT2 to INT6.
int64_t k_block_bytes(marlin_format format);
int64_t k_group(marlin_format format);
/// Q2_K, Q4_K and Q5_K have minima.
bool has_minima(marlin_format format);

/// One super-block of one row.
struct KBlock {
  std::array<uint8_t, kSuperBlock> codes{};
  std::array<int, 16> scales{}, minima{};  ///< Q3_K and Q6_K: signed scales
  double factor = 0, minima_factor = 0;    ///< float16

  double scale(int64_t group) const { return factor * scales[static_cast<size_t>(group)]; }
  double zero(int64_t group) const { return -(minima_factor * minima[static_cast<size_t>(group)]); }
  /// The k_block_bytes() of the file.
  std::vector<uint8_t> bytes(marlin_format format) const;
};

/// A block of random codes and integers; weights have about the size that codes have, times `scale`.
KBlock random_k_block(marlin_format format, double scale, std::mt19937& random);

}  // namespace trial
