// Each way to misuse Metal, planted: it is found, said clearly, and does not end the program.
#include <vector>

#include "fake_engine.h"
#include "fixture.h"

namespace metal_framework {
namespace {

class Misuse : public Fixture {
 protected:
  void SetUp() override {
    Fixture::SetUp();
    @autoreleasepool {
      library = [device newLibraryWithSource:@"kernel void add(device const float* a [[buffer(0)]],\n"
                                              "                device float* sum [[buffer(1)]]) { }\n"
                                              "kernel void crowded(device float* y [[buffer(0)]]) {\n"
                                              "  threadgroup float all[8193];\n"
                                              "}\n"
                                              "[[max_total_threads_per_threadgroup(128)]]\n"
                                              "kernel void narrow(device float* y [[buffer(0)]]) { }\n"
                                     options:nil
                                       error:nullptr];
      add = pipeline(@"add");
    }
  }
  void TearDown() override {
    add = nil;
    Fixture::TearDown();
  }
  // Encodes what the block does after the bindings of `add`, ends and runs it.
  template <class Body>
  id<MTLCommandBuffer> encode(Body body) {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:add];
    for (NSUInteger i = 0; i < 2; ++i) [encoder setBuffer:buffer() offset:0 atIndex:i];
    body(encoder);
    [encoder endEncoding];
    finish(commands);
    return commands;
  }
  id<MTLComputePipelineState> add = nil;
};

TEST_F(Misuse, Bindings) {
  findings_wanted = true;
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) {
      [e setBuffer:nil offset:0 atIndex:1];
      dispatch(e);
    });
    encode([&](id<MTLComputeCommandEncoder> e) {
      id<MTLBuffer> tiny = buffer(2);
      tiny.label = @"tiny";
      [e setBuffer:tiny offset:0 atIndex:1];
      dispatch(e);
    });
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBuffer:buffer() offset:256 atIndex:1]; });
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e setBuffer:buffer() offset:2 atIndex:0];
      dispatch(e);
    });
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBuffer:buffer() offset:0 atIndex:31]; });
    const std::string bytes(4097, 'x');
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBytes:bytes.data() length:bytes.size() atIndex:5]; });
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBytes:bytes.data() length:0 atIndex:5]; });
  }
  for (const char* const words :
       {"missing-binding: kernel add needs 'sum' at index 1",
        "buffer-too-small: kernel add needs 'sum' at index 1, 4 bytes, and finds buffer 'tiny' (2 bytes) from byte 0",
        "offset-out-of-range: offset 256 at index 1", "misaligned-offset: kernel add needs 'a' at index 0, aligned to 4",
        "index-out-of-range: setBuffer: at index 31", "bytes-too-long: setBytes: of 4097", "nil-argument: setBytes:"})
    EXPECT_THAT(report(), ::testing::HasSubstr(words));
  EXPECT_EQ(metal_test_finding_count(), 7u) << report();
}

TEST_F(Misuse, Grids) {
  findings_wanted = true;
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) { dispatch(e, 0); });
    encode([](id<MTLComputeCommandEncoder> e) { dispatch(e, 2, 0); });
    for (NSString* name in @[ @"narrow", @"crowded" ]) {
      encode([&](id<MTLComputeCommandEncoder> e) {
        [e setComputePipelineState:pipeline(name)];
        dispatch(e, 2, 129);
      });
    }
  }
  for (const char* const words : {"wrong-grid: kernel add: the grid is 0 x 1 x 1", "the threadgroup is 0 x 1 x 1",
                                  "the pipeline allows 128 threads", "threadgroup-memory: kernel crowded: 32772 bytes"})
    EXPECT_THAT(report(), ::testing::HasSubstr(words));
  EXPECT_EQ(metal_test_finding_count(), 4u) << report();
}

TEST_F(Misuse, MissingPipeline) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    dispatch(encoder);
    [encoder endEncoding];
    finish(commands);
  }
  expect_finding("missing-pipeline");
}

