#include "worker.h"

#include <algorithm>
#include <cstring>

namespace metal_on_cpu {
namespace {

constexpr size_t kThreadgroupArena = 96 << 10;
constexpr uint32_t kMaxAbandoned = 8;

}  // namespace

thread_local constinit const ConstantValues* GivenConstants::current_ = nullptr;
thread_local constinit Worker* Worker::current_ = nullptr;

Worker::Worker()
    : stacks_(kStack * kMaxThreads),
      threadgroup_(kThreadgroupArena),
      shadow_(kStack * kMaxThreads / 8),
      history_(kThreadgroupArena),
      lanes_(kMaxThreads),
      owner_(kThreadgroupArena) {
  if (!*this) return;
  stacks_begin_ = reinterpret_cast<uintptr_t>(stacks_.data());
  stacks_bytes_ = stacks_.size();
  stack_shadow_ = shadow_.as<uint8_t>();
  for (size_t i = 0; i < kMaxThreads; ++i) stacks_.forbid(i * kStack, kPage);  // a stack that overflows hits its guard
}

void Worker::begin(const DispatchedWork& job) {
  job_ = &job;
  current_ = this;
  log = FindingLog();
  counters = Counters();
  complete = true;
  abandoned_groups_ = 0;
  expired_ = false;
  lane_ = nullptr;
  block_counts.assign(job.image->blocks().size(), 0);
  traffic.assign(job.memory->allocations().size(), {});
  random_ = job.seed * 0x2545f4914f6cdd1dull + 1;
}

void Worker::end() {
  current_ = nullptr;
  for (size_t i = 0; i < traffic.size(); ++i) {
    if (traffic[i].reads | traffic[i].writes) add(counters.buffers[job_->memory->allocations()[i].index], traffic[i]);
  }
}

void Worker::fiber() {
  Worker& w = *current_;
  Lane& self = *w.lane_;
  msl::Arguments arguments = w.arguments_;
  const uint32_t i = self.index;
  const Size3& size = w.job_->threads;
  const msl::Uint3 local{i % size.x, i / size.x % size.y, i / (size.x * size.y)};
  msl::Uint3* v = arguments.builtins;
  v[msl::kThreadPositionInThreadgroup] = local;
  v[msl::kThreadPositionInGrid] = {w.group_.x * size.x + local.x, w.group_.y * size.y + local.y, w.group_.z * size.z + local.z};
  v[msl::kThreadIndexInThreadgroup] = {i, 0, 0};
  v[msl::kThreadIndexInSimdgroup] = {i % kSimdWidth, 0, 0};
  v[msl::kSimdgroupIndexInThreadgroup] = {i / kSimdWidth, 0, 0};
  w.job_->kernel->run(*w.job_->kernel, arguments);
  self.state = LaneState::kDone;
  w.live_--;
  w.wait();
  __builtin_unreachable();
}

void Worker::place_arguments() {
  const auto triple = [](const Size3& s) { return msl::Uint3{s.x, s.y, s.z}; };
  msl::Uint3* v = arguments_.builtins;
  v[msl::kThreadgroupPositionInGrid] = triple(group_);
  v[msl::kSimdgroupsPerThreadgroup] = {static_cast<uint32_t>((job_->threads.count() + kSimdWidth - 1) / kSimdWidth), 0, 0};
  v[msl::kThreadsPerThreadgroup] = triple(job_->threads);
  v[msl::kThreadgroupsPerGrid] = triple(job_->groups);
  variables_.clear();
  if (job_->checked) {
    std::fill(owner_.begin(), owner_.end(), 0);
    history_.forget(watched_);
    watched_ = 0;
  }
  variables_top_ = variables_bytes_ = 0;
  arguments_.buffers = job_->memory->pointers();
}

void Worker::start_lanes() {
  const auto count = static_cast<uint32_t>(job_->threads.count());
  live_ = count;
  meeting_ = Meeting();
  simdgroups_ = (count + kSimdWidth - 1) / kSimdWidth;
  for (uint32_t i = 0; i < count; ++i) {
    Lane& lane = lanes_[i];
    lane.index = i;
    lane.state = LaneState::kReady;
    lane.steps = job_->step_budget;
    lane.context = make_context(stack_top(i), fiber);
  }
  for (uint32_t s = 0; s < simdgroups_; ++s) {
    const uint32_t lanes = std::min(count - s * kSimdWidth, kSimdWidth);
    uint8_t* order = order_ + s * kSimdWidth;
    for (uint32_t i = 0; i < lanes; ++i) order[i] = static_cast<uint8_t>(i);
    for (uint32_t i = lanes; job_->seed && i > 1; --i) std::swap(order[i - 1], order[next_random(random_) % i]);
    for (uint32_t i = 0; i < lanes; ++i) lanes_[s * kSimdWidth + order[i]].place = i;
    ready_[s] = lanes == kSimdWidth ? ~0u : (1u << lanes) - 1;
  }
}

bool Worker::run_group(uint64_t number) {
  const Size3& groups = job_->groups;
  group_number_ = number;
  group_ = {static_cast<uint32_t>(number % groups.x), static_cast<uint32_t>(number / groups.x % groups.y),
            static_cast<uint32_t>(number / (uint64_t{groups.x} * groups.y))};
  abandoned_ = false;
  group_start_ = ++now_;
  std::fill(std::begin(group_sync_), std::end(group_sync_), now_);
  for (auto& times : simdgroup_sync_) std::fill(std::begin(times), std::end(times), now_);
  place_arguments();
  start_lanes();
  counters.threadgroups++;
  counters.threads += job_->threads.count();
  while (live_ > 0 && !abandoned_) {
    const uint32_t first = job_->seed ? static_cast<uint32_t>(next_random(random_) % simdgroups_) : 0;
    for (uint32_t s = 0; s < simdgroups_ && !abandoned_; ++s) run_simdgroup((s + first) % simdgroups_);
    if (live_ > 0 && !abandoned_ && !release_barrier()) abandoned_ = true;
  }
  counters.threadgroup_memory = std::max<uint64_t>(counters.threadgroup_memory, variables_bytes_);
  if (locality) locality->end_group();
  if (!abandoned_) return true;
  complete = false;
  clean_stacks();
  return ++abandoned_groups_ < kMaxAbandoned && !expired_;
}

// Runs its lanes until all wait at a barrier of the threadgroup or have returned.
bool Worker::run_simdgroup(uint32_t simdgroup) {
  running_simdgroup_ = simdgroup;
  if (ready_[simdgroup] == 0) return false;
  lane_ = &root_;
  wait();
  return true;
}

void Worker::jump(Lane* to) {
  Lane* from = lane_;
  lane_ = to;
  metal_on_cpu_switch(&from->context, to->context);
}

// Lets the next lane run; returns when this one may go on. Without another lane the waiting collective is computed here.
void Worker::wait() {
  Lane* self = lane_;
  const uint32_t s = running_simdgroup_;
  do {
    if (ready_[s] != 0) {
      const uint32_t place = static_cast<uint32_t>(__builtin_ctz(ready_[s]));
      ready_[s] &= ready_[s] - 1;
      Lane* next = &lanes_[s * kSimdWidth + order_[s * kSimdWidth + place]];
      if (next != self) jump(next);
      return;
    }
  } while (resolve(s));
  if (self != &root_) jump(&root_);
}

void Worker::make_ready(uint32_t simdgroup, uint32_t lanes) {
  Lane* const first = &lanes_[simdgroup * kSimdWidth];
  uint32_t places = job_->seed ? 0 : lanes;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    Lane& lane = first[__builtin_ctz(rest)];
    lane.state = LaneState::kReady;
    if (job_->seed) places |= 1u << lane.place;
  }
  ready_[simdgroup] |= places;
}

