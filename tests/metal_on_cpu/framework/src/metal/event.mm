#include "metal/objects.h"

@implementation MTLSharedEventListener
- (instancetype)init {
  return [self initWithDispatchQueue:dispatch_queue_create("MTLSharedEventListener", DISPATCH_QUEUE_SERIAL)];
}
- (instancetype)initWithDispatchQueue:(dispatch_queue_t)queue {
  _dispatchQueue = queue;
  return self;
}
@end

@implementation MOCEvent
@synthesize label;
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (uint64_t)signaledValue {
  const std::lock_guard<std::mutex> lock(mutex);
  return current;
}
- (void)setSignaledValue:(uint64_t)value {
  [self signal:value];
}
- (void)signal:(uint64_t)value {
  std::vector<Notice> due;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (value < current) {
      metal_framework::find("event-goes-back", "event '" + metal_framework::text(self.label) + "' is signaled " +
                                                   std::to_string(value) + " after " + std::to_string(current));
    }
    current = value;
    for (auto notice = notices.begin(); notice != notices.end();) {
      if (notice->value > value) {
        ++notice;
        continue;
      }
      due.push_back(*notice);
      notice = notices.erase(notice);
    }
  }
  changed.notify_all();
  for (const Notice& notice : due) [self tell:notice];
}
- (void)tell:(const Notice&)notice {
  MTLSharedEventNotificationBlock block = notice.block;
  const uint64_t value = notice.value;
  dispatch_async(notice.listener.dispatchQueue, ^{
    block(self, value);
  });
}
- (void)notifyListener:(MTLSharedEventListener*)listener atValue:(uint64_t)value block:(MTLSharedEventNotificationBlock)block {
  const Notice notice{value, listener, [block copy]};
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (current < value) {
      notices.push_back(notice);
      return;
    }
  }
  [self tell:notice];
}
- (BOOL)waitUntilSignaledValue:(uint64_t)value timeoutMS:(uint64_t)milliseconds {
  std::unique_lock<std::mutex> lock(mutex);
  return changed.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return current >= value; });
}
- (BOOL)waitFor:(uint64_t)value seconds:(double)seconds {
  // In slices, so that a device that is removed meanwhile ends the wait.
  const double until = metal_framework::seconds_now() + seconds;
  std::unique_lock<std::mutex> lock(mutex);
  while (current < value && metal_framework::seconds_now() < until && !metal_framework::device_removed()) {
    changed.wait_for(lock, std::chrono::milliseconds(5), [&] { return current >= value; });
  }
  return current >= value;
}
@end
