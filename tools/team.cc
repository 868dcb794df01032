#include "team.h"

#include <atomic>
#include <chrono>
#include <thread>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "threads.h"

namespace metal_marlin::tools {
namespace {

#if defined(__linux__)
/// Binds the calling thread to the index-th CPU of its mask until destroyed. macOS has no such
/// call, so threads are not bound there.
class Pin {
 public:
  Pin(const cpu_set_t& allowed, unsigned index) : allowed_(allowed) {
    const int count = CPU_COUNT(&allowed);
    if (count == 0) return;
    int left = static_cast<int>(index) % count;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      pthread_setaffinity_np(pthread_self(), sizeof one, &one);
      return;
    }
  }
  ~Pin() { pthread_setaffinity_np(pthread_self(), sizeof allowed_, &allowed_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  cpu_set_t allowed_;
};
using CpuSet = cpu_set_t;
CpuSet allowed_cpus() {
  CpuSet set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}
#else
struct CpuSet {};
struct Pin {
  Pin(const CpuSet&, unsigned) {}
};
CpuSet allowed_cpus() { return {}; }
#endif

}  // namespace

double run_team(unsigned threads, const std::function<void(unsigned)>& warm_up,
                const std::function<void(unsigned)>& body) {
  using Clock = std::chrono::steady_clock;
  std::atomic<unsigned> ready = 0, finished = 0;
  const CpuSet allowed = allowed_cpus();
  Clock::time_point start, stop;
  const auto work = [&](unsigned t) {
    const Pin pin(allowed, t);
    warm_up(t);
    ++ready;
    // The threads spin, because a wake-up takes as long as the measured work. They yield for
    // machines with fewer CPUs.
    while (ready.load(std::memory_order_acquire) < threads) std::this_thread::yield();
    if (t == 0) start = Clock::now();
    body(t);
    ++finished;
    if (t != 0) return;
    while (finished.load(std::memory_order_acquire) < threads) std::this_thread::yield();
    stop = Clock::now();
  };
  Threads others;
  for (unsigned t = 1; t < threads; ++t) others.start(work, t);
  work(0);
  others.join();
  return std::chrono::duration<double>(stop - start).count();
}

}  // namespace metal_marlin::tools
