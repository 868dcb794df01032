#include "checkpoints/group_sizes.h"

#include <algorithm>
#include <tuple>

namespace metal_marlin {

GroupSizes::GroupSizes(std::span<const int64_t> sizes) {
  sizes_.reserve(sizes.size());
  for (const int64_t size : sizes) sizes_.push_back({size, static_cast<uint32_t>(sizes_.size())});
  std::sort(sizes_.begin(), sizes_.end(), [](const Size& a, const Size& b) {
    return std::tie(a.value, a.place) < std::tie(b.value, b.place);
  });
  const auto again = std::unique(sizes_.begin(), sizes_.end(),
                                 [](const Size& a, const Size& b) { return a.value == b.value; });
  sizes_.erase(again, sizes_.end());
  const size_t count = sizes_.size();
  first_.resize(2 * count);
  for (size_t i = 0; i < count; ++i) first_[count + i] = static_cast<uint32_t>(i);
  for (size_t i = std::max<size_t>(count, 1) - 1; i > 0; --i) {
    const uint32_t a = first_[2 * i], b = first_[2 * i + 1];
    first_[i] = sizes_[a].place < sizes_[b].place ? a : b;
  }
}

std::optional<int64_t> GroupSizes::first() const { return first_between(1, INT64_MAX); }

std::optional<int64_t> GroupSizes::first_between(int64_t least, int64_t most) const {
  const auto index_from = [&](auto at) {
    return static_cast<size_t>(at - sizes_.begin()) + sizes_.size();
  };
  // The loop visits nodes [begin, end) of one level after the other, from the sizes upwards.
  size_t begin = index_from(std::partition_point(sizes_.begin(), sizes_.end(),
                                                 [&](const Size& s) { return s.value < least; }));
  size_t end = index_from(std::partition_point(sizes_.begin(), sizes_.end(),
                                               [&](const Size& s) { return s.value <= most; }));
  const Size* best = nullptr;
  const auto take = [&](size_t node) {
    const Size& size = sizes_[first_[node]];
    if (best == nullptr || size.place < best->place) best = &size;
  };
  for (; begin < end; begin /= 2, end /= 2) {
    if (begin % 2 != 0) take(begin++);
    if (end % 2 != 0) take(--end);
  }
  return best != nullptr ? std::optional(best->value) : std::nullopt;
}

std::optional<uint32_t> GroupSizes::place_of(int64_t size) const {
  const auto at = std::partition_point(sizes_.begin(), sizes_.end(),
                                       [&](const Size& s) { return s.value < size; });
  if (at == sizes_.end() || at->value != size) return std::nullopt;
  return at->place;
}

}  // namespace metal_marlin
