// The threads of a backend: its own, or the host's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/backend.h"
#include "core/process_stamp.h"
#include "core/tasks.h"

namespace metal_marlin {

/// Persistent threads, which the first run() starts and the destructor joins. Tasks must not throw.
/// They run under FpEnvironment, like the caller of run().
///
/// Several threads, and tasks, may call run(). A caller that finds the pool busy runs all its tasks
/// itself, so no caller waits for the work of another. If threads cannot be created, the pool has
/// fewer of them. After fork(), the child has none of the parent's threads; its first run() starts
/// new ones, even if the parent's pool was busy at that moment.
class ThreadPool final : public TaskRunner {
 public:
  /// The most threads that a descriptor can request. More threads than this help no product.
  static constexpr uint32_t kMaxThreads = 1024;

  /// `threads` includes the caller of run(), so 1 starts no thread. 0 counts as 1.
  explicit ThreadPool(uint32_t threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void run(uint32_t tasks, TaskRef task) override;
  uint32_t width() const override { return threads_; }

 private:
  class Crew;

  // `self` is the stamp of this process.
  bool take(uint64_t self);
  Crew* crew(uint64_t self);

  const uint32_t threads_;
  ProcessStamp process_;
  // The stamp of the process that is inside run() with the crew, or 0. A foreign stamp means that
  // the parent was inside when it forked.
  std::atomic<uint64_t> holder_{0};
  // Only the holder uses the following member.
  Crew* crew_ = nullptr;
  uint64_t crew_process_ = 0;
};

/// Runs tasks by the host's parallel_for, under FpEnvironment on the threads that the host chooses.
class HostRunner final : public TaskRunner {
 public:
  using ParallelFor = void (*)(void* user, uint32_t tasks, void (*task)(void*, uint32_t),
                               void* task_user);

  HostRunner(ParallelFor parallel_for, void* user, uint32_t width)
      : parallel_for_(parallel_for), user_(user), width_(width) {}
  void run(uint32_t tasks, TaskRef task) override;
  uint32_t width() const override { return width_; }

 private:
  ParallelFor parallel_for_;
  void* user_;
  uint32_t width_;
};

/// The threads of a runner whose options name no number.
uint32_t default_threads();

/// Makes the runner that the options request: the host's threads, a pool of options.threads, or a
/// pool of as many threads as the process may use.
std::unique_ptr<TaskRunner> make_task_runner(const BackendOptions& options);

}  // namespace metal_marlin
