// Planted faults: each call that can fail does so as Metal says, and leaves nothing behind.
#include <chrono>

#include "fake_engine.h"
#include "fixture.h"

namespace metal_framework {
namespace {

class Faults : public Fixture {
 protected:
  id<MTLCommandBuffer> run_add() {
    return encode([](id<MTLComputeCommandEncoder> e) { dispatch(e); });
  }
};

TEST_F(Faults, TheNthAllocationFails) {
  @autoreleasepool {
    metal_test_fail_allocation(2);
    EXPECT_TRUE(buffer() != nil);
    EXPECT_TRUE(buffer() == nil);
    EXPECT_TRUE(buffer() != nil);
  }
}

TEST_F(Faults, CompilingFails) {
  @autoreleasepool {
    metal_test_fail_compile(1);
    NSError* error = nil;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:nil error:&error] == nil);
    EXPECT_TRUE([error.domain isEqualToString:MTLLibraryErrorDomain]);
    EXPECT_TRUE([device newLibraryWithSource:@"" options:nil error:&error] != nil);
  }
}

TEST_F(Faults, PipelinesAndQueuesFail) {
  @autoreleasepool {
    metal_test_fail_pipeline(1);
    metal_test_fail_queue(1);
    EXPECT_TRUE(pipeline(@"add") == nil);
    EXPECT_TRUE([device newCommandQueue] == nil);
    EXPECT_TRUE(pipeline(@"add") != nil);
    EXPECT_TRUE([device newCommandQueue] != nil);
  }
}

TEST_F(Faults, CommandBuffersAndEncodersFail) {
  @autoreleasepool {
    metal_test_fail_command_buffer_creation(1);
    EXPECT_TRUE([queue commandBuffer] == nil);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    metal_test_fail_encoder(2);
    [[commands blitCommandEncoder] endEncoding];
    EXPECT_TRUE([commands computeCommandEncoder] == nil);
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    EXPECT_TRUE(encoder != nil);
    [encoder endEncoding];
    finish(commands);
  }
}

TEST_F(Faults, EventsSetsAndCountersFail) {
  @autoreleasepool {
    metal_test_fail_event(2);
    EXPECT_TRUE([device newFence] != nil);
    EXPECT_TRUE([device newSharedEvent] == nil);
    EXPECT_TRUE([device newEvent] != nil);
    metal_test_fail_residency_set(1);
    MTLResidencySetDescriptor* set = [[MTLResidencySetDescriptor alloc] init];
    NSError* error = nil;
    EXPECT_TRUE([device newResidencySetWithDescriptor:set error:&error] == nil);
    EXPECT_TRUE(error != nil);
    EXPECT_TRUE([device newResidencySetWithDescriptor:set error:&error] != nil);
    metal_test_fail_counters(1);
    MTLCounterSampleBufferDescriptor* samples = [[MTLCounterSampleBufferDescriptor alloc] init];
    samples.counterSet = device.counterSets[0];
    samples.sampleCount = 1;
    EXPECT_TRUE([device newCounterSampleBufferWithDescriptor:samples error:&error] == nil);
    EXPECT_EQ(error.code, static_cast<NSInteger>(MTLCounterSampleBufferErrorOutOfMemory));
    EXPECT_TRUE([device newCounterSampleBufferWithDescriptor:samples error:&error] != nil);
  }
}

