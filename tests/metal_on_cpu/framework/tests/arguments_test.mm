// Arguments that Metal takes no part of: each call is left out and found, in the words that name it.
#include "fixture.h"

namespace metal_framework {
namespace {

using ::testing::HasSubstr;

class Arguments : public Fixture {
 protected:
  void SetUp() override {
    Fixture::SetUp();
    findings_wanted = true;
  }
  // What was found since the last call is one finding, of this kind and with these words.
  void expect(const std::string& kind, const std::string& words) {
    EXPECT_EQ(metal_test_finding_count(), 1u) << words << "\n" << report();
    EXPECT_THAT(report(), HasSubstr(kind + ": "));
    EXPECT_THAT(report(), HasSubstr(words));
    metal_test_reset();
  }
};

TEST_F(Arguments, NilOnAComputeEncoder) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> e = [commands computeCommandEncoder];
    [e setComputePipelineState:(id<MTLComputePipelineState> _Nonnull)nil];
    expect("nil-argument", "setComputePipelineState: nil");
    [e setBytes:(const void* _Nonnull)nullptr length:4 atIndex:0];
    expect("nil-argument", "setBytes: without bytes at index 0");
    [e setBytes:"" length:0 atIndex:1];
    expect("nil-argument", "setBytes: without bytes at index 1");
    [e setBufferOffset:0 atIndex:2];
    expect("missing-binding", "setBufferOffset: at index 2");
    [e useResource:(id<MTLResource> _Nonnull)nil usage:MTLResourceUsageRead];
    expect("nil-argument", "useResource: nil");
    [e updateFence:(id<MTLFence> _Nonnull)nil];
    expect("nil-argument", "updateFence: nil");
    [e waitForFence:(id<MTLFence> _Nonnull)nil];
    expect("nil-argument", "waitForFence: nil");
    [e sampleCountersInBuffer:(id<MTLCounterSampleBuffer> _Nonnull)nil atSampleIndex:0 withBarrier:NO];
    expect("nil-argument", "sampleCountersInBuffer: nil");
    [e dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer> _Nonnull)nil
                         indirectBufferOffset:0
                        threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    expect("nil-argument", "dispatchThreadgroupsWithIndirectBuffer: nil");
    [e dispatchThreadgroupsWithIndirectBuffer:buffer(16) indirectBufferOffset:8 threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
    expect("offset-out-of-range", "three counts of threadgroups at byte 8");
    [e popDebugGroup];
    expect("debug-groups", "popDebugGroup without pushDebugGroup");
    [e endEncoding];
    [e setBuffer:nil offset:0 atIndex:0];
    expect("use-after-end", "setBuffer: on an encoder");
    finish(commands);
    [e endEncoding];
    expect("use-after-commit", "endEncoding on an encoder");
  }
}

TEST_F(Arguments, NilOnABlitEncoder) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLBlitCommandEncoder> e = [commands blitCommandEncoder];
    [e fillBuffer:(id<MTLBuffer> _Nonnull)nil range:NSMakeRange(0, 4) value:0];
    expect("nil-argument", "fillBuffer:");
    [e synchronizeResource:(id<MTLResource> _Nonnull)nil];
    expect("nil-argument", "synchronizeResource: nil");
    [e synchronizeResource:buffer()];
    expect("wrong-storage", "synchronizeResource: of");
    [e resolveCounters:(id<MTLCounterSampleBuffer> _Nonnull)nil
                  inRange:NSMakeRange(0, 1)
        destinationBuffer:buffer()
        destinationOffset:0];
    expect("nil-argument", "resolveCounters: nil");
    [e endEncoding];
    finish(commands);
  }
}

TEST_F(Arguments, OfCommandBuffersAndQueues) {
  @autoreleasepool {
    EXPECT_TRUE([device newCommandQueueWithMaxCommandBufferCount:0] == nil);
    expect("nil-argument", "a queue for 0 command buffers");
    [queue addResidencySet:(id<MTLResidencySet> _Nonnull)nil];
    expect("nil-argument", "addResidencySet: nil");
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands encodeWaitForEvent:(id<MTLEvent> _Nonnull)nil value:1];
    expect("nil-argument", "encodeWaitForEvent: nil");
    [commands encodeSignalEvent:(id<MTLEvent> _Nonnull)nil value:1];
    expect("nil-argument", "encodeSignalEvent: nil");
    [commands useResidencySet:(id<MTLResidencySet> _Nonnull)nil];
    expect("nil-argument", "useResidencySet: nil");
    [commands waitUntilScheduled];
    expect("wait-before-commit", "waitUntilScheduled");
    [commands enqueue];
    [commands enqueue];
    expect("enqueued-twice", "is enqueued already");
    finish(commands);
    [commands enqueue];
    expect("use-after-commit", "enqueue of");
    [commands addScheduledHandler:^(id<MTLCommandBuffer>){
    }];
    expect("use-after-commit", "addScheduledHandler:");
    [commands addCompletedHandler:^(id<MTLCommandBuffer>){
    }];
    expect("use-after-commit", "addCompletedHandler:");
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:[[MTLResidencySetDescriptor alloc] init] error:nullptr];
    [commands useResidencySet:set];
    expect("use-after-commit", "useResidencySet:");
    [set addAllocation:(id<MTLAllocation> _Nonnull)nil];
    expect("nil-argument", "addAllocation: nil");
  }
}

