// Time stamps, the one set of counters.
#include "metal/objects.h"

using metal_framework::find;

MTLCommonCounter const MTLCommonCounterTimestamp = @"GPUTimestamp";
MTLCommonCounterSet const MTLCommonCounterSetTimestamp = @"timestamp";
NSErrorDomain const MTLCounterErrorDomain = @"MTLCounterErrorDomain";

@implementation MTLCounterSampleBufferDescriptor
- (instancetype)init {
  _label = @"";
  return self;
}
- (id)copyWithZone:(NSZone*)zone {
  MTLCounterSampleBufferDescriptor* made = [[MTLCounterSampleBufferDescriptor alloc] init];
  made.counterSet = self.counterSet;
  made.label = self.label;
  made.storageMode = self.storageMode;
  made.sampleCount = self.sampleCount;
  return made;
}
@end

@implementation MOCCounterSampleBuffer
- (id<MTLDevice>)device {
  return metal_framework::device();
}
- (NSString*)label {
  return given_label;
}
- (NSUInteger)sampleCount {
  return samples.size();
}
- (void)sample:(NSUInteger)index {
  const std::lock_guard<std::mutex> lock(mutex);
  samples[index] = metal_framework::nanoseconds_now();
}
- (NSData*)resolveCounterRange:(NSRange)range {
  const std::lock_guard<std::mutex> lock(mutex);
  if (NSMaxRange(range) > samples.size()) {
    find("out-of-range", "resolveCounterRange: past the end of " + std::to_string(samples.size()) + " samples");
    return nil;
  }
  // A sample that was never taken is MTLCounterErrorValue.
  return [NSData dataWithBytes:samples.data() + range.location length:range.length * sizeof(MTLCounterResultTimestamp)];
}
@end

@implementation MTLComputePassSampleBufferAttachmentDescriptor
- (instancetype)init {
  _startOfEncoderSampleIndex = MTLCounterDontSample;
  _endOfEncoderSampleIndex = MTLCounterDontSample;
  return self;
}
@end

@implementation MTLComputePassSampleBufferAttachmentDescriptorArray {
  NSMutableArray* attachments;
}
- (MTLComputePassSampleBufferAttachmentDescriptor*)objectAtIndexedSubscript:(NSUInteger)index {
  if (attachments == nil) attachments = [NSMutableArray array];
  while (attachments.count <= index && index < 4) {
    [attachments addObject:[[MTLComputePassSampleBufferAttachmentDescriptor alloc] init]];
  }
  if (index >= 4) find("out-of-range", "a compute pass has 4 sample buffer attachments, not " + std::to_string(index + 1));
  return attachments[index];
}
@end

@implementation MTLComputePassDescriptor {
  MTLComputePassSampleBufferAttachmentDescriptorArray* attachments;
}
+ (MTLComputePassDescriptor*)computePassDescriptor {
  return [[MTLComputePassDescriptor alloc] init];
}
- (MTLComputePassSampleBufferAttachmentDescriptorArray*)sampleBufferAttachments {
  if (attachments == nil) attachments = [[MTLComputePassSampleBufferAttachmentDescriptorArray alloc] init];
  return attachments;
}
@end