TEST_F(Misuse, CommandsAfterCommit) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    commands.label = @"late";
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder endEncoding];
    [encoder setComputePipelineState:add];
    [commands waitUntilCompleted];
    finish(commands);
    [commands commit];
    EXPECT_TRUE([commands computeCommandEncoder] == nil);
    [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
      ADD_FAILURE() << "it must not run";
    }];
  }
  for (const char* const words :
       {"use-after-end: setComputePipelineState:", "wait-before-commit: waitUntilCompleted",
        "use-after-commit: command buffer 'late' is committed twice", "computeCommandEncoder on", "addCompletedHandler: on"})
    EXPECT_THAT(report(), ::testing::HasSubstr(words));
  EXPECT_EQ(metal_test_finding_count(), 5u) << report();
}

TEST_F(Misuse, EncodersThatStayOpen) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [first computeCommandEncoder];
    EXPECT_TRUE([first blitCommandEncoder] == nil);
    finish(first);
    @autoreleasepool {
      [second computeCommandEncoder];
    }
    finish(second);
    (void)encoder;
  }
  for (const char* const words : {"blitCommandEncoder on", "commit of", "released without endEncoding"})
    EXPECT_THAT(report(), ::testing::HasSubstr(words));
  EXPECT_EQ(metal_test_findings_of("encoding-not-ended"), 3u) << report();
}

TEST_F(Misuse, NeverCommitted) {
  @autoreleasepool {
    id<MTLCommandBuffer> later = [queue commandBuffer];
    @autoreleasepool {
      id<MTLCommandBuffer> forgotten = [queue commandBuffer];
      forgotten.label = @"forgotten";
      [forgotten enqueue];
    }
    finish(later);
    EXPECT_EQ(later.status, MTLCommandBufferStatusCompleted) << "it holds up nobody";
  }
  expect_finding("never-committed", "command buffer 'forgotten'");
}

TEST_F(Misuse, LeakedObject) {
  void* kept = nullptr;
  @autoreleasepool {
    kept = (__bridge_retained void*)buffer();
    EXPECT_EQ(metal_test_live_objects("MTLBuffer"), 1);
    library = nil, queue = nil, add = nil;
  }
  EXPECT_EQ(metal_test_check_leaks(), 1u);
  expect_finding("leak", "1 MTLBuffer still alive");
  (void)(__bridge_transfer id)kept;
}

// An earlier command buffer holds up the one whose objects go.
TEST_F(Misuse, UnretainedObjectsReleasedTooEarly) {
  findings_wanted = true;
  for (const std::string& name : {"buffer 'brief'", "the pipeline of kernel narrow", "residency set 'brief'"}) {
    metal_test::settings()->completion_delay = 0.05;
    @autoreleasepool {
      id<MTLCommandBuffer> before = [queue commandBuffer], commands = [queue commandBufferWithUnretainedReferences];
      @autoreleasepool {
        id<MTLBuffer> brief = buffer();
        brief.label = @"brief";
        MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
        descriptor.label = @"brief";
        id<MTLResidencySet> set = [device newResidencySetWithDescriptor:descriptor error:nullptr];
        if (name.starts_with("residency")) [commands useResidencySet:set];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
        if (name.starts_with("buffer")) [encoder setBuffer:brief offset:0 atIndex:0];
        if (name.starts_with("the pipeline")) [encoder setComputePipelineState:pipeline(@"narrow")];
        [encoder endEncoding];
        [before commit];
        [commands commit];
      }
      [commands waitUntilCompleted];
      EXPECT_EQ(commands.error.code, static_cast<NSInteger>(MTLCommandBufferErrorPageFault));
    }
    EXPECT_THAT(report(), ::testing::HasSubstr("needs " + name));
  }
  EXPECT_EQ(metal_test_findings_of("released-resource"), 3u) << report();
}