TEST_F(Arguments, OfBuffers) {
  @autoreleasepool {
    EXPECT_TRUE([device newBufferWithBytes:(const void* _Nonnull)nullptr length:4 options:0] == nil);
    expect("nil-argument", "newBufferWithBytes: NULL");
    alignas(65536) static char pages[65536];
    EXPECT_TRUE([device newBufferWithBytesNoCopy:pages
                                          length:sizeof pages
                                         options:MTLResourceStorageModePrivate
                                     deallocator:nil] == nil);
    expect("wrong-storage", "newBufferWithBytesNoCopy: with private storage");
    [buffer() didModifyRange:NSMakeRange(0, 4)];
    expect("wrong-storage", "didModifyRange of");
    id<MTLBuffer> managed = [device newBufferWithLength:64 options:MTLResourceStorageModeManaged];
    [managed didModifyRange:NSMakeRange(60, 8)];
    expect("out-of-range", "didModifyRange past the end");
    [managed addDebugMarker:@"past" range:NSMakeRange(64, 1)];
    expect("out-of-range", "debug marker past the end");
  }
}

TEST_F(Arguments, OfLibrariesAndPipelines) {
  @autoreleasepool {
    NSError* error = nil;
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.preprocessorMacros = @{@"N" : @[]};
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:&error] == nil);
    EXPECT_EQ(error.code, static_cast<NSInteger>(MTLLibraryErrorUnsupported));
    expect("wrong-macro", "preprocessor macro N");
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues alloc] init];
    const float four[4] = {};
    [values setConstantValue:four type:MTLDataTypeFloat4 atIndex:0];
    expect("constant-type", "function constants of type 6");
    [values setConstantValue:four type:MTLDataTypeFloat4 withName:@"kFour"];
    expect("constant-type", "function constants of type 6");
    [values setConstantValue:four type:MTLDataTypeFloat atIndex:65536];
    expect("out-of-range", "indices below 65536");
    EXPECT_TRUE([device newComputePipelineStateWithFunction:(id<MTLFunction> _Nonnull)nil error:&error] == nil);
    expect("nil-argument", "a compute pipeline without function");
  }
}

TEST_F(Arguments, OfCountersAndCaptures) {
  @autoreleasepool {
    MTLCounterSampleBufferDescriptor* descriptor = [[MTLCounterSampleBufferDescriptor alloc] init];
    descriptor.counterSet = device.counterSets[0];
    descriptor.sampleCount = 2;
    id<MTLCounterSampleBuffer> samples = [device newCounterSampleBufferWithDescriptor:descriptor error:nullptr];
    EXPECT_TRUE([samples resolveCounterRange:NSMakeRange(1, 2)] == nil);
    expect("out-of-range", "resolveCounterRange: past the end of 2");
    (void)[MTLComputePassDescriptor computePassDescriptor].sampleBufferAttachments[4];
    expect("out-of-range", "4 sample buffer attachments");
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLBlitCommandEncoder> e = [commands blitCommandEncoder];
    [e sampleCountersInBuffer:samples atSampleIndex:2 withBarrier:NO];
    expect("out-of-range", "sample index 2");
    [e resolveCounters:samples inRange:NSMakeRange(0, 3) destinationBuffer:buffer() destinationOffset:0];
    expect("out-of-range", "resolveCounters: past the end of");
    [e endEncoding];
    finish(commands);
    MTLCaptureManager* manager = [MTLCaptureManager sharedCaptureManager];
    [manager stopCapture];
    expect("capture", "stopCapture without a capture");
    id<MTLCaptureScope> scope = [manager newCaptureScopeWithCommandQueue:queue];
    [scope endScope];
    expect("capture", "is ended and was not begun");
    [scope beginScope];
    [scope beginScope];
    expect("capture", "is begun twice");
    [scope endScope];
  }
}

}  // namespace
}  // namespace metal_framework
