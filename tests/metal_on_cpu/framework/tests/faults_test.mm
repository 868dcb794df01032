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
