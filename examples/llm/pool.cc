#include "pool.h"

#include <signal.h>

#include <algorithm>

namespace llm {
namespace {

// A decoder gives a job about every 50 microseconds: waiting for it awake this many looks is
// cheaper than going to sleep.
constexpr int kLooks = 4000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Pool::Pool(unsigned threads) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  // Threads inherit the mask: signals are the main thread's, whose waiting they are to end.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this] { worker(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    ++round_;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::run(uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
  OpenTasks job{tasks, task, user};
  if (tasks > 1 && !workers_.empty()) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      ++round_;
    }
    wake_.notify_all();
  }
  job.work();
  {
    const std::lock_guard lock(mutex_);
    job_ = nullptr;
  }
  for (int look = 0; look < kLooks && inside_.load(std::memory_order_acquire) != 0; ++look) relax();
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return inside_ == 0; });
}

void Pool::worker() {
  for (uint64_t seen = 0;;) {
    for (int look = 0; look < kLooks && round_.load(std::memory_order_relaxed) == seen; ++look)
      relax();
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return round_ != seen; });
    seen = round_;
    if (stop_) return;
    OpenTasks* const job = job_;
    if (!job) continue;
    ++inside_;
    lock.unlock();
    job->work();
    lock.lock();
    if (--inside_ == 0) left_.notify_one();
  }
}

}  // namespace llm