// Computes the collective that comes first in the source among those that lanes wait at: the others will get there, or have
// gone ahead. False when no lane waits at one.
bool Worker::resolve(uint32_t simdgroup) {
  if (meeting_.lanes == 0) return false;
  Lane* const lanes = &lanes_[simdgroup * kSimdWidth];
  Lane* first = &lanes[__builtin_ctz(meeting_.lanes)];
  uint32_t active = meeting_.lanes;
  if (meeting_.mixed) {
    for (uint32_t rest = meeting_.lanes; rest; rest &= rest - 1) {
      Lane& lane = lanes[__builtin_ctz(rest)];
      if (lane.site.before(first->site)) first = &lane;
    }
    active = 0;
    for (uint32_t rest = meeting_.lanes; rest; rest &= rest - 1) {
      const int i = __builtin_ctz(rest);
      if (lanes[i].site.same(first->site) && lanes[i].resolve == first->resolve) active |= 1u << i;
    }
  }
  Lane* const self = lane_;
  site_ = first;
  if (job_->checked) check_participants(*first, active);
  note_collective(*first, simdgroup);
  if (first->resolve) {
    lane_ = first;  // findings of the computation are this lane's
    first->resolve(meeting_.arguments, active);
    lane_ = self;
  }
  meeting_.lanes &= ~active;
  if (meeting_.lanes == 0) meeting_.mixed = false;
  make_ready(simdgroup, active);
  return true;
}