TEST_F(Faults, ArchivesFail) {
  @autoreleasepool {
    MTLBinaryArchiveDescriptor* fresh = [[MTLBinaryArchiveDescriptor alloc] init];
    MTLComputePipelineDescriptor* wanted = [[MTLComputePipelineDescriptor alloc] init];
    wanted.computeFunction = [library newFunctionWithName:@"add"];
    NSURL* url = [NSURL fileURLWithPath:[NSTemporaryDirectory() stringByAppendingPathComponent:@"faults.archive"]];
    NSError* error = nil;
    metal_test_fail_archive(1);
    EXPECT_TRUE([device newBinaryArchiveWithDescriptor:fresh error:&error] == nil);
    EXPECT_TRUE([error.domain isEqualToString:MTLBinaryArchiveDomain]);
    id<MTLBinaryArchive> archive = [device newBinaryArchiveWithDescriptor:fresh error:&error];
    EXPECT_FALSE([archive serializeToURL:url error:&error]) << "an empty one cannot be written";
    metal_test_fail_archive(1);
    EXPECT_FALSE([archive addComputePipelineFunctionsWithDescriptor:wanted error:&error]);
    EXPECT_TRUE([archive addComputePipelineFunctionsWithDescriptor:wanted error:&error]);
    metal_test_fail_archive(1);
    EXPECT_FALSE([archive serializeToURL:url error:&error]);
    EXPECT_TRUE([archive serializeToURL:url error:&error]);
    NSData* whole = [NSData dataWithContentsOfURL:url];
    fresh.url = url;
    for (NSUInteger length = 0; length < whole.length; ++length) {
      [[whole subdataWithRange:NSMakeRange(0, length)] writeToURL:url atomically:YES];
      const bool complete = length + 1 == whole.length;  // only the last end of line is missing
      EXPECT_EQ([device newBinaryArchiveWithDescriptor:fresh error:&error] != nil, complete) << length;
      EXPECT_EQ(error.code, static_cast<NSInteger>(MTLBinaryArchiveErrorInvalidFile));
    }
    [[NSFileManager defaultManager] removeItemAtURL:url error:nullptr];
  }
}

TEST_F(Faults, ErrorsTellOfEncoders) {
  @autoreleasepool {
    MTLCommandBufferDescriptor* explained = [[MTLCommandBufferDescriptor alloc] init];
    explained.errorOptions = MTLCommandBufferErrorOptionEncoderExecutionStatus;
    id<MTLCommandBuffer> commands = [queue commandBufferWithDescriptor:explained];
    EXPECT_EQ(commands.errorOptions, explained.errorOptions);
    for (NSString* name in @[ @"first", @"second", @"third" ]) {
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      encoder.label = name;
      [encoder insertDebugSignpost:@"here"];
      bind_add(encoder);
      dispatch(encoder, 1, 1);
      [encoder endEncoding];
    }
    // The second of the three dispatches is refused.
    int runs = 0;
    fake::define("add", [&](const fake::Thread&) {
      if (++runs == 1) fake::set_next_outcome({{}, "planted refusal"});
    });
    finish(commands);
    NSArray<id<MTLCommandBufferEncoderInfo>>* all = commands.error.userInfo[MTLCommandBufferEncoderInfoErrorKey];
    ASSERT_EQ(all.count, 3u);
    EXPECT_STREQ(all[1].label.UTF8String, "second");
    EXPECT_STREQ(all[1].debugSignposts[0].UTF8String, "here");
    EXPECT_EQ(all[0].errorState, MTLCommandEncoderErrorStateCompleted);
    EXPECT_EQ(all[1].errorState, MTLCommandEncoderErrorStateFaulted);
    EXPECT_EQ(all[2].errorState, MTLCommandEncoderErrorStatePending);
    fake::define("add", {});
    metal_test_fail_command_buffer(1, MTLCommandBufferErrorInternal, false);
    EXPECT_TRUE(run_add().error.userInfo[MTLCommandBufferEncoderInfoErrorKey] == nil) << "nobody asked";
  }
  findings_wanted = true;
}

class CommandBufferErrors : public Faults, public ::testing::WithParamInterface<MTLCommandBufferError> {};

