#include <algorithm>
#include <deque>

#include "dispatch/serial_thread.h"
#include "metal/objects.h"

using metal_framework::find;
using metal_framework::SerialThread;

// Command buffers of a queue that have not completed, unless the host asks for another number.
static constexpr NSUInteger kLimit = 64;

@implementation MOCCommandQueue {
  std::mutex mutex;
  std::condition_variable room;
  NSUInteger alive;                                         // command buffers that were made and have not completed
  std::deque<__unsafe_unretained MOCCommandBuffer*> order;  // enqueued and not yet begun; those committed hold themselves below
  std::vector<__strong MOCCommandBuffer*> committed;
  std::unique_ptr<SerialThread> gpu, handlers;
}
@synthesize label;

- (instancetype)init {
  handlers = std::make_unique<SerialThread>();
  gpu = std::make_unique<SerialThread>();
  return self;
}
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (id<MTLCommandBuffer>)commandBuffer {
  return [self make:YES];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
  return [self make:NO];
}
- (id<MTLCommandBuffer>)make:(BOOL)retained {
  if (metal_framework::fails(metal_framework::Fault::commands)) return nil;
  {
    const std::chrono::duration<double> most(metal_test::settings()->wait_timeout);
    std::unique_lock<std::mutex> lock(mutex);
    if (!room.wait_for(lock, most, [&] { return alive < kLimit; })) {
      find("too-many-command-buffers", "queue '" + metal_framework::text(self.label) + "' has " + std::to_string(alive) +
                                           " unfinished command buffers, all that it may have, and none completes");
    }
    ++alive;
  }
  return [[MOCCommandBuffer alloc] initWithQueue:self retained:retained];
}
- (void)completed {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    --alive;
  }
  room.notify_all();
}
- (void)enqueue:(MOCCommandBuffer*)buffer {
  const std::lock_guard<std::mutex> lock(mutex);
  if (buffer->enqueued) return;
  buffer->enqueued = YES;
  order.push_back(buffer);
}
- (BOOL)commit:(MOCCommandBuffer*)buffer {
  [self enqueue:buffer];
  const std::lock_guard<std::mutex> lock(mutex);
  if (buffer->committed) return NO;
  buffer->committed = YES;
  committed.push_back(buffer);
  [self begin];
  return YES;
}
// An enqueued command buffer that nobody will commit any more must not hold up those behind it.
- (void)abandon:(MOCCommandBuffer*)buffer {
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase_if(order,
                [&](__unsafe_unretained MOCCommandBuffer* entry) { return (__bridge void*)entry == (__bridge void*)buffer; });
  [self begin];
}
// Hands over whatever is committed at the head of the order. The mutex is held.
- (void)begin {
  while (!order.empty() && order.front()->committed) {
    MOCCommandBuffer* next = order.front();
    order.pop_front();
    std::erase(committed, next);
    gpu->run([next] { [next execute]; });
  }
}
- (void)later:(std::function<void()>)job {
  handlers->run(std::move(job));
}
- (BOOL)isHandling {
  return handlers->is_current();
}
@end
