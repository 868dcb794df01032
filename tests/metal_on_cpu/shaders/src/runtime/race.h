// Who touched a byte last, and whether that is ordered with the access at hand. Two accesses are ordered when one thread makes
// both, when a barrier of the threadgroup (with the flag of that memory) lies between them, or, inside one simdgroup, a barrier
// of the simdgroup. Nothing orders two threadgroups.
#pragma once

#include <cstdint>

namespace metal_on_cpu {

/// The thread at hand, and since when its predecessors are ordered with it.
struct Order {
  uint32_t now, thread, group;     // group: number of the threadgroup + 1
  uint32_t group_sync;             // time of the last threadgroup barrier for this memory
  const uint32_t* simdgroup_sync;  // for each simdgroup: time of its last barrier of either kind

  bool after(uint32_t time, uint32_t other) const {
    return other == thread || time < (other / 32 == thread / 32 ? simdgroup_sync[thread / 32] : group_sync);
  }
};

enum class Race : uint8_t { kNone, kWithWrite, kWithRead };

/// A race, and who made the earlier access.
struct Conflict {
  Race race = Race::kNone;
  uint32_t thread = 0, group = 0;
};

// Packed, so that a cell is half a cache line.
struct [[gnu::packed]] WriteAccess {
  uint32_t time, group;  // of the last one; time 0: none
  uint16_t thread;

  bool unordered(const Order& o) const { return time != 0 && (group != o.group || !o.after(time, thread)); }
};

/// Reads, in as few words as tell whether one of them is unordered with a later write.
struct [[gnu::packed]] AccessSet {
  uint32_t time, group;     // of the last one; time 0: none
  uint16_t thread : 10;     // fewer than 1,024 threads in a threadgroup
  uint16_t lanes : 1;       // several of thread's simdgroup since its last barrier
  uint16_t simdgroups : 1;  // several simdgroups since the threadgroup's last barrier
  uint16_t threadgroups : 1;

  bool unordered(const Order& o) const {
    if (time == 0) return false;
    if (group != o.group || threadgroups) return true;
    if (time < o.group_sync) return false;
    if (simdgroups) return true;  // at least one of them is of another simdgroup
    if (thread / 32 != o.thread / 32) return true;
    return time >= o.simdgroup_sync[o.thread / 32] && (lanes || thread != o.thread);
  }

  void add(const Order& o) {
    if (time == 0) {
      lanes = simdgroups = threadgroups = 0;
    } else if (group != o.group) {
      lanes = simdgroups = 0, threadgroups = 1;
    } else if (time < o.group_sync) {
      lanes = simdgroups = 0;
    } else if (thread / 32 != o.thread / 32) {
      simdgroups = 1;
    } else if (time < o.simdgroup_sync[o.thread / 32]) {
      lanes = 0;
    } else if (thread != o.thread) {
      lanes = 1;
    }
    time = o.now, group = o.group, thread = o.thread & 1023;
  }
};

/// What has happened to some bytes that were always touched together. All zero: nothing.
struct alignas(32) Cell {
  WriteAccess write;
  AccessSet reads;

  bool written() const { return write.time != 0; }

  /// The race that this access closes.
  Conflict conflict(const Order& o, bool writes) const {
    if (write.unordered(o)) return {Race::kWithWrite, write.thread, write.group};
    if (writes && reads.unordered(o)) return {Race::kWithRead, reads.thread, reads.group};
    return {};
  }

  void record(const Order& o, bool writes) {
    if (writes)
      write = {o.now, o.group, static_cast<uint16_t>(o.thread)};
    else
      reads.add(o);
  }
};
static_assert(sizeof(Cell) == 32);

}  // namespace metal_on_cpu
