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

/// Accesses that do not conflict with each other (plain reads; atomics), in as few words as tell whether one of them is
/// unordered with a later access.
struct AccessSet {
  uint32_t time, group;  // of the last one; time 0: none
  uint16_t thread;
  uint16_t flags;

  enum : uint16_t {
    kLanes = 1,       // several of thread's simdgroup since its last barrier
    kSimdgroups = 2,  // several simdgroups since the threadgroup's last barrier
    kGroups = 4,      // several threadgroups
  };

  bool unordered(const Order& o) const {
    if (time == 0) return false;
    if (group != o.group || (flags & kGroups)) return true;
    if (time < o.group_sync) return false;
    if (flags & kSimdgroups) return true;  // at least one of them is of another simdgroup
    if (thread / 32 != o.thread / 32) return true;
    return time >= o.simdgroup_sync[o.thread / 32] && ((flags & kLanes) || thread != o.thread);
  }

  void add(const Order& o) {
    if (time == 0) {
      flags = 0;
    } else if (group != o.group) {
      flags = kGroups;
    } else if (time < o.group_sync) {
      flags &= kGroups;
    } else if (thread / 32 != o.thread / 32) {
      flags |= kSimdgroups;
    } else if (time < o.simdgroup_sync[o.thread / 32]) {
      flags &= static_cast<uint16_t>(~kLanes);
    } else if (thread != o.thread) {
      flags |= kLanes;
    }
    time = o.now, group = o.group, thread = static_cast<uint16_t>(o.thread);
  }
};

/// The history of one byte. All zero: untouched.
struct Cell {
  uint32_t write_time, write_group;  // of the last plain write
  uint16_t writer;
  AccessSet reads, atomics;

  bool written() const { return write_time != 0 || atomics.time != 0; }
  bool unordered_write(const Order& o) const {
    return write_time != 0 && (write_group != o.group || !o.after(write_time, writer));
  }
};

enum class Race : uint8_t { kNone, kWithWrite, kWithRead, kWithAtomic };

/// Records the access and says which race it closes. An atomic load counts as an atomic that does not write.
inline Race note_access(Cell& c, const Order& o, bool write, bool atomic) {
  Race race = Race::kNone;
  if (c.unordered_write(o)) {
    race = Race::kWithWrite;
  } else if (!atomic && c.atomics.unordered(o)) {
    race = Race::kWithAtomic;
  } else if (write && c.reads.unordered(o)) {
    race = Race::kWithRead;
  }
  if (atomic && write) {
    c.atomics.add(o);
  } else if (write) {
    c.write_time = o.now, c.write_group = o.group, c.writer = static_cast<uint16_t>(o.thread);
  } else if (!atomic) {
    c.reads.add(o);
  }
  return race;
}

}  // namespace metal_on_cpu
