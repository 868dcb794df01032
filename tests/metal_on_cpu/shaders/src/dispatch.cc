// Dispatch: binds, refuses what Metal would refuse, runs the threadgroups and gathers the report.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <numeric>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "runtime/faults.h"
#include "state.h"

namespace metal_on_cpu {
namespace {

constexpr double kTimeLimit = 60;

std::string size_text(const Size3& s) {
  return std::to_string(s.x) + " x " + std::to_string(s.y) + " x " + std::to_string(s.z);
}

// Subnormal floats are taken and given as zero. Conversions between half and float ignore this on x86, as on the GPU.
class FlushToZero {
 public:
#if defined(__x86_64__)
  explicit FlushToZero(bool on) : before_(_mm_getcsr()) {
    constexpr unsigned kBoth = 0x8040;  // FTZ and DAZ
    _mm_setcsr(on ? before_ | kBoth : before_ & ~kBoth);
  }
  ~FlushToZero() { _mm_setcsr(before_); }
#else
  explicit FlushToZero(bool) {}
  ~FlushToZero() {}
#endif
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  [[maybe_unused]] unsigned before_ = 0;
};

// Visits 0 .. n - 1 in an order that the seed chooses: a stride without a common divisor with n.
class GroupOrder {
 public:
  GroupOrder(uint64_t n, uint64_t seed) : n_(n) {
    if (seed == 0 || n < 3) return;
    uint64_t state = seed;
    start_ = next_random(state) % n;
    stride_ = 1 + next_random(state) % std::min<uint64_t>(n - 1, UINT32_MAX);
    while (std::gcd(stride_, n) != 1) stride_ = stride_ % (n - 1) + 1;
  }
  uint64_t operator()(uint64_t i) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(i) * stride_ + start_) % n_);
  }

 private:
  uint64_t n_, start_ = 0, stride_ = 1;
};

double cpu_seconds() {  // of the calling thread
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// One for each host thread that has run shaders; its stacks are worth keeping.
Worker& this_threads_worker() {
  static thread_local Worker worker;
  return worker;
}

class Run {
 public:
  explicit Run(const DispatchedWork& job) : job_(job) {}

  Report go() {
    const FaultCatcher faults;
    const auto start = std::chrono::steady_clock::now();
    Report report;
    work(report);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!missing_ && job_.reports) report.findings = this_threads_worker().log.take(job_.image->path());
    return report;
  }
  /// What the system did not give, or nullptr.
  const char* missing() const { return missing_; }

 private:
  void work(Report& report) {
    Worker& worker = this_threads_worker();
    if (!worker) return void(missing_ = "memory for the threads' stacks");
    const double before = cpu_seconds();
    const SignalStack stack;
    const TimeLimit limit(job_.time_limit);
    if (!limit) return void(missing_ = "a timer for the time limit");
    const FlushToZero flush(job_.flush_to_zero);
    std::unique_ptr<Locality> locality;
    if (job_.counted) locality = std::make_unique<Locality>();
    worker.begin(job_);
    worker.locality = locality.get();
    const GroupOrder order(job_.groups.count(), job_.seed);
    for (uint64_t i = 0; i < job_.groups.count() && worker.run_group(order(i)); ++i) {
    }
    worker.end();
    worker.locality = nullptr;
    if (locality) count(worker, *locality);
    report.counters = std::move(worker.counters);
    report.cpu_seconds = cpu_seconds() - before;
    report.complete = worker.complete;
  }

  void count(Worker& worker, const Locality& locality) const {
    for (const auto& [buffer, lines] : locality.lines()) worker.counters.buffers[buffer].simdgroup_lines += lines;
    for (const Allocation& a : job_.memory->allocations()) {
      BufferCounters& b = worker.counters.buffers[a.index];
      for (size_t i = 0; i < a.read.size(); ++i) {  // one word of bits is one 64-byte line
        b.unique_bytes_read += static_cast<uint64_t>(__builtin_popcountll(a.read[i]));
        b.unique_lines += (a.read[i] | a.written[i]) != 0;
      }
    }
    for (size_t i = 0; i < worker.block_counts.size(); ++i) {
      for (int k = 0; k < kOperationCount; ++k) {
        if (const uint64_t n = worker.block_counts[i] * job_.image->blocks()[i][k])
          worker.counters.operations[kOperationNames[k]] += n;
      }
    }
  }

  const DispatchedWork& job_;
  const char* missing_ = nullptr;
};

// Buffers that the kernel needs and the dispatch does not give.
std::string missing_buffers(const msl::Kernel& kernel, const std::map<int, BufferBinding>& buffers) {
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    const msl::Param& p = kernel.params[i];
    if (p.kind == msl::kBuiltinParam || !msl::exists(p)) continue;
    const std::string name = "'" + std::string(p.name) + "' [[buffer(" + std::to_string(p.index) + ")]]";
    const auto found = buffers.find(p.index);
    if (found == buffers.end()) return "no buffer is given for " + name;
    const size_t bytes = std::max(found->second.bytes, found->second.own.size());
    if (bytes < p.reference) {
      return "the buffer given for " + name + " has " + std::to_string(bytes) + " bytes; the type referred to needs " +
             std::to_string(p.reference);
    }
  }
  return {};
}

// A parameter that is only read makes its buffer read-only, unless another parameter writes to the same one.
void apply_constness(const msl::Kernel& kernel, std::map<int, BufferBinding>& buffers) {
  for (auto& [index, b] : buffers) {
    bool used = false, written = false;
    for (uint32_t i = 0; i < kernel.param_count; ++i) {
      const msl::Param& p = kernel.params[i];
      if (p.kind != msl::kBufferParam || p.index != index) continue;
      used = true, written = written || !p.read_only;
    }
    b.writable = b.writable && (!used || written);
  }
}

}  // namespace

