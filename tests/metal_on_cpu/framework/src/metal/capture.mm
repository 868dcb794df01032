// Captures: nothing is written, but the order of calls is checked.
#include "metal/objects.h"
#include "runtime/object.h"

using metal_framework::find;
using metal_framework::text;

NSErrorDomain const MTLCaptureErrorDomain = @"MTLCaptureError";

@interface MOCCaptureScope : NSObject <MTLCaptureScope> {
 @public
  id<MTLCommandQueue> queue;
  BOOL begun;
}
@end

@implementation MOCCaptureScope
@synthesize label;
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (id<MTLCommandQueue>)commandQueue {
  return queue;
}
- (void)beginScope {
  if (begun) find("capture", "capture scope '" + text(self.label) + "' is begun twice");
  begun = YES;
}
- (void)endScope {
  if (!begun) find("capture", "capture scope '" + text(self.label) + "' is ended and was not begun");
  begun = NO;
}
@end

@implementation MTLCaptureDescriptor
- (instancetype)init {
  _destination = MTLCaptureDestinationDeveloperTools;
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCaptureDescriptor* made = [[MTLCaptureDescriptor alloc] init];
  made.captureObject = self.captureObject;
  made.destination = self.destination;
  made.outputURL = self.outputURL;
  return made;
}
@end

@implementation MTLCaptureManager {
  std::mutex mutex;
  BOOL capturing;
}
@synthesize defaultCaptureScope;
+ (MTLCaptureManager*)sharedCaptureManager {
  static MTLCaptureManager* manager;
  static std::once_flag once;
  std::call_once(once, [] {
    manager = [[MTLCaptureManager alloc] init];
    metal_framework::make_immortal(manager);
  });
  return manager;
}
- (id<MTLCaptureScope>)newCaptureScopeWithDevice:(id<MTLDevice>)device {
  return [[MOCCaptureScope alloc] init];
}
- (id<MTLCaptureScope>)newCaptureScopeWithCommandQueue:(id<MTLCommandQueue>)queue {
  MOCCaptureScope* scope = [[MOCCaptureScope alloc] init];
  scope->queue = queue;
  return scope;
}
- (BOOL)supportsDestination:(MTLCaptureDestination)destination {
  return destination == MTLCaptureDestinationGPUTraceDocument;
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError* __autoreleasing*)out {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto refuse = [&](MTLCaptureError code, const char* why) {
    if (out) *out = metal_framework::error(MTLCaptureErrorDomain, code, why);
    return NO;
  };
  if (capturing) return refuse(MTLCaptureErrorAlreadyCapturing, "a capture is going on");
  if (descriptor.captureObject == nil) return refuse(MTLCaptureErrorInvalidDescriptor, "the descriptor has no capture object");
  if (descriptor.destination != MTLCaptureDestinationGPUTraceDocument || descriptor.outputURL == nil) {
    return refuse(MTLCaptureErrorNotSupported, "captures go to a document only, whose URL must be given");
  }
  capturing = YES;
  return YES;
}
- (void)stopCapture {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!capturing) find("capture", "stopCapture without a capture");
  capturing = NO;
}
- (BOOL)isCapturing {
  const std::lock_guard<std::mutex> lock(mutex);
  return capturing;
}
@end
