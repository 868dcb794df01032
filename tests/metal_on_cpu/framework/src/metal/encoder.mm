// What compute and blit encoders share.
#include <algorithm>

#include "metal/objects.h"

using metal_framework::find;
using metal_framework::text;

static void wait(MOCFence* fence, metal_framework::Pass& pass) {
  const auto& from = fence->updated_by;
  const std::string name = "fence '" + text(fence.label) + "' ";
  if (from == nullptr) return find("fence-not-updated", name + "is waited for before it is updated");
  if (from.get() == &pass) return find("fence-order", name + "is waited for by the encoder that has updated it");
  if (from->queue != pass.queue) return find("fence-order", name + "is updated and waited for on two queues");
  const auto over = [&](const auto& other, size_t uses) { pass.before[other] = std::max(pass.before[other], uses); };
  for (const auto& [other, uses] : from->before) over(other, uses);
  over(from, fence->uses);
}

@implementation MOCCommandEncoder
@synthesize label;

- (instancetype)initWithOwner:(MOCCommandBuffer*)buffer {
  owner = buffer;
  owner->open = self;
  pass = std::make_shared<metal_framework::Pass>();
  pass->queue = (__bridge const void*)buffer->queue;
  pass->commands = buffer->lifetime;
  return self;
}
- (void)dealloc {
  if (ended) return;
  find("encoding-not-ended", "an encoder of " + [owner describe] + " is released without endEncoding");
  owner->open = nil;
}
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (BOOL)accepts:(const char*)what {
  if (!ended) return YES;
  find(owner->committed ? "use-after-commit" : "use-after-end",
       std::string(what) + " on an encoder of " + [owner describe] + " after endEncoding");
  return NO;
}
- (void)add:(metal_framework::Step)step {
  owner->steps.push_back(std::move(step));
}
- (void)finish {
  ended = YES;
  owner->open = nil;
}
- (void)endEncoding {
  if (![self accepts:"endEncoding"]) return;
  if (open_groups > 0) find("debug-groups", "endEncoding with " + std::to_string(open_groups) + " open debug groups");
  [self finish];
}
- (void)pushDebugGroup:(NSString*)name {
  if (![self accepts:"pushDebugGroup:"]) return;
  ++metal_test::settings()->debug_groups;
  ++open_groups;
}
- (void)popDebugGroup {
  if (![self accepts:"popDebugGroup"]) return;
  if (open_groups == 0) return find("debug-groups", "popDebugGroup without pushDebugGroup");
  --open_groups;
}
- (void)updateFence:(id<MTLFence>)fence {
  if (![self accepts:"updateFence:"]) return;
  if (fence == nil) return find("nil-argument", "updateFence: nil");
  MOCFence* updated = (MOCFence*)fence;
  [self add:[updated, by = pass]() -> std::optional<metal_framework::Failure> {
    const metal_test::Locked lock;
    updated->updated_by = by;
    updated->uses = by->uses;
    return std::nullopt;
  }];
}
- (void)waitForFence:(id<MTLFence>)fence {
  if (![self accepts:"waitForFence:"]) return;
  if (fence == nil) return find("nil-argument", "waitForFence: nil");
  MOCFence* waited = (MOCFence*)fence;
  [self add:[waited, by = pass]() -> std::optional<metal_framework::Failure> {
    const metal_test::Locked lock;
    ++lock->fence_waits;
    wait(waited, *by);
    return std::nullopt;
  }];
}
@end

@implementation MTLCaptureManager
+ (MTLCaptureManager*)sharedCaptureManager {
  return [[self alloc] init];
}
- (BOOL)isCapturing {
  return metal_test::settings()->captures;
}
@end