Dispatch::Dispatch(std::shared_ptr<State> state) : state_(std::move(state)) {}

Dispatch& Dispatch::buffer(int index, void* data, size_t bytes) {
  if (index < 0 || index >= kMaxBuffers) {
    state_->wrong = "buffer index " + std::to_string(index) + " is not in 0..30";
  } else {
    BufferBinding b;
    b.data = static_cast<std::byte*>(data), b.bytes = bytes;
    state_->buffers[index] = std::move(b);
  }
  return *this;
}
Dispatch& Dispatch::buffer(int index, const void* data, size_t bytes) {
  buffer(index, const_cast<void*>(data), bytes);
  if (const auto b = state_->buffers.find(index); b != state_->buffers.end()) b->second.writable = false;
  return *this;
}
Dispatch& Dispatch::output(int index, void* data, size_t bytes) {
  buffer(index, data, bytes);
  if (const auto b = state_->buffers.find(index); b != state_->buffers.end()) b->second.undefined = true;
  return *this;
}
Dispatch& Dispatch::bytes(int index, const void* data, size_t size) {
  buffer(index, static_cast<void*>(nullptr), 0);
  if (const auto b = state_->buffers.find(index); b != state_->buffers.end()) {
    const auto* from = static_cast<const std::byte*>(data);
    b->second.own.assign(from, from + size);
    b->second.writable = false;
  }
  return *this;
}
Dispatch& Dispatch::resident(void* data, size_t bytes) {
  if (bytes != 0) state_->resident.push_back({static_cast<std::byte*>(data), bytes});
  return *this;
}
Dispatch& Dispatch::groups(uint32_t x, uint32_t y, uint32_t z) {
  state_->groups = {x, y, z};
  return *this;
}
Dispatch& Dispatch::threads(uint32_t x, uint32_t y, uint32_t z) {
  state_->threads = {x, y, z};
  return *this;
}
Dispatch& Dispatch::check(bool on) {
  state_->checked = on;
  return *this;
}
Dispatch& Dispatch::count(bool on) {
  state_->counted = on;
  return *this;
}
Dispatch& Dispatch::publish_fragments(bool on) {
  state_->hides_fragments = !on;
  return *this;
}
Dispatch& Dispatch::seed(uint64_t seed) {
  state_->seed = seed;
  return *this;
}
Dispatch& Dispatch::flush_to_zero(bool on) {
  state_->flush_to_zero = on;
  return *this;
}
Dispatch& Dispatch::step_budget(uint64_t blocks) {
  state_->step_budget = std::max<uint64_t>(blocks, 1);
  return *this;
}

Dispatch& Dispatch::time_limit(double seconds) {
  state_->time_limit = seconds;
  return *this;
}

// What does not depend on the image: sizes and limits.
static std::string refuse_shape(Dispatch::State& s) {
  if (!s.wrong.empty()) return s.wrong;
  const uint64_t threads = s.threads.count();
  if (threads == 0) return "the threadgroup has no threads (" + size_text(s.threads) + ")";
  if (threads > kMaxThreads) return size_text(s.threads) + " threads in a threadgroup; at most 1024 are possible";
  if (s.groups.count() == 0) return "the grid is empty (" + size_text(s.groups) + ")";
  for (const auto& [index, b] : s.buffers) {
    if (!b.data && b.own.empty()) return "buffer(" + std::to_string(index) + ") has no memory";
  }
  return {};
}

Result<Report> Dispatch::run() {
  State& s = *state_;
  const Kernel::State& k = *s.kernel;
  const std::string prefix = k.library->name + ": kernel '" + k.name + "': ";
  const auto& names = k.library->source.kernels;
  if (std::find(names.begin(), names.end(), k.name) == names.end()) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return Error{prefix + "there is no such kernel; there are: " + (all.empty() ? "none" : all)};
  }
  if (std::string wrong = refuse_shape(s); !wrong.empty()) return Error{prefix + wrong};
  const bool checked = s.checked || s.counted;
  const GivenConstants given(k.values);
  auto loaded = k.library->image(k.name, k.constants, checked);
  if (!loaded) return loaded.error();
  const Image& image = *loaded.value();
  const msl::Kernel* kernel = image.find(k.name);
  if (!kernel) return Error{prefix + "is missing in its image"};
  if (std::string wrong = missing_buffers(*kernel, s.buffers); !wrong.empty()) return Error{prefix + wrong};
  if (kernel->max_threads && s.threads.count() > kernel->max_threads) {
    return Error{prefix + std::to_string(s.threads.count()) +
                 " threads in a threadgroup; [[max_total_threads_per_threadgroup]] is " + std::to_string(kernel->max_threads)};
  }
  std::map<int, BufferBinding> buffers = s.buffers;
  if (checked) apply_constness(*kernel, buffers);
  Memory memory;
  if (std::string wrong = memory.prepare(buffers, s.resident, checked, s.counted); !wrong.empty()) return Error{prefix + wrong};
  DispatchedWork job;
  job.image = &image, job.kernel = kernel, job.memory = &memory;
  job.groups = s.groups, job.threads = s.threads;
  job.checked = checked, job.counted = s.counted, job.flush_to_zero = s.flush_to_zero;
  job.hides_fragments = s.hides_fragments;
  job.seed = s.seed, job.step_budget = s.step_budget, job.reports = s.reports;
  job.time_limit = s.time_limit.value_or(kTimeLimit);
  Run run(job);
  Report report = run.go();
  if (run.missing()) return Error{prefix + "cannot get " + run.missing()};
  memory.finish();
  return report;
}

}  // namespace metal_on_cpu
