// 2:4 sparsity in the form of files and callers: metadata say which two of every four elements
// along K are kept, and the kept codes have no gaps between them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/bits.h"
#include "layouts/operands.h"

namespace metal_marlin {

/// A metadata nibble is pos1 << 2 | pos0 with pos0 < pos1: bits pos0 and pos1 as a mask of four, 0
/// for the ten other nibbles.
inline constexpr std::array<uint8_t, 16> kKeptOfNibble = [] {
  std::array<uint8_t, 16> table{};
  for (unsigned second = 1; second < 4; ++second) {
    for (unsigned first = 0; first < second; ++first) {
      table[second << 2 | first] = static_cast<uint8_t>(1u << second | 1u << first);
    }
  }
  return table;
}();

/// Spreads 2 * blocks kept codes over 4 * blocks elements; the other elements become 0. Each mask
/// must have exactly two bits.
inline void spread_kept(const uint8_t* kept_codes, const uint8_t* kept, int64_t blocks,
                        uint8_t* codes) {
  for (int64_t b = 0; b < blocks; ++b) {
    const uint32_t mask = kept[b];
    // A mask has two of four bits. NOLINTBEGIN(clang-analyzer-core.BitwiseShift)
    const int first = std::countr_zero(mask), second = 31 - std::countl_zero(mask);
    store(codes + 4 * b,
          uint32_t{kept_codes[2 * b]} << 8 * first | uint32_t{kept_codes[2 * b + 1]} << 8 * second);
    // NOLINTEND(clang-analyzer-core.BitwiseShift)
  }
}

/// Checks metadata of the layout ROWS. They are masks, U8 [n, ceil(k / 8)], in which bit i of byte
/// b stands for element 8 b + i, or four nibbles each, I16 [n, ceil(k / 16)], the lowest first.
Status check_row_meta(const TensorView& view, int64_t n, int64_t k);
/// Reads the masks of the k / 4 blocks of one row. MARLIN_E_FORMAT with row and block unless each
/// mask keeps two elements and the unused bits of the last unit are 0.
Status read_row_meta(const TensorView& view, int64_t row, int64_t k, uint8_t* kept);
/// Reads the same masks from metadata words [ceil(k / 32), n] of eight nibbles along K (K8N).
Status read_word_meta(const TensorView& view, int64_t row, int64_t k, uint8_t* kept);
/// MARLIN_E_FORMAT: block `block` of row `row` has the metadata nibble `nibble`, which is not one
/// of the six valid nibbles.
Status nibble_error(const TensorView& view, int64_t row, int64_t block, unsigned nibble);

/// Reads the masks of all rows once, so that no source with a malformed mask is returned.
/// `read(row, kept)` fills k / 4 masks.
template <class Read>
Status check_all_kept(const WeightMeta& meta, Read read) {
  std::vector<uint8_t> kept(static_cast<size_t>(meta.k / 4));
  for (int64_t n = 0; n < meta.n; ++n) MARLIN_RETURN_IF_ERROR(read(n, kept.data()));
  return {};
}

}  // namespace metal_marlin