TEST_F(Misuse, BlitOutOfRangeOverlappingAndMisaligned) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLBuffer> a = buffer(64), b = buffer(32);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
    [encoder copyFromBuffer:a sourceOffset:0 toBuffer:b destinationOffset:16 size:32];
    [encoder copyFromBuffer:a sourceOffset:0 toBuffer:a destinationOffset:8 size:16];
    [encoder fillBuffer:a range:NSMakeRange(0, 3) value:1];
    [encoder endEncoding];
    finish(commands);
  }
  for (const char* const kind : {"out-of-range", "overlap", "blit-alignment"})
    EXPECT_EQ(metal_test_findings_of(kind), 1u) << report();
}

TEST_F(Misuse, BufferLengths) {
  findings_wanted = true;
  @autoreleasepool {
    EXPECT_TRUE(buffer(0) == nil);
    EXPECT_TRUE(buffer(device.maxBufferLength + 1) == nil);
    char some[32];
    EXPECT_TRUE([device newBufferWithBytesNoCopy:some + 1 length:8 options:MTLResourceStorageModeShared
                                     deallocator:nil] == nil);
    id<MTLBuffer> hidden = [device newBufferWithLength:16 options:MTLResourceStorageModePrivate];
    EXPECT_TRUE(hidden.contents == nullptr);
  }
  EXPECT_EQ(metal_test_findings_of("buffer-length"), 2u) << report();
  EXPECT_EQ(metal_test_findings_of("no-copy-alignment"), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("private-contents"), 1u) << report();
}

TEST_F(Misuse, FencesAndDebugGroups) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLFence> fence = [device newFence];
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e waitForFence:fence];
      [e popDebugGroup];
      [e pushDebugGroup:@"open"];
    });
  }
  EXPECT_EQ(metal_test_findings_of("fence-not-updated"), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("debug-groups"), 2u) << report();
}

// Encoders that fill memory which Metal does not track.
class Untracked : public Misuse {
 protected:
  void fill(id<MTLCommandBuffer> commands, id<MTLFence> wait, id<MTLFence> update, bool waits_late = false,
            bool updates_early = false) {
    id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
    if (wait != nil && !waits_late) [encoder waitForFence:wait];
    if (update != nil && updates_early) [encoder updateFence:update];
    [encoder fillBuffer:memory range:NSMakeRange(0, 64) value:1];
    if (wait != nil && waits_late) [encoder waitForFence:wait];
    if (update != nil && !updates_early) [encoder updateFence:update];
    [encoder endEncoding];
  }
  void SetUp() override {
    Misuse::SetUp();
    @autoreleasepool {
      memory = [device newBufferWithLength:64 options:MTLResourceHazardTrackingModeUntracked];
    }
  }
  void TearDown() override {
    memory = nil;
    Misuse::TearDown();
  }
  static void expect_hazards(size_t count) { EXPECT_EQ(metal_test_findings_of("untracked-hazard"), count) << report(); }
  id<MTLBuffer> memory = nil;
};

TEST_F(Untracked, MemoryIsOrderedByFencesAndByTheHost) {
  @autoreleasepool {
    id<MTLFence> first = [device newFence], second = [device newFence];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    fill(commands, nil, first);
    fill(commands, first, second);
    fill(commands, second, second);
    finish(commands);
    commands = [queue commandBuffer];
    fill(commands, nil, first);  // after the host has waited
    [commands commit];
    commands = [queue commandBuffer];
    fill(commands, first, nil);
    finish(commands);
  }
  expect_hazards(0);
}

TEST_F(Untracked, MemoryThatNothingOrders) {
  findings_wanted = true;
  @autoreleasepool {
    NSString* const mistakes[] = {@"none", @"late wait", @"early update", @"no wait", @"another fence"};
    for (NSString* mistake : mistakes) {
      id<MTLFence> fence = [device newFence], other = [device newFence];
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      memory.label = mistake;
      fill(commands, nil, other);
      fill(commands, other, fence, mistake == mistakes[1], mistake == mistakes[2]);
      fill(commands, mistake == mistakes[3] ? nil : mistake == mistakes[4] ? other : fence, nil);
      finish(commands);
      if (mistake == mistakes[0]) EXPECT_EQ(metal_test_finding_count(), 0u) << report();
    }
  }
  expect_hazards(4);
}

