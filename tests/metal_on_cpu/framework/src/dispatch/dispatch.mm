#include <dispatch/dispatch.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "dispatch/serial_thread.h"
#include "runtime/object.h"

using metal_framework::SerialThread;
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

@interface MOCDispatchQueue : NSObject <OS_dispatch_queue> {
 @public
  std::string label;
  std::unique_ptr<SerialThread> thread;
}
@end
@implementation MOCDispatchQueue
@end

@interface MOCDispatchConcurrent : NSObject <OS_dispatch_queue_attr>
@end
@implementation MOCDispatchConcurrent
@end

// A count that may be waited for; groups and semaphores are both one.
@interface MOCDispatchCounter : NSObject <OS_dispatch_semaphore, OS_dispatch_group> {
 @public
  std::mutex mutex;
  std::condition_variable changed;
  intptr_t count;
}
@end
@implementation MOCDispatchCounter
@end

@interface MOCDispatchData : NSObject <OS_dispatch_data> {
 @public
  const void* bytes;
  size_t size;
  dispatch_block_t destructor;
}
@end
@implementation MOCDispatchData
- (void)dealloc {
  if (destructor != nil) destructor();
}
@end

namespace {

MOCDispatchQueue* make_queue(const char* label) {
  MOCDispatchQueue* queue = [[MOCDispatchQueue alloc] init];
  queue->label = label == nullptr ? "" : label;
  queue->thread = std::make_unique<SerialThread>();
  return queue;
}

// A thread of a library's own lives as long as the process: it is left alone at the end, whatever it waits for.
MOCDispatchQueue* global_queue() {
  static MOCDispatchQueue* const queue = [] {
    MOCDispatchQueue* made = make_queue("global");
    metal_framework::make_immortal(made);
    return made;
  }();
  return queue;
}

// Nanoseconds of the steady clock.
uint64_t now() { return static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count()); }

template <class Ready>
bool wait(MOCDispatchCounter* counter, std::unique_lock<std::mutex>& lock, dispatch_time_t deadline, Ready ready) {
  if (deadline == DISPATCH_TIME_FOREVER) {
    counter->changed.wait(lock, ready);
    return true;
  }
  const Clock::time_point until{std::chrono::nanoseconds(deadline)};
  return counter->changed.wait_until(lock, until, ready);
}

}  // namespace

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t nanoseconds) {
  if (when == DISPATCH_TIME_FOREVER) return when;
  return (when == DISPATCH_TIME_NOW ? now() : when) + static_cast<uint64_t>(nanoseconds);
}

dispatch_queue_t dispatch_queue_create(const char* label, dispatch_queue_attr_t attributes) { return make_queue(label); }
dispatch_queue_t dispatch_get_global_queue(intptr_t identifier, uintptr_t flags) { return global_queue(); }
dispatch_queue_attr_t dispatch_queue_attr_concurrent(void) { return [[MOCDispatchConcurrent alloc] init]; }
const char* dispatch_queue_get_label(dispatch_queue_t queue) { return ((MOCDispatchQueue*)queue)->label.c_str(); }

void dispatch_async(dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_block_t kept = [block copy];
  ((MOCDispatchQueue*)queue)->thread->run([kept, queue] {
    kept();
    (void)queue;  // lives until here
  });
}

void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block) {
  dispatch_semaphore_t done = dispatch_semaphore_create(0);
  dispatch_async(queue, ^{
    block();
    dispatch_semaphore_signal(done);
  });
  dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER);
}

void dispatch_once(dispatch_once_t* once, dispatch_block_t block) {
  static std::recursive_mutex* const mutex = new std::recursive_mutex;
  if (__atomic_load_n(once, __ATOMIC_ACQUIRE) == ~0l) return;
  const std::lock_guard<std::recursive_mutex> lock(*mutex);
  if (*once == ~0l) return;
  block();
  __atomic_store_n(once, ~0l, __ATOMIC_RELEASE);
}

dispatch_semaphore_t dispatch_semaphore_create(intptr_t value) {
  MOCDispatchCounter* counter = [[MOCDispatchCounter alloc] init];
  counter->count = value;
  return counter;
}

intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t deadline) {
  MOCDispatchCounter* counter = (MOCDispatchCounter*)semaphore;
  std::unique_lock<std::mutex> lock(counter->mutex);
  if (!wait(counter, lock, deadline, [&] { return counter->count > 0; })) return 1;
  --counter->count;
  return 0;
}

intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore) {
  MOCDispatchCounter* counter = (MOCDispatchCounter*)semaphore;
  const std::lock_guard<std::mutex> lock(counter->mutex);
  ++counter->count;
  counter->changed.notify_one();
  return 0;
}

dispatch_group_t dispatch_group_create(void) { return [[MOCDispatchCounter alloc] init]; }

void dispatch_group_enter(dispatch_group_t group) {
  MOCDispatchCounter* counter = (MOCDispatchCounter*)group;
  const std::lock_guard<std::mutex> lock(counter->mutex);
  ++counter->count;
}

void dispatch_group_leave(dispatch_group_t group) {
  MOCDispatchCounter* counter = (MOCDispatchCounter*)group;
  const std::lock_guard<std::mutex> lock(counter->mutex);
  --counter->count;
  counter->changed.notify_all();
}

intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t deadline) {
  MOCDispatchCounter* counter = (MOCDispatchCounter*)group;
  std::unique_lock<std::mutex> lock(counter->mutex);
  return wait(counter, lock, deadline, [&] { return counter->count <= 0; }) ? 0 : 1;
}

dispatch_block_t dispatch_data_destructor_free(void) {
  return ^{
  };
}

dispatch_data_t dispatch_data_create(const void* bytes, size_t size, dispatch_queue_t queue, dispatch_block_t destructor) {
  MOCDispatchData* data = [[MOCDispatchData alloc] init];
  data->bytes = bytes;
  data->size = size;
  data->destructor = destructor;
  if (destructor == DISPATCH_DATA_DESTRUCTOR_DEFAULT) {
    void* const copy = std::malloc(size == 0 ? 1 : size);
    if (size != 0) std::memcpy(copy, bytes, size);
    data->bytes = copy;
    data->destructor = ^{
      std::free(copy);
    };
  } else if (destructor == dispatch_data_destructor_free()) {
    data->destructor = ^{
      std::free(const_cast<void*>(bytes));
    };
  }
  return data;
}

size_t dispatch_data_get_size(dispatch_data_t data) { return ((MOCDispatchData*)data)->size; }

dispatch_data_t dispatch_data_create_map(dispatch_data_t data, const void** bytes, size_t* size) {
  MOCDispatchData* all = (MOCDispatchData*)data;
  if (bytes != nullptr) *bytes = all->bytes;
  if (size != nullptr) *size = all->size;
  return data;
}
