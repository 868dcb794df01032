// Parts of a matrix whose bytes some writers store in another order, brought into the order that
// layouts read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layouts/operands.h"

namespace metal_marlin {

enum class Rearrangement : uint8_t {
  transpose,     ///< [columns, rows] to [rows, columns], for elements of 1, 2 or 4 bytes
  swap_nibbles,  ///< the even element is in the high half of a byte
  halve_words,   ///< [rows / 2, columns] words of 64 bits to [rows, columns] words of 32 bits
  scale_tiles,   ///< cuBLAS's tiles of 128 x 4 bytes: see rearrange()
  widen_e5m2,    ///< E5M2 to float16, which has the same exponents
};

/// One part that lies in another order. Its view has the type and the shape of the new order, and
/// the bytes of the old one.
struct RearrangedPart {
  TensorView LayoutOperands::* part;
  Rearrangement how;
};

/// The bytes of `view` in the new order.
///
/// scale_tiles: the scales of a [rows, columns] matrix of blocks are padded to multiples of 128
/// rows and 4 columns. A tile holds 128 x 4 of them in 512 bytes, tiles are in row-major order, and
/// scale (r, c) of a tile is byte (r % 32) * 16 + (r / 32) * 4 + c (cuBLAS, "1D block scaling
/// factors layout").
std::vector<std::byte> rearrange(const TensorView& view, Rearrangement how);

/// The shape of padded tiles of scales.
constexpr int64_t tiled_rows(int64_t rows) { return (rows + 127) / 128 * 128; }
constexpr int64_t tiled_columns(int64_t columns) { return (columns + 3) / 4 * 4; }

}  // namespace metal_marlin