TEST_P(CommandBufferErrors, ReachStatusErrorAndHandlers) {
  @autoreleasepool {
    for (const bool late : {false, true}) {
      metal_test_fail_command_buffer(2, static_cast<long>(GetParam()), late);
      EXPECT_TRUE(run_add().error == nil);
      id<MTLBuffer> filled = buffer();
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
      [encoder fillBuffer:filled range:NSMakeRange(0, 4) value:1];
      [encoder endEncoding];
      __block NSInteger seen = 0;
      [commands addCompletedHandler:^(id<MTLCommandBuffer> done) {
        seen = done.error.code;
      }];
      finish(commands);
      EXPECT_EQ(commands.status, MTLCommandBufferStatusError);
      EXPECT_TRUE([commands.error.domain isEqualToString:MTLCommandBufferErrorDomain]);
      EXPECT_EQ(seen, static_cast<NSInteger>(GetParam()));
      EXPECT_EQ(*static_cast<char*>(filled.contents), late ? 1 : 0);
      EXPECT_EQ(run_add().status, MTLCommandBufferStatusCompleted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, CommandBufferErrors,
                         ::testing::Values(MTLCommandBufferErrorInternal, MTLCommandBufferErrorTimeout,
                                           MTLCommandBufferErrorPageFault, MTLCommandBufferErrorAccessRevoked,
                                           MTLCommandBufferErrorNotPermitted, MTLCommandBufferErrorOutOfMemory,
                                           MTLCommandBufferErrorInvalidResource, MTLCommandBufferErrorMemoryless,
                                           MTLCommandBufferErrorDeviceRemoved, MTLCommandBufferErrorStackOverflow));

TEST_F(Faults, ARemovedDeviceFailsEverything) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands encodeWaitForEvent:[device newEvent] value:1];
    metal_test_wait_timeout(30);
    [commands commit];
    metal_test_remove_device();
    [commands waitUntilCompleted];
    EXPECT_EQ(commands.error.code, static_cast<NSInteger>(MTLCommandBufferErrorDeviceRemoved));
    EXPECT_TRUE(MTLCreateSystemDefaultDevice() == nil);
    EXPECT_EQ(MTLCopyAllDevices().count, 0u);
    EXPECT_TRUE(buffer() == nil);
    EXPECT_TRUE([device newCommandQueue] == nil);
    EXPECT_TRUE(pipeline(@"add") == nil);
    metal_test_reset();
    EXPECT_TRUE(run_add().error == nil);
  }
}

TEST_F(Faults, CommandBuffersAreRefusedAsLongAsATestWants) {
  @autoreleasepool {
    metal_test_refuse_command_buffers(MTLCommandBufferErrorNotPermitted);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run_add().error.code, static_cast<NSInteger>(MTLCommandBufferErrorNotPermitted));
    metal_test_refuse_command_buffers(0);
    EXPECT_TRUE(run_add().error == nil);
  }
}

TEST_F(Faults, TheWorkingSetIsWhatATestSays) {
  const uint64_t usual = device.recommendedMaxWorkingSetSize;
  EXPECT_GT(usual, uint64_t{1} << 20);
  metal_test_working_set(1 << 20);
  EXPECT_EQ(device.recommendedMaxWorkingSetSize, uint64_t{1} << 20);
  metal_test_reset();
  EXPECT_EQ(device.recommendedMaxWorkingSetSize, usual);
}

TEST_F(Faults, CompletionMayBeSlow) {
  @autoreleasepool {
    metal_test_slow_completion(0.05);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    __block bool handled = false;
    [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
      handled = true;
    }];
    const auto start = std::chrono::steady_clock::now();
    [commands commit];
    EXPECT_LT(commands.status, MTLCommandBufferStatusCompleted);
    [commands waitUntilScheduled];
    [commands waitUntilCompleted];
    EXPECT_TRUE(handled);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
    EXPECT_GE(commands.GPUEndTime - commands.GPUStartTime, 0.05);
  }
}

TEST_F(Faults, ADispatchThatTheEngineRefusesFailsTheCommandBuffer) {
  findings_wanted = true;
  @autoreleasepool {
    fake::set_next_outcome({{}, "planted refusal"});
    id<MTLCommandBuffer> commands = run_add();
    EXPECT_EQ(commands.error.code, static_cast<NSInteger>(MTLCommandBufferErrorInternal));
    EXPECT_STREQ(commands.error.localizedDescription.UTF8String, "planted refusal");
  }
  EXPECT_EQ(metal_test_findings_of("dispatch-refused"), 1u);
}

}  // namespace
}  // namespace metal_framework
