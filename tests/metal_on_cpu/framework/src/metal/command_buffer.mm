#include <algorithm>
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

NSErrorUserInfoKey const MTLCommandBufferEncoderInfoErrorKey = @"MTLCommandBufferEncoderInfoErrorKey";

@interface MOCCommandBufferEncoderInfo : NSObject <MTLCommandBufferEncoderInfo> {
 @public
  metal_framework::EncoderRecord record;
  MTLCommandEncoderErrorState state;
}
@end

@implementation MOCCommandBufferEncoderInfo
- (NSString*)label {
  return metal_framework::string(record.label);
}
- (NSArray*)debugSignposts {
  NSMutableArray* all = [NSMutableArray array];
  for (const std::string& signpost : record.signposts) [all addObject:metal_framework::string(signpost)];
  return all;
}
- (MTLCommandEncoderErrorState)errorState {
  return state;
}
@end

namespace metal_framework {
namespace {

// `reached`: the step that failed.
NSError* command_buffer_error(const Failure& failure, const std::vector<EncoderRecord>& encoders, size_t reached,
                              bool explain) {
  NSMutableDictionary* about = [NSMutableDictionary dictionary];
  about[NSLocalizedDescriptionKey] = string(failure.message);
  if (explain) {
    NSMutableArray* all = [NSMutableArray array];
    for (const EncoderRecord& record : encoders) {
      MOCCommandBufferEncoderInfo* info = [[MOCCommandBufferEncoderInfo alloc] init];
      info->record = record;
      info->state = reached >= record.last    ? MTLCommandEncoderErrorStateCompleted
                    : reached >= record.first ? MTLCommandEncoderErrorStateFaulted
                                              : MTLCommandEncoderErrorStatePending;
      [all addObject:info];
    }
    about[MTLCommandBufferEncoderInfoErrorKey] = all;
  }
  return [NSError errorWithDomain:MTLCommandBufferErrorDomain code:failure.code userInfo:about];
}

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

- (instancetype)initWithQueue:(MOCCommandQueue*)owner retained:(BOOL)keeps options:(MTLCommandBufferErrorOption)chosen {
  options = chosen;
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
- (void)keep:(id)object named:(const std::string&)name {
  if (retained)
    kept.push_back(object);
  else
    unretained.push_back({object, name});
}
- (void)use:(MOCBuffer*)buffer {
  if (retained) kept.push_back(buffer);
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
  return options;
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

- (BOOL)opens:(const char*)what {
  return [self accepts:what] && !metal_framework::fails(metal_framework::Fault::kEncoder);
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [self opens:"blitCommandEncoder"] ? [[MOCBlitCommandEncoder alloc] initWithOwner:self] : nil;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  if (![self opens:"computeCommandEncoder"]) return nil;
  return [[MOCComputeCommandEncoder alloc] initWithOwner:self type:type descriptor:nil];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDescriptor:(MTLComputePassDescriptor*)descriptor {
  if (![self opens:"computeCommandEncoderWithDescriptor:"]) return nil;
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
  if (committed) return find("use-after-commit", "useResidencySet: on " + [self describe] + ", which is committed");
  if (set == nil) return find("nil-argument", "useResidencySet: nil");
  [self keep:set named:"residency set '" + text(set.label) + "'"];
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
  const auto requested = [](const auto& storage) { return storage->requested.load(); };
  metal_framework::note_resident(resident.size(),
                                 static_cast<size_t>(std::count_if(resident.begin(), resident.end(), requested)));
  // Before the queue may begin: its thread sets later states.
  if (!committed) [self reach:MTLCommandBufferStatusCommitted];
  if (![queue commit:self]) find("use-after-commit", [self describe] + " is committed twice");
}
- (Failure)released:(const std::string&)name {
  find("released-resource",
       [self describe] + " with unretained references needs " + name + ", which is released before it completed");
  return {MTLCommandBufferErrorPageFault, "Caused GPU Address Fault Error: a resource was released"};
}
- (std::optional<Failure>)check_resources {
  for (const auto& storage : used)
    if (!storage->owned) return [self released:storage->describe()];
  for (const auto& entry : unretained)
    if (entry.object == nil) return [self released:entry.name];
  return std::nullopt;
}
// `reached` counts the steps that are done.
- (std::optional<Failure>)run_steps:(size_t&)reached {
  for (; reached < steps.size(); ++reached) {
    if (auto failed = [self check_resources]) return failed;
    if (auto failed = steps[reached]()) return failed;
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
  size_t reached = 0;
  if (!fault || fault->late) failed = [self run_steps:reached];
  if (fault && !failed) failed = Failure{fault->code, metal_framework::name_of(fault->code)};
  std::this_thread::sleep_for(metal_framework::completion_delay());
  {
    const std::lock_guard<std::mutex> lock(mutex);
    gpu_start = start;
    gpu_end = seconds_now();
    const bool explain = (options & MTLCommandBufferErrorOptionEncoderExecutionStatus) != 0;
    if (failed) failure = metal_framework::command_buffer_error(*failed, encoders, reached, explain);
  }
  steps.clear();
  used.clear();
  resident.clear();
  kept.clear();
  unretained.clear();
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
