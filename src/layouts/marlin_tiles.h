// Where Marlin's files keep what: the places that importer and writer share.
#pragma once

#include <cstdint>

namespace metal_marlin {

/// Where a tile of 16 along K and 64 along N keeps a column: its four words are `word` + 0, 4, 8,
/// 12 of 128; in word j the codes of k = 2 j, 2 j + 8, 2 j + 1, 2 j + 9 are nibbles `nibble` + 0,
/// 1, 4, 5.
struct TilePlace {
  int word, nibble;
};
/// Word 4 t + w of thread t holds columns 16 w + t / 4 and that + 8.
constexpr TilePlace dense_place(int column) {
  return {16 * (column % 8) + column / 16, column / 8 % 2 * 2};
}
/// Word 4 t + j holds columns 8 (t / 4) + j and that + 4.
constexpr TilePlace sparse_place(int column) {
  return {16 * (column / 8) + column % 4, column / 4 % 2 * 2};
}

/// 2:4 with groups: stored j is {0, 4, 1, 5, 2, 6, 3, 7}[j].
constexpr int64_t interleaved_8(int64_t n) { return n / 8 * 8 + n % 4 * 2 + n % 8 / 4; }

/// marlin-24's writer compares the group size with the K that is left of two in four: two groups a
/// column stay in order.
constexpr bool marlin_24_permutes_scales(int64_t groups) { return groups > 2; }

/// Where the 16 bits of metadata for blocks 4 c .. 4 c + 3 of column n are, in units of 16 bits: in
/// the order in which the sparse instruction reads them (CUTLASS's interleaved columns), rows
/// shuffled in 64s, then 2 x 2 pieces transposed.
constexpr int64_t sparse_meta_place(int64_t n, int64_t c, int64_t columns) {
  int64_t row = n / 64 * 64 + n % 2 * 2 + n % 8 / 4 + n % 4 / 2 * 32 + n % 64 / 8 * 4, column = c;
  if (row % 2 != column % 2) {
    const int64_t swap = row % 2 == 0 ? 1 : -1;
    row += swap;
    column -= swap;
  }
  return column / 2 * 2 * columns + 2 * row + column % 2;
}

}  // namespace metal_marlin