TEST_F(Untracked, MemoryThatACommandBufferBeforeMayStillUse) {
  findings_wanted = true;
  metal_test::settings()->completion_delay = 0.05;
  @autoreleasepool {
    id<MTLCommandBuffer> first = [queue commandBuffer], second = [queue commandBuffer];
    fill(first, nil, nil);
    fill(second, nil, nil);
    [first commit];
    finish(second);
  }
  expect_hazards(1);
}

TEST_F(Misuse, FencesOfTheSameEncoderAndOfAnotherQueue) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLFence> fence = [device newFence];
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e updateFence:fence];
      [e waitForFence:fence];
    });
    EXPECT_EQ(metal_test_findings_of("fence-order"), 1u) << report();
    id<MTLCommandBuffer> commands = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder waitForFence:fence];
    [encoder endEncoding];
    finish(commands);
  }
  EXPECT_EQ(metal_test_findings_of("fence-order"), 2u) << report();
}

TEST_F(Misuse, MoreCommandBuffersThanTheQueueHas) {
  findings_wanted = true;
  @autoreleasepool {
    std::vector<__strong id<MTLCommandBuffer>> all;
    for (int i = 0; i < 65; ++i) all.push_back([queue commandBuffer]);
    for (id<MTLCommandBuffer> each : all) finish(each);
  }
  expect_finding("too-many-command-buffers");
}

TEST_F(Misuse, ResidencyNotCommitted) {
  @autoreleasepool {
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:[[MTLResidencySetDescriptor alloc] init] error:nullptr];
    [set addAllocation:buffer()];
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands useResidencySet:set];
    finish(commands);
  }
  expect_finding("residency-not-committed");
}

TEST_F(Misuse, WhatTheEngineSaysIsPassedOn) {
  findings_wanted = true;
  @autoreleasepool {
    fake::set_next_outcome({{{"threadgroup-race", "gemv.metal:12: planted"}}, ""});
    EXPECT_EQ(encode([](id<MTLComputeCommandEncoder> e) { dispatch(e); }).status, MTLCommandBufferStatusCompleted);
    fake::set_next_outcome({{}, "planted refusal"});
    id<MTLCommandBuffer> refused = encode([](id<MTLComputeCommandEncoder> e) { dispatch(e); });
    EXPECT_EQ(refused.error.code, static_cast<NSInteger>(MTLCommandBufferErrorInternal));
    EXPECT_STREQ(refused.error.localizedDescription.UTF8String, "planted refusal");
  }
  EXPECT_THAT(report(), ::testing::HasSubstr("threadgroup-race: kernel add: gemv.metal:12: planted"));
  EXPECT_EQ(metal_test_findings_of("dispatch-refused"), 1u) << report();
}

TEST_F(Misuse, FastMathAndFastFunctionsWhereTheyAreNotWanted) {
  findings_wanted = true;
  @autoreleasepool {
    metal_test::settings()->requires_safe_math = true;
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.fastMathEnabled = NO;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
    EXPECT_EQ(metal_test_finding_count(), 0u) << report();
    options.mathMode = MTLMathModeRelaxed;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
    EXPECT_TRUE([device newLibraryWithSource:@"" options:nil error:nullptr] != nil);
    options.mathMode = MTLMathModeSafe;
    options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsFast;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
  }
  EXPECT_EQ(metal_test_findings_of("fast-math"), 2u) << report();
  EXPECT_THAT(report(), ::testing::HasSubstr("the sign of 0 (2 times)"));
  EXPECT_THAT(report(), ::testing::HasSubstr("fast functions"));
}

}  // namespace
}  // namespace metal_framework
