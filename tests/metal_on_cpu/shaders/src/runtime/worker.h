// Runs threadgroups on one host thread. Every thread of a threadgroup is a fiber with its own stack. A simdgroup's lanes run
// one after another until each waits at a collective, a barrier or its end; the lane that arrives last computes the collective.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../../include/metal_on_cpu/metal_on_cpu.h"
#include "../../prelude/msl/abi.h"
#include "fiber.h"
#include "finding_log.h"
#include "image.h"
#include "locality.h"
#include "memory.h"

namespace metal_on_cpu {

constexpr uint32_t kMaxThreads = 1024, kSimdWidth = 32;
constexpr size_t kMaxThreadgroupMemory = 32768;
// An odd number of pages, and see stack_top(): at 128 KiB from one another, what the lanes hold at equal depths would share a
// few sets of the caches, which then keep nothing from one lane's turn to its next.
constexpr size_t kStack = 33 * kPage;

/// Values of function constants, which images ask for that have not folded them, as long as this object lives.
using ConstantValues = std::map<uint32_t, double>;
class GivenConstants {
 public:
  explicit GivenConstants(const ConstantValues& values) : before_(std::exchange(current_, &values)) {}
  ~GivenConstants() { current_ = before_; }
  GivenConstants(const GivenConstants&) = delete;
  GivenConstants& operator=(const GivenConstants&) = delete;
  /// Null: the constant has no value.
  static const double* find(uint32_t index) {
    if (!current_) return nullptr;
    const auto found = current_->find(index);
    return found == current_->end() ? nullptr : &found->second;
  }

 private:
  static thread_local constinit const ConstantValues* current_ __attribute__((tls_model("initial-exec")));
  const ConstantValues* const before_;
};

/// A dispatch.
struct DispatchedWork {
  const Image* image = nullptr;
  const msl::Kernel* kernel = nullptr;
  Memory* memory = nullptr;
  Size3 groups, threads;
  bool checked = false, counted = false, flush_to_zero = false;
  bool reports = true;  // findings
  uint64_t seed = 0;
  bool hides_fragments = false;
  uint64_t step_budget = 0;
  double time_limit = 0;  // seconds of CPU time; 0: none
};

enum class LaneState : uint8_t { kReady, kCollective, kBarrier, kDone };

/// A call in the shader's text.
struct Site {
  const char* file = nullptr;
  uint32_t line = 0, column = 0;

  bool same(const Site& other) const { return line == other.line && column == other.column; }
  bool before(const Site& other) const { return line < other.line || (line == other.line && column < other.column); }
};

struct Lane {
  Context context = nullptr;
  uint32_t index = 0;  // in the threadgroup
  LaneState state = LaneState::kDone;
  uint8_t kind = 0;
  uint32_t flags = 0;
  msl::Resolve resolve = nullptr;
  const msl::TensorOperation* operation = nullptr;
  Site site;
  uint64_t steps = 0;  // left of the budget
  uint32_t place = 0;  // in the order of its simdgroup
};

/// The lanes of the running simdgroup that wait at collectives.
struct Meeting {
  uint32_t lanes = 0;
  bool mixed = false;  // not all at the same one as the first
  Site site;
  msl::Resolve resolve = nullptr;
  void* arguments[kSimdWidth] = {};
};

struct ThreadgroupVariable {
  uint32_t id;
  size_t offset, bytes;
  const char* name;
};

/// What a thread does to memory.
struct Access {
  uintptr_t address;
  size_t bytes;
  bool write;
  Where where;
};

class __attribute__((visibility("hidden"))) Worker {
 public:
  Worker();
  explicit operator bool() const { return stacks_ && threadgroup_ && shadow_ && history_; }

  void begin(const DispatchedWork& job);
  /// Runs threadgroup number `number` of the grid. False: enough has gone wrong to give up the dispatch.
  bool run_group(uint64_t number);
  void end();

  FindingLog log;
  Counters counters;
  Locality* locality = nullptr;
  bool complete = true;
  std::vector<uint64_t> block_counts;
  std::vector<BufferCounters> traffic;  // with each allocation

  /// The worker of this host thread while it runs fibers, else nullptr.
  static Worker*& current() { return current_; }

  // What images call, on a fiber.
  void wait_at_barrier(uint32_t flags, Site site);
  void wait_at_simdgroup_barrier(uint32_t flags, Site site);
  void wait_at_collective(uint32_t kind, void* argument, msl::Resolve resolver, Site site);
  /// `resolver` computes what is in registers, of one simdgroup.
  void wait_at_tensor_operation(uint32_t simdgroups, const msl::TensorOperation& operation, void* argument,
                                msl::Resolve resolver, Site site);
  void* variable(uint32_t id, size_t bytes, size_t align, const char* name, const Where& where);
  void access(const Access& access);
  void block(uint32_t number, const void* pc);
  void shadow_stack(uintptr_t address, size_t bytes, uint8_t value);
  /// The shadows of what the lane is about to shuffle (msl::kShuffleShadow), once.
  void pass_shadow(uint8_t* shadows) { shuffle_shadow_ = shadows; }
  uint8_t* take_shadow() { return std::exchange(shuffle_shadow_, nullptr); }
  bool in_stacks(uintptr_t address) const { return address - stacks_begin_ < stacks_bytes_; }
  /// Of an address that has no rights: the memory that it is beside, as in "out-of-bounds-write" and a message behind "writes";
  /// or nothing, where it is beside none.
  struct Beside {
    const char* kind = nullptr;
    int buffer = -1;
    int64_t offset = 0;
    std::string message;
  };
  Beside beside(uintptr_t address, bool write) const;
  /// Whether this is a variable of a thread, as a whole alive; false also for what only access() can tell.
  template <size_t kBytes>
  bool good_stack(uintptr_t address) const {
    if (!in_stacks(address)) return false;
    const uint8_t* shadow = stack_shadow_ + (address - stacks_begin_) / 8;
    const size_t last = address % 8 + std::min<size_t>(kBytes, 8) - 1;
    if (kBytes == 16) return last == 7 && (shadow[0] | shadow[1]) == 0;
    return last < 8 && (*shadow == 0 || (*shadow < 8 && last < *shadow));
  }

