// A backend's own threads, and the host's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/backend.h"
#include "core/process_stamp.h"
#include "core/tasks.h"

namespace metal_marlin {

/// Persistent threads that the first run() starts and the destructor joins. Tasks must not throw.
/// They run under FpEnvironment, as the caller of run() does.
///
/// run() may be called from several threads and from a task: whoever finds the pool busy runs all
/// its tasks itself, so nobody waits for a stranger's work. When threads cannot be created there
/// are fewer of them. After fork() the child has none of the parent's threads; its first run()
/// starts new ones, even when the parent's pool was busy at that moment.
class ThreadPool final : public TaskRunner {
 public:
  /// A bound on what a descriptor can ask for; more threads than this help no product.
  static constexpr uint32_t kMaxThreads = 1024;

  /// `threads` counts the caller of run(): 1 never starts any. 0 counts as 1.
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
  // The process that is inside run() with the crew, or 0. A foreign stamp means that the parent was
  // inside when it forked.
  std::atomic<uint64_t> holder_{0};
  // Only the holder touches what follows.
  Crew* crew_ = nullptr;
  uint64_t crew_process_ = 0;
};

/// Tasks run by the host's parallel_for, under FpEnvironment on whatever thread that chooses.
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

/// What the options ask for: the host's threads, or a pool of options.threads, or of all that the
/// process may use.
std::unique_ptr<TaskRunner> make_task_runner(const BackendOptions& options);

}  // namespace metal_marlin
