// The threads of ggml's CPU backend, lent to the library while a node of a graph runs on them.
#pragma once

#include <atomic>
#include <cstdint>

namespace marlin_ggml {

/// One product's threads. ggml calls a node on all its threads at once: the first leads, and the
/// others help until the leader is through.
class Team {
 public:
  /// Before any thread has entered.
  void open() { over_.store(false, std::memory_order_relaxed); }
  /// Runs `work`, whose tasks the helpers share.
  template <typename Work>
  void lead(Work&& work) {
    const Member member(this);
    work();
    over_.store(true, std::memory_order_release);
  }
  /// Runs tasks of the leader until it is through.
  void help();

  /// marlin_context_desc::parallel_for: on the team that the calling thread leads; on threads of
  /// its own if it leads none; on the calling thread inside of a task.
  static void parallel_for(void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user);
  /// The threads that parallel_for starts outside of a team, with the caller.
  static void set_width(uint32_t threads);

 private:
  /// Makes a team the calling thread's while it lives.
  class Member {
   public:
    explicit Member(Team* team);
    ~Member();
    Member(const Member&) = delete;

   private:
    Team* before_;
  };

  void run(uint32_t tasks, void (*task)(void*, uint32_t), void* user);
  bool run_one();

  // The number of tasks (high half) and of those taken. Who raises it has taken a task of the
  // current job, and the job lasts until that task is done: task_ and user_ are then stable.
  alignas(64) std::atomic<uint64_t> taken_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  std::atomic<bool> over_{false};
  void (*task_)(void*, uint32_t) = nullptr;
  void* user_ = nullptr;
};

}  // namespace marlin_ggml
