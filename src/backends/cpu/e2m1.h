// The values of FP4 codes in the forms that kernels look up. All come from kE2m1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "formats/codecs.h"

namespace metal_marlin::cpu {

/// Twice the value of every code, which is an integer, plus `offset`.
template <int kOffset = 0>
constexpr std::array<int8_t, 16> doubled_e2m1() {
  std::array<int8_t, 16> values{};
  for (size_t code = 0; code < values.size(); ++code)
    values[code] = static_cast<int8_t>(static_cast<int>(2 * kE2m1[code]) + kOffset);
  return values;
}

/// The offset that makes doubled values unsigned: the smallest is -12.
inline constexpr int kE2m1Offset = 12;

using CodeIndices = std::make_index_sequence<16>;

}  // namespace metal_marlin::cpu
