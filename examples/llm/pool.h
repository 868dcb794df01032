// The program's threads: attention runs on them, and the library's products too
// (marlin_context_desc::parallel_for), so that two pools do not fight for the processors.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace llm {

class Pool {
 public:
  /// The caller of run is one of them; 0: as many as there are processors.
  explicit Pool(unsigned threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// task(user, i) for every i in [0, tasks), returns when all are done. One caller at a time.
  void run(uint32_t tasks, void (*task)(void* user, uint32_t index), void* user);
  template <class Body>
  void run(uint32_t tasks, const Body& body) {
    run(
        tasks, [](void* user, uint32_t i) { (*static_cast<const Body*>(user))(i); },
        const_cast<Body*>(&body));
  }
  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

 private:
  struct OpenTasks {
    uint32_t tasks;
    void (*task)(void*, uint32_t);
    void* user;
    std::atomic<uint32_t> next{0};
    void work() {
      for (uint32_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) task(user, i);
    }
  };
  void worker();

  std::mutex mutex_;
  std::condition_variable wake_, left_;
  std::atomic<uint64_t> round_{0};   // grows with every job, under mutex_
  OpenTasks* job_ = nullptr;         // the open one; a worker that comes too late finds none
  std::atomic<unsigned> inside_{0};  // workers that may still touch it; changes under mutex_
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace llm
