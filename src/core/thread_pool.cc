#include "core/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>

#include "base/system.h"
#include "core/fp_environment.h"
#include "core/usable_threads.h"

namespace metal_marlin {
namespace {

// A sleeping thread takes 5 to 50 us to wake. Token generation calls one product after another
// within this time, so a thread looks for work this long before it sleeps. It does not look longer,
// so that the host gets its processors back.
constexpr std::chrono::microseconds kSpinTime{60};
constexpr int kPausesPerLook = 64;  // between looks at the clock, which costs as much as a pause

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// Waits for `ready` without sleeping. Returns false if kSpinTime was not enough.
template <class Ready>
bool spin_until(const Ready& ready) {
  if (ready()) return true;
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void run_inline(uint32_t tasks, TaskRef task) {
  for (uint32_t i = 0; i < tasks; ++i) task(i);
}

}  // namespace

// A crew runs one job at a time. `state_` holds the number of the job, whether it is open, whether
// its caller sleeps, and how many workers are inside it. A worker enters by adding 1. It may use
// the job only if the same addition saw it open. The caller closes the job and then waits until no
// worker is inside, so the fields of a job never change under a worker, and a late worker finds the
// job closed and leaves. All steps are read-modify-writes of one word, so they are totally ordered.
class ThreadPool::Crew {
 public:
  /// Starts as many of the workers as the system allows, perhaps none.
  explicit Crew(uint32_t workers) noexcept : threads_(new(std::nothrow) system::Thread[workers]) {
    while (threads_ != nullptr && started_ < workers &&
           threads_[started_].start(&Crew::work, this)) {
      ++started_;
    }
  }

  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (uint32_t i = 0; i < started_; ++i) threads_[i].join();
  }

  /// Frees the memory of a parent's crew. Its threads do not exist in this process, so they are not
  /// joined, and destroying the condition variables would wait for them forever.
  static void forget(Crew* crew) {
    if (crew == nullptr) return;
    crew->threads_.reset();
    ::operator delete(crew, std::align_val_t{alignof(Crew)});
  }

  void run(uint32_t tasks, TaskRef task) {
    task_ = &task;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    state_.fetch_add(kNumberStep | kOpen);
    // A worker counts itself as asleep before its last look at state_. Therefore either the worker
    // sees the new number, or we see the sleeping worker here.
    if (sleepers_.load() != 0) {
      {
        const std::lock_guard lock(mutex_);
      }
      wake_.notify_all();
    }
    take_tasks();
    close();
  }

 private:
  static constexpr uint64_t kInside = 0xffff, kOpen = 1u << 16, kCallerSleeps = 1u << 17,
                            kNumberStep = 1u << 18;
  static_assert(kMaxThreads < kInside);

  static constexpr uint64_t number(uint64_t state) { return state / kNumberStep; }

  static void work(void* self) {
    const FpEnvironment environment;
    static_cast<Crew*>(self)->work_until_stopped();
  }

  void work_until_stopped() {
    uint64_t seen = 0;
    while (true) {
      const auto news = [&] { return stop_.load() || number(state_.load()) != seen; };
      if (!spin_until(news)) {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, news);
        sleepers_.fetch_sub(1);
      }
      if (stop_.load()) return;
      const uint64_t before = state_.fetch_add(1);
      seen = number(before);
      if ((before & kOpen) != 0) take_tasks();
      const uint64_t after = state_.fetch_sub(1) - 1;
      if ((after & kInside) == 0 && (after & kCallerSleeps) != 0) {
        {
          const std::lock_guard lock(mutex_);
        }
        done_.notify_one();
      }
    }
  }

  void take_tasks() {
    const TaskRef task = *task_;
    for (uint64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;)
      task(static_cast<uint32_t>(i));
  }

  void close() {
    state_.fetch_and(~kOpen);
    const auto empty = [&] { return (state_.load() & kInside) == 0; };
    if (spin_until(empty)) return;
    std::unique_lock lock(mutex_);
    state_.fetch_or(kCallerSleeps);
    done_.wait(lock, empty);
    state_.fetch_and(~kCallerSleeps);
  }

  // Each is on its own cache line: workers poll the first and write the second very often.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<uint64_t> next_{0};  // wide enough never to wrap past tasks_
  alignas(64) const TaskRef* task_ = nullptr;
  uint32_t tasks_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::unique_ptr<system::Thread[]> threads_;
  uint32_t started_ = 0;  // of threads_; used by the owner only
};

ThreadPool::ThreadPool(uint32_t threads) : threads_(std::clamp(threads, 1u, kMaxThreads)) {}

ThreadPool::~ThreadPool() {
  if (crew_process_ == process_.get()) {
    delete crew_;
  } else {
    Crew::forget(crew_);
  }
}

bool ThreadPool::take(uint64_t self) {
  uint64_t expected = holder_.load(std::memory_order_relaxed);
  return expected != self &&
         holder_.compare_exchange_strong(expected, self, std::memory_order_acquire);
}

ThreadPool::Crew* ThreadPool::crew(uint64_t self) {
  if (crew_process_ != self) {
    Crew::forget(crew_);
    crew_process_ = self;
    crew_ = new (std::nothrow) Crew(threads_ - 1);
  }
  return crew_;
}

void ThreadPool::run(uint32_t tasks, TaskRef task) {
  if (tasks <= 1 || threads_ == 1) return run_inline(tasks, task);
  const uint64_t self = process_.get();
  if (!take(self)) return run_inline(tasks, task);
  if (Crew* const workers = crew(self)) {
    workers->run(tasks, task);
  } else {
    run_inline(tasks, task);
  }
  holder_.store(0, std::memory_order_release);
}

void HostRunner::run(uint32_t tasks, TaskRef task) {
  if (tasks <= 1) return run_inline(tasks, task);
  const FpEnvironment environment;  // whatever the host's function leaves on this thread
  parallel_for_(
      user_, tasks,
      [](void* user, uint32_t index) {
        const FpEnvironment environment;
        (*static_cast<const TaskRef*>(user))(index);
      },
      &task);
}

uint32_t default_threads() { return std::min(usable_threads(), ThreadPool::kMaxThreads); }

std::unique_ptr<TaskRunner> make_task_runner(const BackendOptions& options) {
  const uint32_t threads = options.threads != 0 ? options.threads : default_threads();
  if (options.parallel_for != nullptr)
    return std::make_unique<HostRunner>(options.parallel_for, options.parallel_for_user, threads);
  return std::make_unique<ThreadPool>(threads);
}

}  // namespace metal_marlin
