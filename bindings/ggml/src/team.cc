#include "team.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace marlin_ggml {
namespace {

std::atomic<uint32_t> width{1};

// Of the calling thread. A thread inside of a task has a team without helpers, which runs tasks of
// tasks where they are.
thread_local Team* current = nullptr;
thread_local bool inside_a_task = false;

/// Between two looks at what another thread writes soon. A thread that waits longer lets others
/// have the processor, which the one that it waits for may need.
class Pause {
 public:
  void wait() {
    if (++looks_ % 2048 == 0) return std::this_thread::yield();
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
  }

 private:
  uint32_t looks_ = 0;
};

void run_here(uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
  for (uint32_t i = 0; i < tasks; ++i) task(user, i);
}

void run_on_new_threads(uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
  std::atomic<uint32_t> next{0};
  const auto work = [&] {
    inside_a_task = true;
    for (uint32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) task(user, i);
    inside_a_task = false;
  };
  std::vector<std::thread> threads;
  try {
    for (uint32_t i = 1; i < std::min(width.load(), tasks); ++i) threads.emplace_back(work);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): as many as there are
  }
  work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Team::Member::Member(Team* team) : before_(current) { current = team; }
Team::Member::~Member() { current = before_; }

void Team::set_width(uint32_t threads) { width = std::max(threads, 1u); }

void Team::parallel_for(void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
  if (inside_a_task || tasks == 1) return run_here(tasks, task, user);
  if (current == nullptr) return run_on_new_threads(tasks, task, user);
  current->run(tasks, task, user);
}

bool Team::run_one() {
  uint64_t taken = taken_.load(std::memory_order_acquire);
  do {
    if (static_cast<uint32_t>(taken) >= taken >> 32) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
  inside_a_task = true;
  task_(user_, static_cast<uint32_t>(taken));
  inside_a_task = false;
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

void Team::run(uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
  task_ = task;
  user_ = user;
  done_.store(0, std::memory_order_relaxed);
  taken_.store(uint64_t{tasks} << 32, std::memory_order_release);
  while (run_one()) {
  }
  for (Pause pause; done_.load(std::memory_order_acquire) != tasks;) pause.wait();
}

void Team::help() {
  for (Pause pause; !over_.load(std::memory_order_acquire);) {
    if (!run_one()) pause.wait();
  }
}

}  // namespace marlin_ggml
