// The group sizes that a config names: as many as its writer likes, asked once or more for every
// layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace metal_marlin {

/// Which of several sizes counts is the one that the config names first.
class GroupSizes {
 public:
  GroupSizes() = default;
  /// Each positive, in the config's order; those named again are left out.
  explicit GroupSizes(std::span<const int64_t> sizes);

  /// The first of all.
  std::optional<int64_t> first() const;
  /// The first of those in [least, most].
  std::optional<int64_t> first_between(int64_t least, int64_t most) const;
  /// The place of a size in the config's order, or nothing when it is not named.
  std::optional<uint32_t> place_of(int64_t size) const;

 private:
  struct Size {
    int64_t value;
    uint32_t place;
  };
  std::vector<Size> sizes_;  // by value
  /// Heap of which of sizes_ has the lowest place: node i stands for the better of nodes 2 i and 2
  /// i + 1, and the nodes from sizes_.size() on for sizes_ themselves.
  std::vector<uint32_t> first_;
};

}  // namespace metal_marlin
