// The prefetch distances of the blocks of a panel whose last blocks hold padding alone.
#pragma once

#include "backends/cpu/fetch.h"
#include "backends/cpu/hot_loops.h"
#include "backends/cpu/layout.h"

namespace metal_marlin::cpu {

/// Walks along with the blocks of one panel, and leaves out the idle blocks that lie ahead.
class FetchAhead {
 public:
  FetchAhead(const PanelLayout& layout, int idle_blocks, int64_t distance)
      : panel_(layout.panel_bytes()),
        idle_end_(panel_ - layout.super_bytes() + layout.code_bytes()),
        idle_begin_(idle_end_ - idle_blocks * block_bytes(layout)),
        block_(block_bytes(layout)),
        distance_(distance),
        at_(distance % panel_) {}

  /// The distance for the block at hand, or 0. The next block lies `to_next` bytes behind it.
  MARLIN_INLINE int64_t pass(int64_t to_next) {
    const int64_t distance = at_ >= idle_begin_ && at_ + block_ <= idle_end_ ? 0 : distance_;
    at_ += to_next;
    if (at_ >= panel_) at_ -= panel_;
    return distance;
  }

 private:
  static int64_t block_bytes(const PanelLayout& layout) {
    return kColumnGroups * layout.group_bytes();
  }
  int64_t panel_, idle_end_, idle_begin_, block_, distance_, at_;
};

/// Gives the distances of both chances.
class FetchTwice {
 public:
  FetchTwice(const PanelLayout& layout, int idle_blocks, int64_t distance)
      : far_(layout, idle_blocks, distance), near_(layout, idle_blocks, kSecondChance) {}
  MARLIN_INLINE Ahead pass(int64_t to_next) { return {far_.pass(to_next), near_.pass(to_next)}; }

 private:
  FetchAhead far_, near_;
};

}  // namespace metal_marlin::cpu
