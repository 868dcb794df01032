#include "dispatch/dispatch_data.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>

#include "dispatch/serial_thread.h"
#include "metal/checks.h"
#include "metal_test_hooks.h"

using Clock = std::chrono::steady_clock;

namespace metal_framework {
namespace {

std::atomic<long> unfinished_jobs{0};

}  // namespace

bool SerialThread::wait_until_idle(double seconds) {
  const Clock::time_point until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (unfinished_jobs != 0 && Clock::now() < until) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return unfinished_jobs == 0;
}

SerialThread::SerialThread() : thread_([state = state_] { loop(state); }) {}

SerialThread::~SerialThread() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  if (is_current())
    thread_.detach();
  else
    thread_.join();
}

void SerialThread::run(std::function<void()> job) {
  ++unfinished_jobs;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
  }
  state_->changed.notify_all();
}

void SerialThread::loop(const std::shared_ptr<State>& state) {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock<std::mutex> lock(state->mutex);
      state->changed.wait(lock, [&] { return state->stop || !state->jobs.empty(); });
      if (state->jobs.empty()) return;
      job = std::move(state->jobs.front());
      state->jobs.pop_front();
    }
    @autoreleasepool {
      job();
      job = nullptr;  // what it holds is released inside the pool
    }
    --unfinished_jobs;
  }
}

}  // namespace metal_framework

@implementation MOCDispatchData
- (void)dealloc {
  if (destructor != nil) destructor();
}
@end

dispatch_data_t dispatch_data_create(const void* bytes, size_t size, dispatch_queue_t queue, dispatch_block_t destructor) {
  MOCDispatchData* data = [[MOCDispatchData alloc] init];
  data->bytes = bytes;
  data->size = size;
  data->destructor = destructor;
  return data;
}

// --- what is to be done later: time passes as a test wants
// --------------------------------------------------------------------

namespace {

struct Later {
  std::mutex mutex;
  uint64_t now = 0;
  std::multimap<uint64_t, dispatch_block_t> blocks;
};
Later& later() {
  static Later* const all = new Later;
  return *all;
}

}  // namespace

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t nanoseconds) {
  const std::lock_guard<std::mutex> lock(later().mutex);
  return (when == DISPATCH_TIME_NOW ? later().now : when) + static_cast<uint64_t>(nanoseconds);
}

dispatch_queue_t dispatch_get_global_queue(intptr_t, uintptr_t flags) {
  if (flags != 0) metal_framework::find("out-of-range", "dispatch_get_global_queue: flags, which are reserved");
  return nil;
}

void dispatch_after(dispatch_time_t when, dispatch_queue_t, dispatch_block_t block) {
  const std::lock_guard<std::mutex> lock(later().mutex);
  later().blocks.emplace(when, block);
}

void metal_test_pass_time(double seconds) {
  std::unique_lock<std::mutex> lock(later().mutex);
  const uint64_t end = later().now + static_cast<uint64_t>(seconds * 1e9);
  while (!later().blocks.empty() && later().blocks.begin()->first <= end) {
    const auto first = later().blocks.extract(later().blocks.begin());
    later().now = first.key();
    lock.unlock();
    @autoreleasepool {
      first.mapped()();
    }
    lock.lock();
  }
  later().now = end;
}

namespace metal_framework {

void forget_later() {
  const std::lock_guard<std::mutex> lock(later().mutex);
  later().blocks.clear();
}

}  // namespace metal_framework

size_t metal_test_later_blocks(void) {
  const std::lock_guard<std::mutex> lock(later().mutex);
  return later().blocks.size();
}
