// Sorting by what a mapped file says.
#pragma once

#include <algorithm>
#include <span>

namespace metal_marlin {

/// Sorts by an order that reads a mapped file. Another process may change the file meanwhile, and
/// then the order contradicts itself: std::sort leaves its range in such a case, a heap only ends
/// in a wrong order.
template <class T, class Less>
void sort_mapped(std::span<T> items, Less less) {
  std::make_heap(items.begin(), items.end(), less);
  std::sort_heap(items.begin(), items.end(), less);
}

}  // namespace metal_marlin
