#include <thread>

#include "metal/objects.h"

using metal_framework::Failure;
using metal_framework::find;
using metal_framework::seconds_now;
using metal_framework::text;

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

@implementation MTLCommandBufferDescriptor
- (instancetype)init {
  _retainedReferences = YES;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCommandBufferDescriptor* made = [[MTLCommandBufferDescriptor alloc] init];
  made.retainedReferences = self.retainedReferences;
  made.errorOptions = self.errorOptions;
  return made;
}
@end

namespace metal_framework {

NSError* command_buffer_error(const Failure& failure) {
  return error(MTLCommandBufferErrorDomain, failure.code, failure.message);
}

namespace {

const char* name_of(long code) {
  switch (code) {
    case MTLCommandBufferErrorInternal:
      return "Internal Error";
    case MTLCommandBufferErrorTimeout:
      return "Caused GPU Timeout Error";
    case MTLCommandBufferErrorPageFault:
      return "Caused GPU Address Fault Error";
    case MTLCommandBufferErrorAccessRevoked:
      return "Ignored (for causing prior/excessive GPU errors)";
    case MTLCommandBufferErrorNotPermitted:
      return "Insufficient Permission";
    case MTLCommandBufferErrorOutOfMemory:
      return "Insufficient Memory";
    case MTLCommandBufferErrorInvalidResource:
      return "Invalid Resource";
    case MTLCommandBufferErrorMemoryless:
      return "Memoryless Out of Memory";
    case MTLCommandBufferErrorDeviceRemoved:
      return "Device Removed";
    case MTLCommandBufferErrorStackOverflow:
      return "Stack Overflow";
    default:
      return "Unknown Error";
  }
}

}  // namespace
}  // namespace metal_framework

@implementation MOCCommandBuffer {
  std::mutex mutex;
  std::condition_variable changed;
  MTLCommandBufferStatus state;
  BOOL handled;  // completed, and all handlers have run
  NSError* failure;
  std::vector<__strong MTLCommandBufferHandler> scheduled, completed;
  double gpu_start, gpu_end, kernel_start, kernel_end;
  NSInteger groups;
}
@synthesize label;

- (instancetype)initWithQueue:(MOCCommandQueue*)owner retained:(BOOL)keeps {
  queue = owner;
  retained = keeps;
  return self;
}
- (void)dealloc {
  if (committed) return;
  find("never-committed", [self describe] + " is released and was never committed");
  [queue abandon:self];
  [queue completed];
}
- (std::string)describe {
  const std::string name = text(self.label);
  return name.empty() ? "command buffer without label" : "command buffer '" + name + "'";
}
- (BOOL)accepts:(const char*)what {
  if (committed) {
    find("use-after-commit", std::string(what) + " on " + [self describe] + ", which is committed");
    return NO;
  }
  if (open != nil) {
    find("encoding-not-ended", std::string(what) + " on " + [self describe] + " while an encoder is open");
    return NO;
  }
  return YES;
}
- (void)keep:(id)object {
  if (retained) kept.push_back(object);
}
- (void)use:(MOCBuffer*)buffer {
  [self keep:buffer];
  used.push_back(buffer->storage);
}

// --- what the host asks -----------------------------------------------------------------------------------------------------

- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (id<MTLCommandQueue>)commandQueue {
  return queue;
}
- (BOOL)retainedReferences {
  return retained;
}
- (MTLCommandBufferErrorOption)errorOptions {
  return MTLCommandBufferErrorOptionNone;
}
- (CFTimeInterval)kernelStartTime {
  const std::lock_guard<std::mutex> lock(mutex);
  return kernel_start;
}
- (CFTimeInterval)kernelEndTime {
  const std::lock_guard<std::mutex> lock(mutex);
  return kernel_end;
}
- (CFTimeInterval)GPUStartTime {
  const std::lock_guard<std::mutex> lock(mutex);
  return gpu_start;
}
- (CFTimeInterval)GPUEndTime {
  const std::lock_guard<std::mutex> lock(mutex);
  return gpu_end;
}
- (MTLCommandBufferStatus)status {
  const std::lock_guard<std::mutex> lock(mutex);
  return state;
}
- (NSError*)error {
  const std::lock_guard<std::mutex> lock(mutex);
  return failure;
}

// --- commands ---------------------------------------------------------------------------------------------------------------

- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [self accepts:"blitCommandEncoder"] ? [[MOCBlitCommandEncoder alloc] initWithOwner:self] : nil;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  if (![self accepts:"computeCommandEncoder"]) return nil;
  return [[MOCComputeCommandEncoder alloc] initWithOwner:self type:type descriptor:nil];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  if (![self accepts:"computeCommandEncoderWithDescriptor:"]) return nil;
  return [[MOCComputeCommandEncoder alloc] initWithOwner:self type:descriptor.dispatchType descriptor:descriptor];
}
- (void)encodeWaitForEvent:(id<MTLEvent>)event value:(uint64_t)value {
  if (![self accepts:"encodeWaitForEvent:"]) return;
  MOCEvent* waited = (MOCEvent*)event;
  if (waited == nil) return find("nil-argument", "encodeWaitForEvent: nil");
  const std::string who = [self describe];
  steps.push_back([waited, value, who]() -> std::optional<Failure> {
    if ([waited waitFor:value seconds:metal_framework::wait_timeout().count()]) return std::nullopt;
    if (metal_framework::device_removed()) return Failure{MTLCommandBufferErrorDeviceRemoved, "Device Removed"};
    find("event-never-signaled",
         who + " waits in vain for event '" + text(waited.label) + "' to reach " + std::to_string(value));
    return Failure{MTLCommandBufferErrorTimeout, "Caused GPU Timeout Error: an event was not signaled"};
  });
}
- (void)encodeSignalEvent:(id<MTLEvent>)event value:(uint64_t)value {
  if (![self accepts:"encodeSignalEvent:"]) return;
  MOCEvent* signaled = (MOCEvent*)event;
  if (signaled == nil) return find("nil-argument", "encodeSignalEvent: nil");
  steps.push_back([signaled, value]() -> std::optional<Failure> {
    [signaled signal:value];
    return std::nullopt;
  });
}
- (void)pushDebugGroup:(NSString*)name {
  ++groups;
}
- (void)popDebugGroup {
  if (groups-- <= 0) find("debug-groups", "popDebugGroup on " + [self describe] + " without pushDebugGroup");
}
- (void)useResidencySet:(id<MTLResidencySet>)set {
  if (![self accepts:"useResidencySet:"]) return;
  if (set == nil) return find("nil-argument", "useResidencySet: nil");
  [self keep:set];
  const auto some = [(MOCResidencySet*)set committed];
  resident.insert(resident.end(), some.begin(), some.end());
}
- (void)useResidencySets:(const id<MTLResidencySet>[])sets count:(NSUInteger)count {
  for (NSUInteger i = 0; i < count; ++i) [self useResidencySet:sets[i]];
}
- (void)addScheduledHandler:(MTLCommandBufferHandler)block {
  if (committed) return find("use-after-commit", "addScheduledHandler: on " + [self describe] + ", which is committed");
  scheduled.push_back([block copy]);
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  if (committed) return find("use-after-commit", "addCompletedHandler: on " + [self describe] + ", which is committed");
  completed.push_back([block copy]);
}

// --- running ----------------------------------------------------------------------------------------------------------------

- (void)reach:(MTLCommandBufferStatus)reached {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (reached > state) state = reached;
  }
  changed.notify_all();
}
- (void)enqueue {
  if (committed) return find("use-after-commit", "enqueue of " + [self describe] + ", which is committed");
  if (enqueued) return find("enqueued-twice", [self describe] + " is enqueued already");
  [queue enqueue:self];
  [self reach:MTLCommandBufferStatusEnqueued];
}
- (void)commit {
  if (open != nil) {
    find("encoding-not-ended", "commit of " + [self describe] + " while an encoder is open");
    [open finish];
  }
  if (groups > 0) find("debug-groups", [self describe] + " is committed with open debug groups");
  for (const auto& storage : [queue resident]) resident.push_back(storage);
  // Before the queue may begin: its thread sets later states.
  if (!committed) [self reach:MTLCommandBufferStatusCommitted];
  if (![queue commit:self]) find("use-after-commit", [self describe] + " is committed twice");
}
- (std::optional<Failure>)check_resources {
  for (const auto& storage : used) {
    if (storage->owned) continue;
    find("released-resource", [self describe] + " with unretained references needs " + storage->describe() +
                                  ", which is released before it completed");
    return Failure{MTLCommandBufferErrorPageFault, "Caused GPU Address Fault Error: a buffer was released"};
  }
  return std::nullopt;
}
- (std::optional<Failure>)run_steps {
  for (const auto& step : steps) {
    if (auto failed = [self check_resources]) return failed;
    if (auto failed = step()) return failed;
  }
  return [self check_resources];
}
- (void)execute {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    kernel_start = kernel_end = seconds_now();
  }
  [self reach:MTLCommandBufferStatusScheduled];
  MOCCommandBuffer* me = self;
  [queue later:[me] {
    for (MTLCommandBufferHandler handler : me->scheduled) handler(me);
    me->scheduled.clear();
  }];
  const double start = seconds_now();
  std::optional<Failure> failed;
  const auto fault = metal_framework::command_buffer_fault();
  if (!fault || fault->late) failed = [self run_steps];
  if (fault && !failed) failed = Failure{fault->code, metal_framework::name_of(fault->code)};
  std::this_thread::sleep_for(metal_framework::completion_delay());
  {
    const std::lock_guard<std::mutex> lock(mutex);
    gpu_start = start;
    gpu_end = seconds_now();
    if (failed) failure = metal_framework::command_buffer_error(*failed);
  }
  steps.clear();
  used.clear();
  resident.clear();
  kept.clear();
  [self reach:failed ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted];
  [queue completed];
  [queue later:[me] { [me complete]; }];
}
- (void)complete {
  for (MTLCommandBufferHandler handler : completed) handler(self);
  completed.clear();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    handled = YES;
  }
  changed.notify_all();
}
- (void)waitUntilScheduled {
  if (!committed) return find("wait-before-commit", "waitUntilScheduled on " + [self describe] + ", which is not committed");
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return state >= MTLCommandBufferStatusScheduled; });
}
- (void)waitUntilCompleted {
  if (!committed) return find("wait-before-commit", "waitUntilCompleted on " + [self describe] + ", which is not committed");
  const bool in_handler = [queue isHandling];
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return state >= MTLCommandBufferStatusCompleted && (handled || in_handler); });
}
@end
