// What checked mode looks at in every access to memory.
#include <algorithm>
#include <cstring>

#include "worker.h"

namespace metal_on_cpu {
namespace {

constexpr size_t kRedzone = 64;

std::string bytes_text(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

std::string doing(const Access& a) { return (a.write ? "writes " : "reads ") + bytes_text(a.bytes); }
std::string place_text(bool threadgroup, int buffer, int64_t byte) {
  return " of " + (threadgroup ? "threadgroup memory" : "buffer(" + std::to_string(buffer) + ")") + " at byte " +
         std::to_string(byte);
}

}  // namespace

Finding* Worker::report(const char* kind, const Where& where, int buffer) {
  if (!log.add(kind, where, buffer)) return nullptr;
  Finding& f = log.last();
  f.kernel = job_->kernel->name;
  f.threadgroup = group_;
  const uint32_t i = lane_ ? lane_->index : 0;
  const Size3& size = job_->threads;
  f.thread = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
  return &f;
}

void Worker::out_of_bounds(const char* kind, const Access& access, int buffer, int64_t offset, const std::string& message) {
  if (Finding* f = report(kind, access.where, buffer)) f->offset = offset, f->message = doing(access) + message;
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
    watched_ = variables_top_;
  }
  return threadgroup_.data() + offset;
}

void Worker::watch(const Touched& place, const Access& access) {
  const int space = place.threadgroup ? 1 : 0;
  const Order order{now_, lane_->index, static_cast<uint32_t>(group_number_) + 1, group_sync_[space], simdgroup_sync_[space]};
  Conflict conflict;
  bool uninitialized = false;
  place.history.visit(place.offset, access.bytes, [&](Cell& cell) {
    uninitialized = uninitialized || (place.undefined && !access.write && !cell.written());
    if (conflict.race == Race::kNone) conflict = cell.conflict(order, access.write);
    cell.record(order, access.write);
  });
  if (uninitialized) report_uninitialized(place, access);
  if (conflict.race != Race::kNone) report_race(place, access, conflict);
}

void Worker::report_uninitialized(const Touched& place, const Access& access) {
  if (Finding* f = report(place.threadgroup ? "uninitialized-threadgroup-read" : "uninitialized-device-read", access.where,
                          place.buffer)) {
    f->offset = place.byte;
    f->message = doing(access) + place_text(place.threadgroup, place.buffer, place.byte) + " that nothing has written";
  }
}

void Worker::report_race(const Touched& place, const Access& access, const Conflict& conflict) {
  if (Finding* f = report(place.threadgroup ? "threadgroup-race" : "device-race", access.where, place.buffer)) {
    const bool same_group = conflict.group == static_cast<uint32_t>(group_number_) + 1;
    f->offset = place.byte;
    f->message =
        doing(access) + place_text(place.threadgroup, place.buffer, place.byte) + ", which thread " +
        std::to_string(conflict.thread) + (same_group ? "" : " of threadgroup number " + std::to_string(conflict.group - 1)) +
        (conflict.race == Race::kWithRead ? " reads" : " writes") + " without a barrier between that orders this memory";
  }
}

void Worker::locate(int space, uint64_t offset, const Access& access) {
  locality->access(lane_->index, access.where.pc ? access.where.pc : access.where.line, space, offset,
                   static_cast<uint32_t>(access.bytes), access.write);
}

Worker::Beside Worker::beside(uintptr_t address, bool write) const {
  Beside found;
  const std::string does = write ? "writes" : "reads";
  if (in_stacks(address)) {
    found.kind = "stack-overflow", found.message = "the thread's variables need more than its stack";
  } else if (stacks_.reaches(address)) {
    found.kind = "out-of-bounds-thread-array", found.message = does + " far beside a variable of the thread";
  } else if (threadgroup_.reaches(address)) {
    found.kind = write ? "out-of-bounds-threadgroup-write" : "out-of-bounds-threadgroup-read";
    found.message = does + " far beside the threadgroup's variables";
  } else if (const Allocation* a = job_->memory->find(address); a && !a->in_place) {
    found.kind = write ? "out-of-bounds-write" : "out-of-bounds-read";
    found.buffer = a->index, found.offset = static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(a->base));
    found.message = does + " at byte " + std::to_string(found.offset) + " of buffer(" + std::to_string(a->index) +
                    "), which has " + bytes_text(a->bytes);
  }
  return found;
}