  /// The finding to complete, when this is the first of its kind there; else nullptr.
  Finding* report(const char* kind, const Where& where, int buffer = -1);
  /// Gives the threadgroup up; does not return. On a fiber only.
  [[noreturn]] void abandon();

  /// The dispatch has taken too long. On a fiber only.
  [[noreturn]] void end_in_time(const Where& where);

  bool on_fiber() const { return lane_ && lane_ != &root_; }
  /// The top of the running fiber's stack, for code after a fault: nothing below it is needed any more.
  uintptr_t fresh_stack() const { return reinterpret_cast<uintptr_t>(stack_top(lane_->index)) - 64; }

  Lane* lane() { return lane_; }
  const Lane* lane() const { return lane_; }
  const DispatchedWork& job() const { return *job_; }
  Where collective_place() const { return Where::place(site_->site.file, site_->site.line); }

 private:
  [[noreturn]] static void fiber();
  // Neighbors begin five lines (an odd number: all 64 sets get their turn) below one another.
  std::byte* stack_top(uint32_t thread) const { return stacks_.data() + (thread + 1) * kStack - thread * 5 % 64 * 64; }
  void start_lanes();
  void place_arguments();
  bool run_simdgroup(uint32_t simdgroup);
  void wait();
  void jump(Lane* to);
  bool resolve(uint32_t simdgroup);
  void make_ready(uint32_t simdgroup, uint32_t lanes);
  void check_participants(Lane& site, uint32_t active);
  void note_collective(const Lane& site, uint32_t simdgroup);
  bool release_barrier();
  void note_tensor_operation(uint32_t first, uint32_t count);
  void report_divergent_barrier();
  void synchronize(uint32_t flags, uint32_t first_simdgroup, uint32_t count, bool group);
  void clean_stacks();

  void stack_access(const Access& access);
  void buffer_access(Allocation& allocation, const Access& access);
  bool threadgroup_access(const Access& access);
  void locate(int space, uint64_t offset, const Access& access);
  [[noreturn]] void out_of_bounds(const char* kind, const Access& access, int buffer, int64_t offset,
                                  const std::string& message);

  // What is touched: `offset` in its history, which is not the one in its variable, that messages tell.
  struct Touched {
    const History& history;
    size_t offset;
    int buffer;  // -1: threadgroup memory, or only reached through a pointer
    int64_t byte;
    bool threadgroup, undefined;
  };
  void watch(const Touched& place, const Access& access);
  void report_uninitialized(const Touched& place, const Access& access);
  void report_race(const Touched& place, const Access& access, const Conflict& conflict);

  static thread_local constinit Worker* current_ __attribute__((tls_model("initial-exec")));

  const DispatchedWork* job_ = nullptr;
  Guarded stacks_, threadgroup_;
  Mapping shadow_;
  History history_;  // of threadgroup memory
  uintptr_t stacks_begin_ = 0, stacks_bytes_ = 0;
  uint8_t* shuffle_shadow_ = nullptr;
  uint8_t* stack_shadow_ = nullptr;  // one byte for eight of the stacks, in AddressSanitizer's encoding
  std::vector<Lane> lanes_;
  Lane root_;                   // the host thread's own context
  Lane* lane_ = nullptr;        // the running fiber
  const Lane* site_ = nullptr;  // the collective being computed
  uint32_t simdgroups_ = 0, live_ = 0, running_simdgroup_ = 0;
  Meeting meeting_;
  uint32_t ready_[kSimdWidth] = {};  // of each simdgroup: places (in its order) of lanes that can run
  uint8_t order_[kMaxThreads] = {};  // lane at a place
  bool abandoned_ = false, expired_ = false;
  uint32_t abandoned_groups_ = 0;

  uint64_t group_number_ = 0;
  Size3 group_;  // position in the grid
  msl::Arguments arguments_{};
  std::vector<ThreadgroupVariable> variables_;
  size_t variables_top_ = 0, variables_bytes_ = 0;
  size_t watched_ = 0;          // bytes of threadgroup memory that the history may know of
  std::vector<uint8_t> owner_;  // of each byte of threadgroup memory: variable + 1

  // Time, for races: device and threadgroup memory are ordered by different flags.
  uint32_t now_ = 1, group_start_ = 1;
  uint32_t group_sync_[2] = {};
  uint32_t simdgroup_sync_[2][kSimdWidth] = {};
  uint64_t random_ = 0;
};

void add(BufferCounters& to, const BufferCounters& from);

/// A stream of pseudo-random numbers (splitmix64).
inline uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace metal_on_cpu