void Worker::note_collective(const Lane& site, uint32_t simdgroup) {
  switch (site.kind) {
    case msl::kBarrier:
      synchronize(site.flags, simdgroup, 1, false);
      break;
    case msl::kMatrixMultiply:
      counters.matrix_multiplies++;
      break;
    case msl::kTensorOperation:
      note_tensor_operation(simdgroup * kSimdWidth, kSimdWidth);
      break;
    default:
      break;
  }
}

// Reductions are over the lanes that are active, and shuffles look at their source lane themselves. But lanes that are
// elsewhere in the shader, and will come back, are active or not as the hardware likes.
void Worker::check_participants(Lane& site, uint32_t active) {
  const auto here = static_cast<uint32_t>(__builtin_popcount(active));
  const uint32_t begin = site.index / kSimdWidth * kSimdWidth;
  const uint32_t lanes = std::min(static_cast<uint32_t>(job_->threads.count()) - begin, kSimdWidth);
  uint32_t returned = 0;
  for (uint32_t i = 0; i < lanes; ++i) returned += lanes_[begin + i].state == LaneState::kDone;
  const char* kind = nullptr;
  uint32_t needed = lanes;
  if (site.kind == msl::kMatrixMultiply)
    kind = "divergent-matrix", needed = kSimdWidth;
  else if (site.kind == msl::kBarrier)
    kind = "divergent-simdgroup-barrier";
  else if (site.kind == msl::kTensorOperation)
    kind = "divergent-tensor-operation", needed = kSimdWidth;
  else if (site.kind == msl::kReduction)
    kind = "divergent-reduction", needed = lanes - returned;
  if (!kind || here == needed) return;
  Lane* const self = lane_;
  lane_ = &site;
  if (Finding* f = report(kind, collective_place())) {
    f->message = "is reached by only " + std::to_string(here) + " of " + std::to_string(needed) + " lanes" +
                 (needed == kSimdWidth && needed != lanes ? ", and needs all" : "");
  }
  lane_ = self;
}

// Threads `first` and on have met at it; it orders no accesses.
void Worker::note_tensor_operation(uint32_t first, uint32_t count) {
  const Lane& lane = lanes_[first];
  counters.tensor_multiply_adds += lane.operation->multiply_adds;
  for (uint32_t i = first + 1; i < first + count; ++i) {
    if (!lanes_[i].site.same(lane.site) || std::memcmp(lanes_[i].operation, lane.operation, sizeof *lane.operation) == 0)
      continue;
    if (Finding* f = report("not-uniform", Where::place(lane.site.file, lane.site.line)))
      f->message = "the threads pass different operands";
    return;
  }
}

// Accesses before this are ordered with those after it, in the memories that the flags name.
void Worker::synchronize(uint32_t flags, uint32_t first, uint32_t count, bool group) {
  now_++;
  for (int space = 0; space < 2; ++space) {
    if (!(flags & (space == 0 ? 1u : 2u))) continue;
    if (group) group_sync_[space] = now_;
    for (uint32_t s = first; s < first + count; ++s) simdgroup_sync_[space][s] = now_;
  }
}