bool Worker::threadgroup_access(const Access& access) {
  const uintptr_t offset = access.address - reinterpret_cast<uintptr_t>(threadgroup_.data());
  if (offset >= threadgroup_.size()) return false;
  const size_t last = std::min(offset + access.bytes - 1, threadgroup_.size() - 1);
  const uint8_t owner = owner_[offset];
  if (owner == 0 || owner_[last] != owner) {
    const ThreadgroupVariable* nearest = nullptr;
    for (const ThreadgroupVariable& v : variables_) {
      if (v.offset <= offset || !nearest) nearest = &v;
    }
    const int64_t at = nearest ? static_cast<int64_t>(offset) - static_cast<int64_t>(nearest->offset) : 0;
    out_of_bounds(access.write ? "out-of-bounds-threadgroup-write" : "out-of-bounds-threadgroup-read", access, -1, at,
                  " at byte " + std::to_string(at) + " of '" + (nearest ? nearest->name : "?") + "', which has " +
                      bytes_text(nearest ? nearest->bytes : 0));
  }
  if (access.write) counters.threadgroup_bytes_written += access.bytes;
  watch({history_, offset, -1, static_cast<int64_t>(offset - variables_[owner - 1].offset), true, true}, access);
  return true;
}

void Worker::buffer_access(Allocation& a, const Access& access) {
  const uint64_t offset = access.address - reinterpret_cast<uintptr_t>(a.base);  // huge when before it
  const auto byte = static_cast<int64_t>(offset);
  if (offset >= a.bytes || access.bytes > a.bytes - offset) {
    out_of_bounds(
        access.write ? "out-of-bounds-write" : "out-of-bounds-read", access, a.index, byte,
        " at byte " + std::to_string(byte) + " of buffer(" + std::to_string(a.index) + "), which has " + bytes_text(a.bytes));
  }
  BufferCounters& c = traffic[static_cast<size_t>(&a - job_->memory->allocations().data())];
  (access.write ? c.bytes_written : c.bytes_read) += access.bytes;
  (access.write ? c.writes : c.reads)++;
  if (job_->counted) {
    std::vector<uint64_t>& seen = access.write ? a.written : a.read;
    for (uint64_t i = offset; i < offset + access.bytes; ++i) seen[i / 64] |= uint64_t{1} << i % 64;
    locate(a.index, offset, access);
  }
  if (a.writable) {
    watch({a.history, offset, a.index, byte, false, a.undefined}, access);
  } else if (access.write) {
    if (Finding* f = report("write-to-constant", access.where, a.index)) {
      f->offset = byte, f->message = "writes to buffer(" + std::to_string(a.index) + "), which is read-only here";
    }
    abandon();
  }
}

// AddressSanitizer's shadow: 0 all eight bytes are good, k only the first k, from 0x80 on none.
void Worker::stack_access(const Access& access) {
  const uintptr_t end = access.address + access.bytes;
  for (uintptr_t a = access.address; a < end; a = (a & ~uintptr_t{7}) + 8) {
    const uint8_t shadow = stack_shadow_[(a - stacks_begin_) / 8];
    const uintptr_t good = (a & ~uintptr_t{7}) + (shadow == 0 ? 8 : shadow < 8 ? shadow : 0);
    if (a >= good) out_of_bounds("out-of-bounds-thread-array", access, -1, 0, " beside a variable of the thread");
    if (shadow != 0 && good < end) {
      out_of_bounds("out-of-bounds-thread-array", access, -1, 0, " beyond a variable of the thread");
    }
  }
}

void Worker::shadow_stack(uintptr_t address, size_t bytes, uint8_t value) {
  if (address - stacks_begin_ >= stacks_bytes_ || address + bytes * 8 > stacks_begin_ + stacks_bytes_) return;
  std::memset(stack_shadow_ + (address - stacks_begin_) / 8, value, bytes);
}

void Worker::access(const Access& access) {
  if (access.bytes == 0) return;
  if (in_stacks(access.address)) return stack_access(access);
  if (threadgroup_access(access)) return;
  if (Allocation* a = job_->memory->find(access.address)) return buffer_access(*a, access);
  if (job_->image->contains(access.address, access.bytes)) {
    if (!access.write) return;
    out_of_bounds("write-to-constant", access, -1, 0, " of a program-scope constant");
  }
  const bool null = access.address < kPage;
  char text[32];
  std::snprintf(text, sizeof text, "0x%zx", static_cast<size_t>(access.address));
  out_of_bounds(null ? "null-pointer" : "wild-pointer", access, -1, 0,
                std::string(" at address ") + text + ", which is " + (null ? "null" : "in no buffer"));
}

void Worker::block(uint32_t number, const void* pc) {
  block_counts[number]++;
  if (--lane_->steps != 0) return;
  if (Finding* f = report("step-budget", Where::address(pc))) {
    f->message = "a thread has executed " + std::to_string(job_->step_budget) +
                 " basic blocks: an infinite loop, or too few for it (step_budget)?";
  }
  abandon();
}

void Worker::end_in_time(const Where& where) {
  expired_ = true;
  if (Finding* f = report("time-limit", where)) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", job_->time_limit);
    f->message = std::string("the dispatch has run for ") + text +
                 " s of CPU time: an infinite loop, or too little for it (time_limit)?";
  }
  abandon();
}

}  // namespace metal_on_cpu
