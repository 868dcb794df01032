// Sorts by the content of a mapped file.
#pragma once

#include <algorithm>
#include <span>

namespace metal_marlin {

/// Sorts by an order that reads a mapped file. If another process changes the file meanwhile, the
/// order may contradict itself. std::sort may then leave its range; a heap sort only gives a wrong
/// order.
template <class T, class Less>
void sort_mapped(std::span<T> items, Less less) {
  std::make_heap(items.begin(), items.end(), less);
  std::sort_heap(items.begin(), items.end(), less);
}

}  // namespace metal_marlin
