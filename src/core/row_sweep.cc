#include "core/row_sweep.h"

#include <algorithm>
#include <numeric>

namespace metal_marlin {

void RowSweep::Counts::clear(size_t places) { sums_.assign(places + 1, 0); }

void RowSweep::Counts::change(size_t place, int32_t by, uint64_t& steps) {
  for (size_t i = place + 1; i < sums_.size(); i += i & (~i + 1), ++steps) sums_[i] += by;
}

int64_t RowSweep::Counts::before(size_t end, uint64_t& steps) const {
  int64_t sum = 0;
  for (size_t i = end; i > 0; i -= i & (~i + 1), ++steps) sum += sums_[i];
  return sum;
}

void RowSweep::reserve(size_t rectangles) {
  rectangles_.reserve(rectangles);
  by_end_.reserve(rectangles);
  columns_.reserve(2 * rectangles);
  for (Active* active : {&all_, &written_}) {
    active->begins.reserve(2 * rectangles);
    active->ends.reserve(2 * rectangles);
  }
}

void RowSweep::add(const Rectangle& rectangle) {
  if (rectangle.first_row < rectangle.end_row && rectangle.first < rectangle.end)
    rectangles_.push_back(rectangle);
}

void RowSweep::sort() {
  std::sort(rectangles_.begin(), rectangles_.end(), [&](const Rectangle& x, const Rectangle& y) {
    ++steps_;
    return x.first_row < y.first_row;
  });
  by_end_.resize(rectangles_.size());
  std::iota(by_end_.begin(), by_end_.end(), 0u);
  std::sort(by_end_.begin(), by_end_.end(), [&](uint32_t x, uint32_t y) {
    ++steps_;
    return rectangles_[x].end_row < rectangles_[y].end_row;
  });
  columns_.clear();
  for (const Rectangle& r : rectangles_) columns_.insert(columns_.end(), {r.first, r.end});
  std::sort(columns_.begin(), columns_.end(), [&](uint64_t x, uint64_t y) {
    ++steps_;
    return x < y;
  });
  columns_.erase(std::unique(columns_.begin(), columns_.end()), columns_.end());
  for (Active* active : {&all_, &written_}) {
    active->begins.clear(columns_.size());
    active->ends.clear(columns_.size());
    active->size = 0;
  }
}

size_t RowSweep::place(uint64_t column) {
  const auto at =
      std::lower_bound(columns_.begin(), columns_.end(), column, [&](uint64_t x, uint64_t y) {
        ++steps_;
        return x < y;
      });
  return static_cast<size_t>(at - columns_.begin());
}

void RowSweep::change(Active& active, const Rectangle& rectangle, int32_t by) {
  active.begins.change(place(rectangle.first), by, steps_);
  active.ends.change(place(rectangle.end), by, steps_);
  active.size += by;
}

/// All intervals but those that end before this one begins and those that begin after its end.
bool RowSweep::touches(const Active& active, const Rectangle& rectangle) {
  const int64_t left = active.ends.before(place(rectangle.first) + 1, steps_);
  const int64_t begun = active.begins.before(place(rectangle.end), steps_);
  return begun > left;
}

bool RowSweep::meet() {
  sort();
  size_t ended = 0;
  for (const Rectangle& r : rectangles_) {
    for (; rectangles_[by_end_[ended]].end_row <= r.first_row; ++ended) {
      const Rectangle& over = rectangles_[by_end_[ended]];
      change(all_, over, -1);
      if (over.written) change(written_, over, -1);
    }
    if (touches(r.written ? all_ : written_, r)) return true;
    change(all_, r, 1);
    if (r.written) change(written_, r, 1);
  }
  return false;
}

}  // namespace metal_marlin
