#include <algorithm>
#include <thread>

#include "metal/objects.h"

using metal_framework::Failure;
using metal_framework::find;
using metal_framework::seconds_now;
using metal_framework::text;

NSErrorDomain const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

namespace metal_framework {
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
  std::vector<__strong MTLCommandBufferHandler> completed;
  double gpu_start, gpu_end;
}
@synthesize label;

- (instancetype)initWithQueue:(MOCCommandQueue*)owner retained:(BOOL)keeps {
  queue = owner;
  retained = keeps;
  lifetime = std::make_shared<metal_framework::Lifetime>();
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
- (void)keep:(id)object presence:(const std::shared_ptr<metal_framework::Presence>&)presence {
  if (retained)
    kept.push_back(object);
  else
    needed.push_back(presence);
}
- (void)use:(MOCBuffer*)buffer {
  if (retained) kept.push_back(buffer);
  used.push_back(buffer->storage);
}

// --- what the host asks -----------------------------------------------------------------------------------------------------

- (id<MTLDevice>)device {
  return metal_framework::device();
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
  return [self accepts:what] && !metal_framework::fails(metal_framework::Fault::encoder);
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
  return [self opens:"blitCommandEncoder"] ? [[MOCBlitCommandEncoder alloc] initWithOwner:self] : nil;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
  return [self computeCommandEncoderWithDispatchType:MTLDispatchTypeSerial];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
  if (![self opens:"computeCommandEncoder"]) return nil;
  return [[MOCComputeCommandEncoder alloc] initWithOwner:self type:type];
}
- (void)useResidencySet:(id<MTLResidencySet>)set {
  if (committed) return find("use-after-commit", "useResidencySet: on " + [self describe] + ", which is committed");
  if (set == nil) return find("nil-argument", "useResidencySet: nil");
  MOCResidencySet* given = (MOCResidencySet*)set;
  [self keep:set presence:given->presence];
  const auto some = [given committed];
  resident.insert(resident.end(), some.begin(), some.end());
}
- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
  if (committed) return find("use-after-commit", "addCompletedHandler: on " + [self describe] + ", which is committed");
  completed.push_back(block);
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
  const auto requested = [](const auto& storage) { return storage->requested == metal_test::settings()->wired_since; };
  const auto of_them = static_cast<size_t>(std::count_if(resident.begin(), resident.end(), requested));
  metal_test::settings()->resident = resident.size();
  metal_test::settings()->requested = of_them;
  // Before the queue may begin: its thread sets later states.
  lifetime->committed = metal_framework::tick();
  if (!committed) [self reach:MTLCommandBufferStatusCommitted];
  if (![queue commit:self]) find("use-after-commit", [self describe] + " is committed twice");
}
- (std::optional<Failure>)check_resources {
  std::string gone;
  for (const auto& storage : used)
    if (!storage->owned) gone = storage->describe();
  for (const auto& each : needed)
    if (!each->there) gone = each->name;
  if (gone.empty()) return std::nullopt;
  find("released-resource",
       [self describe] + " with unretained references needs " + gone + ", which is released before it completed");
  return Failure{MTLCommandBufferErrorPageFault, "Caused GPU Address Fault Error: a resource was released"};
}
- (std::optional<Failure>)run_steps {
  for (const auto& step : steps) {
    if (auto failed = [self check_resources]) return failed;
    if (auto failed = step()) return failed;
  }
  return [self check_resources];
}
- (void)execute {
  [self reach:MTLCommandBufferStatusScheduled];
  MOCCommandBuffer* me = self;
  const double start = seconds_now();
  std::optional<Failure> failed;
  const auto fault = metal_framework::command_buffer_fault();
  if (!fault || fault->late) failed = [self run_steps];
  if (fault && !failed) failed = Failure{fault->code, metal_framework::name_of(fault->code)};
  const std::chrono::duration<double> delay(metal_test::settings()->completion_delay);
  std::this_thread::sleep_for(delay);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    gpu_start = start;
    gpu_end = seconds_now();
    if (failed) failure = metal_framework::error(MTLCommandBufferErrorDomain, failed->code, failed->message);
  }
  lifetime->completed = metal_framework::tick();
  steps.clear();
  used.clear();
  resident.clear();
  kept.clear();
  needed.clear();
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
- (void)waitUntilCompleted {
  if (!committed) return find("wait-before-commit", "waitUntilCompleted on " + [self describe] + ", which is not committed");
  const bool in_handler = [queue isHandling];
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return state >= MTLCommandBufferStatusCompleted && (handled || in_handler); });
}
@end
