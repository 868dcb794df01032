#include "dispatch/dispatch_data.h"

#include <atomic>
#include <chrono>

#include "dispatch/serial_thread.h"

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
