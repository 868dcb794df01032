// The histories of a range of memory. Bytes that have always been touched together share a cell: an aligned block of eight has
// one, two, four or eight cells, as its narrowest access so far asks for. So an access of a float looks at one cell, not four,
// and finds the same as if each byte had its own.
#pragma once

#include <algorithm>
#include <cstring>

#include "mapping.h"
#include "race.h"

namespace metal_on_cpu {

class History {
 public:
  History() = default;
  explicit History(size_t bytes) : blocks_(bytes / kBlock + 1), states_(blocks_), cells_(blocks_ * kBlock * sizeof(Cell)) {}
  explicit operator bool() const { return states_ && cells_; }

  /// As if nothing had happened to the first `bytes`.
  void forget(size_t bytes) const { std::memset(states_.data(), 0, std::min(bytes / kBlock + 1, blocks_)); }

  /// Shows each cell of this access.
  template <class Visitor>
  void visit(size_t offset, size_t bytes, Visitor visitor) const {
    for (const size_t all = offset + bytes; offset < all;) {
      const size_t block = offset / kBlock, begin = offset % kBlock, end = std::min(kBlock, begin + all - offset);
      // The coarsest pieces, of 1 << size bytes, that begin and end with the access.
      const auto size = refine(block, static_cast<unsigned>(__builtin_ctzll(begin | end | kBlock)));
      for (size_t piece = begin >> size; piece << size < end; ++piece) visitor(cell(block, piece));
      offset += end - begin;
    }
  }

 private:
  static constexpr size_t kBlock = 8;

  // Cells with equal numbers lie together: what is only touched in whole blocks needs an eighth of the memory.
  Cell& cell(size_t block, size_t piece) const { return cells_.as<Cell>()[piece * blocks_ + block]; }

  /// Gives the block pieces of at most 1 << size bytes; returns the logarithm of what it has now.
  unsigned refine(size_t block, unsigned size) const {
    uint8_t& state = states_.as<uint8_t>()[block];  // 0: untouched, else 4 - logarithm
    const unsigned before = 4u - state;
    if (before <= size) return before;
    for (size_t piece = kBlock >> size; piece-- > 0;) {
      cell(block, piece) = before == 4 ? Cell() : cell(block, piece >> (before - size));
    }
    state = static_cast<uint8_t>(4u - size);
    return size;
  }

  size_t blocks_ = 0;
  Mapping states_, cells_;
};

}  // namespace metal_on_cpu
