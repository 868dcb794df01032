// Whether rectangles of bytes in rows of one length meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metal_marlin {

/// Keeps its memory from use to use.
class RowSweep {
 public:
  struct Rectangle {
    uint64_t first_row, end_row;  ///< rows [first_row, end_row)
    uint64_t first, end;          ///< bytes [first, end) of each of them
    bool written;
  };

  /// Later uses of up to this many rectangles do not allocate.
  void reserve(size_t rectangles);
  void clear() { rectangles_.clear(); }
  /// Ignores a rectangle that is empty.
  void add(const Rectangle& rectangle);
  /// Whether a written rectangle meets another one. Takes n log n steps for n rectangles.
  bool meet();
  /// Comparisons and visits of all uses so far.
  uint64_t steps() const { return steps_; }

 private:
  /// How many intervals begin, or end, at each of the places of columns_ (a Fenwick tree).
  class Counts {
   public:
    void reserve(size_t places) { sums_.reserve(places + 1); }
    void clear(size_t places);
    void change(size_t place, int32_t by, uint64_t& steps);
    /// Over the places [0, end).
    int64_t before(size_t end, uint64_t& steps) const;

   private:
    std::vector<int32_t> sums_;
  };
  struct Active {
    Counts begins, ends;
    int64_t size = 0;
  };

  void sort();
  size_t place(uint64_t column);
  void change(Active& active, const Rectangle& rectangle, int32_t by);
  bool touches(const Active& active, const Rectangle& rectangle);

  std::vector<Rectangle> rectangles_;  ///< by their first row
  std::vector<uint32_t> by_end_;       ///< their indices by their last row
  std::vector<uint64_t> columns_;      ///< where they begin and end, ascending
  Active all_, written_;               ///< those of the row that the sweep has reached
  uint64_t steps_ = 0;
};

}  // namespace metal_marlin