// All threads must stand at the same barrier, or operation on tensors.
bool Worker::release_barrier() {
  const auto count = static_cast<uint32_t>(job_->threads.count());
  const Lane& first = lanes_[0];
  for (uint32_t i = 0; i < count; ++i) {
    const Lane& lane = lanes_[i];
    if (lane.state != LaneState::kBarrier || !lane.site.same(first.site) || lane.site.file != first.site.file) {
      report_divergent_barrier();
      return false;
    }
  }
  if (first.kind == msl::kTensorOperation) {
    note_tensor_operation(0, count);
  } else {
    counters.threadgroup_barriers++;
    synchronize(first.flags, 0, simdgroups_, true);
  }
  for (uint32_t s = 0; s < simdgroups_; ++s) {
    const uint32_t lanes = std::min(count - s * kSimdWidth, kSimdWidth);
    make_ready(s, lanes == kSimdWidth ? ~0u : (1u << lanes) - 1);
  }
  return true;
}

void Worker::report_divergent_barrier() {
  const auto count = static_cast<uint32_t>(job_->threads.count());
  std::map<std::pair<uint32_t, bool>, uint32_t> where;  // line, returned: threads
  Lane* at = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    Lane& lane = lanes_[i];
    const bool done = lane.state == LaneState::kDone;
    where[{done ? 0 : lane.site.line, done}]++;
    if (!done && (!at || lane.site.line < at->site.line)) at = &lane;
  }
  std::string text;
  for (const auto& [place, threads] : where) {
    text += " " + std::to_string(threads) +
            (place.second ? " have returned," : " wait at line " + std::to_string(place.first) + ",");
  }
  text.pop_back();
  lane_ = at;
  const bool tensors = at && at->kind == msl::kTensorOperation;
  if (Finding* f = report(tensors ? "divergent-tensor-operation" : "divergent-barrier",
                          at ? Where::place(at->site.file, at->site.line) : Where()))
    f->message = std::string("not all threads ") + (tensors ? "take part in the operation:" : "reach the same barrier:") + text;
  lane_ = &root_;
}

void Worker::wait_at_barrier(uint32_t flags, Site site) {
  Lane& lane = *lane_;
  lane.state = LaneState::kBarrier;
  lane.kind = msl::kBarrier, lane.flags = flags, lane.site = site;
  wait();
}

void Worker::wait_at_tensor_operation(uint32_t simdgroups, const msl::TensorOperation& operation, void* argument,
                                      msl::Resolve resolver, Site site) {
  Lane& lane = *lane_;
  lane.operation = &operation;
  if (simdgroups == 1) return wait_at_collective(msl::kTensorOperation, argument, resolver, site);
  if (job_->threads.count() != simdgroups * kSimdWidth) {
    if (Finding* f = report("divergent-tensor-operation", Where::place(site.file, site.line))) {
      f->message = "is for " + std::to_string(simdgroups * kSimdWidth) + " threads; the threadgroup has " +
                   std::to_string(job_->threads.count());
    }
    abandon();
  }
  lane.state = LaneState::kBarrier;
  lane.kind = msl::kTensorOperation, lane.site = site;
  wait();
}

void Worker::wait_at_simdgroup_barrier(uint32_t flags, Site site) {
  lane_->flags = flags;
  wait_at_collective(msl::kBarrier, nullptr, nullptr, site);
}

void Worker::wait_at_collective(uint32_t kind, void* argument, msl::Resolve resolver, Site site) {
  Lane& lane = *lane_;
  lane.state = LaneState::kCollective;
  lane.kind = static_cast<uint8_t>(kind), lane.resolve = resolver, lane.site = site;
  if (meeting_.lanes == 0)
    meeting_.site = site, meeting_.resolve = resolver;
  else
    meeting_.mixed = meeting_.mixed || !meeting_.site.same(site) || meeting_.resolve != resolver;
  const uint32_t at = lane.index % kSimdWidth;
  meeting_.lanes |= 1u << at;
  meeting_.arguments[at] = argument;
  wait();
}

void Worker::abandon() {
  abandoned_ = true;
  lane_->state = LaneState::kDone;
  jump(&root_);
  __builtin_unreachable();
}

void add(BufferCounters& to, const BufferCounters& from) {
  to.bytes_read += from.bytes_read, to.bytes_written += from.bytes_written;
  to.reads += from.reads, to.writes += from.writes;
  to.unique_bytes_read += from.unique_bytes_read;
  to.unique_lines += from.unique_lines;
  to.simdgroup_lines += from.simdgroup_lines;
}

// Frames that will never return have left their redzones behind.
void Worker::clean_stacks() { std::memset(stack_shadow_, 0, kStack / 8 * job_->threads.count()); }

}  // namespace metal_on_cpu
