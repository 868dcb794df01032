// What checked mode looks at in every access to memory.
#include <algorithm>
#include <cstring>

#include "worker.h"

namespace metal_on_cpu {
namespace {

constexpr size_t kRedzone = 64;

const char* verb(bool write) { return write ? "writes " : "reads "; }
std::string bytes_text(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

const char* race_kind(bool threadgroup) { return threadgroup ? "threadgroup-race" : "device-race"; }

}  // namespace

Finding* Worker::report(const char* kind, const Where& where, int buffer) {
  if (!log.add(kind, where, buffer)) return nullptr;
  Finding& f = log.last();
  f.kernel = job_->kernel->name;
  f.threadgroup = group_;
  const uint32_t i = lane_ ? lane_->index : 0;
  f.thread = {i % group_size_.x, i / group_size_.x % group_size_.y, i / (group_size_.x * group_size_.y)};
  return &f;
}

void Worker::out_of_bounds(const char* kind, const Where& where, int buffer, int64_t offset, const std::string& message) {
  if (Finding* f = report(kind, where, buffer)) f->offset = offset, f->message = message;
  abandon();
}

// Called on the way into a kernel by each thread; the first one places the variable.
void* Worker::variable(uint32_t id, size_t bytes, size_t align, const char* name, const Where& where) {
  for (const ThreadgroupVariable& v : variables_) {
    if (v.id == id) return threadgroup_.data() + v.offset;
  }
  const size_t unit = std::max<size_t>(align, 16);
  const size_t offset = (variables_top_ + kRedzone + unit - 1) / unit * unit;
  if (variables_bytes_ + bytes > kMaxThreadgroupMemory || offset + bytes + kRedzone > threadgroup_.size()) {
    if (Finding* f = report("threadgroup-memory", where)) {
      f->message = "'" + std::string(name) + "' brings the threadgroup memory to " + std::to_string(variables_bytes_ + bytes) +
                   " bytes; there are 32768";
    }
    abandon();
  }
  variables_.push_back({id, offset, bytes, name});
  variables_top_ = offset + bytes;
  variables_bytes_ += bytes;
  if (job_->checked) {
    const auto owner = static_cast<uint8_t>(std::min<size_t>(variables_.size(), 255));
    std::fill_n(owner_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, owner);
    std::memset(threadgroup_.data() + offset, 0xa5, bytes);
  }
  return threadgroup_.data() + offset;
}

// One byte after another: neighbours may have different histories.
void Worker::watch(Cell* cells, size_t bytes, bool write, bool atomic, bool threadgroup, bool undefined, const Where& where,
                   int buffer, int64_t offset, const std::string& what) {
  const int space = threadgroup ? 1 : 0;
  const Order order{now_, lane_->index, static_cast<uint32_t>(group_number_) + 1, group_sync_[space], simdgroup_sync_[space]};
  Race race = Race::kNone;
  bool uninitialised = false;
  uint32_t other = 0, other_group = 0;
  for (size_t i = 0; i < bytes; ++i) {
    Cell& cell = cells[i];
    if (threadgroup && cell.write_time < group_start_) cell.write_time = 0;  // of an earlier threadgroup
    if (threadgroup && cell.reads.time < group_start_) cell.reads.time = 0;
    if (threadgroup && cell.atomics.time < group_start_) cell.atomics.time = 0;
    if (!write) uninitialised = uninitialised || (undefined && !cell.written());
    const Cell before = cell;
    const Race found = note_access(cell, order, write, atomic);
    if (found == Race::kNone || race != Race::kNone) continue;
    race = found;
    const AccessSet& set = found == Race::kWithRead ? before.reads : before.atomics;
    other = found == Race::kWithWrite ? before.writer : set.thread;
    other_group = found == Race::kWithWrite ? before.write_group : set.group;
  }
  if (uninitialised) {
    if (Finding* f = report(threadgroup ? "uninitialised-threadgroup-read" : "uninitialised-device-read", where, buffer)) {
      f->offset = offset;
      f->message =
          verb(false) + bytes_text(bytes) + " of " + what + " at byte " + std::to_string(offset) + " that nothing has written";
    }
  }
  if (race == Race::kNone) return;
  if (Finding* f = report(race_kind(threadgroup), where, buffer)) {
    f->offset = offset;
    f->message = verb(write) + bytes_text(bytes) + " of " + what + " at byte " + std::to_string(offset) + ", which thread " +
                 std::to_string(other) +
                 (other_group == order.group ? "" : " of threadgroup number " + std::to_string(other_group - 1)) +
                 (race == Race::kWithRead     ? " reads"
                  : race == Race::kWithAtomic ? " updates atomically"
                                              : " writes") +
                 " without a barrier between that orders this memory";
  }
}

bool Worker::threadgroup_access(uintptr_t address, size_t bytes, bool write, bool atomic, const Where& where) {
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(threadgroup_.data());
  if (offset >= threadgroup_.size()) return false;
  const size_t last = std::min(offset + bytes - 1, threadgroup_.size() - 1);
  const uint8_t owner = owner_[offset];
  if (owner == 0 || owner_[last] != owner) {
    const ThreadgroupVariable* nearest = nullptr;
    for (const ThreadgroupVariable& v : variables_) {
      if (v.offset <= offset || !nearest) nearest = &v;
    }
    const int64_t at = nearest ? static_cast<int64_t>(offset) - static_cast<int64_t>(nearest->offset) : 0;
    out_of_bounds(write ? "out-of-bounds-threadgroup-write" : "out-of-bounds-threadgroup-read", where, -1, at,
                  verb(write) + bytes_text(bytes) + " at byte " + std::to_string(at) + " of '" +
                      (nearest ? nearest->name : "?") + "', which has " + bytes_text(nearest ? nearest->bytes : 0));
  }
  const ThreadgroupVariable& v = variables_[owner - 1];
  (write ? counters.threadgroup_bytes_written : counters.threadgroup_bytes_read) += bytes;
  counters.threadgroup_accesses++;
  if (locality)
    locality->access(lane_->index, where.pc ? where.pc : where.line, kThreadgroupSpace, offset, static_cast<uint32_t>(bytes),
                     write);
  static const std::string kWhat = "threadgroup memory";
  watch(cells_.as<Cell>() + offset, bytes, write, atomic, true, true, where, -1, static_cast<int64_t>(offset - v.offset),
        kWhat);
  return true;
}

void Worker::buffer_access(Allocation& a, uintptr_t address, size_t bytes, bool write, bool atomic, const Where& where) {
  const int64_t offset = static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(a.base));
  if (offset < 0 || static_cast<uint64_t>(offset) + bytes > a.bytes) {
    out_of_bounds(write ? "out-of-bounds-write" : "out-of-bounds-read", where, a.index, offset,
                  verb(write) + bytes_text(bytes) + " at byte " + std::to_string(offset) + " of buffer(" +
                      std::to_string(a.index) + "), which has " + bytes_text(a.bytes));
  }
  BufferCounters& c = counters.buffers[a.index];
  (write ? c.bytes_written : c.bytes_read) += bytes;
  (write ? c.writes : c.reads)++;
  if (job_->counted) {
    std::vector<uint64_t>& seen = write ? a.written : a.read;
    for (size_t i = static_cast<size_t>(offset); i < static_cast<size_t>(offset) + bytes; ++i)
      seen[i / 64] |= uint64_t{1} << i % 64;
    locality->access(lane_->index, where.pc ? where.pc : where.line, a.index, static_cast<uint64_t>(offset),
                     static_cast<uint32_t>(bytes), write);
  }
  if (!a.writable) {
    if (!write) return;
    out_of_bounds("write-to-constant", where, a.index, offset,
                  "writes to buffer(" + std::to_string(a.index) + "), which is read-only here");
  }
  const std::string what = "buffer(" + std::to_string(a.index) + ")";
  watch(a.cells.as<Cell>() + offset, bytes, write, atomic, false, a.undefined, where, a.index, offset, what);
}

// AddressSanitizer's shadow: 0 all eight bytes are good, k only the first k, from 0x80 on none.
void Worker::stack_access(uintptr_t address, size_t bytes, bool write, const Where& where) {
  for (uintptr_t a = address; a < address + bytes;) {
    const uint8_t shadow = stack_shadow_[(a - stacks_begin_) / 8];
    const uintptr_t good = (a & ~uintptr_t{7}) + (shadow == 0 ? 8 : shadow < 8 ? shadow : 0);
    if (a >= good) {
      out_of_bounds("out-of-bounds-thread-array", where, -1, 0,
                    std::string(verb(write)) + bytes_text(bytes) + " beside a variable of the thread");
    }
    a = (a & ~uintptr_t{7}) + 8;
    if (shadow != 0 && shadow < 8 && good < address + bytes) {
      out_of_bounds("out-of-bounds-thread-array", where, -1, 0,
                    std::string(verb(write)) + bytes_text(bytes) + " beyond a variable of the thread");
    }
  }
}

void Worker::shadow_stack(uintptr_t address, size_t bytes, uint8_t value) {
  if (address - stacks_begin_ >= stacks_bytes_ || address + bytes * 8 > stacks_begin_ + stacks_bytes_) return;
  std::memset(stack_shadow_ + (address - stacks_begin_) / 8, value, bytes);
}

void Worker::access(uintptr_t address, size_t bytes, bool write, bool atomic, const Where& where) {
  if (bytes == 0) return;
  if (atomic && write) counters.atomics++;
  if (in_stacks(address)) return stack_access(address, bytes, write, where);
  if (Allocation* a = job_->memory->find(address)) return buffer_access(*a, address, bytes, write, atomic, where);
  if (threadgroup_access(address, bytes, write, atomic, where)) return;
  for (const Segment& s : job_->image->segments()) {
    if (address < s.begin || address + bytes > s.end) continue;
    if (!write) return;
    out_of_bounds("write-to-constant", where, -1, 0, "writes to a program-scope constant");
  }
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(address));
  out_of_bounds(
      address < kPage ? "null-pointer" : "wild-pointer", where, -1, 0,
      verb(write) + bytes_text(bytes) + " at address " + text + ", which is " + (address < kPage ? "null" : "in no buffer"));
}

void Worker::block(uint32_t number, const void* pc) {
  block_counts[number]++;
  if (--lane_->steps != 0) return;
  if (Finding* f = report("step-budget", Where::address(pc))) {
    f->message = "a thread has executed " + std::to_string(job_->step_budget) + " basic blocks: an infinite loop?";
  }
  abandon();
}

}  // namespace metal_on_cpu
