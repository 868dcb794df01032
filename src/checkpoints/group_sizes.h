// The group sizes that a config names. Their number is unbounded, and every layer looks up sizes at
// least once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace metal_marlin {

/// If several sizes fit, the size that the config names first counts.
class GroupSizes {
 public:
  GroupSizes() = default;
  /// All sizes must be positive and in the order of the config. Repeated sizes are ignored.
  explicit GroupSizes(std::span<const int64_t> sizes);

  /// The first size of all.
  std::optional<int64_t> first() const;
  /// The first size in [least, most].
  std::optional<int64_t> first_between(int64_t least, int64_t most) const;
  /// The place of a size in the order of the config, or nothing if the config does not name it.
  std::optional<uint32_t> place_of(int64_t size) const;

 private:
  struct Size {
    int64_t value;
    uint32_t place;
  };
  std::vector<Size> sizes_;  // by value
  /// A heap that finds the element of sizes_ with the lowest place. Node i stands for the better of
  /// nodes 2 i and 2 i + 1, and the nodes from sizes_.size() on stand for the elements of sizes_.
  std::vector<uint32_t> first_;
};

}  // namespace metal_marlin
