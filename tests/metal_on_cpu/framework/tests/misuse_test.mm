// Each way to misuse Metal, planted: it is found, said clearly, and does not end the program.
#include <unistd.h>

#include "fake_engine.h"
#include "fixture.h"

namespace metal_framework {
namespace {

using Misuse = Fixture;

TEST_F(Misuse, MissingBinding) {
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) {
      [e setBuffer:nil offset:0 atIndex:1];
      dispatch(e);
    });
  }
  expect_finding("missing-binding", "kernel add needs 'b' at index 1");
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

TEST_F(Misuse, BufferTooSmall) {
  @autoreleasepool {
    encode([&](id<MTLComputeCommandEncoder> e) {
      id<MTLBuffer> tiny = buffer(2);
      tiny.label = @"tiny";
      [e setBuffer:tiny offset:0 atIndex:2];
      dispatch(e);
    });
  }
  expect_finding("buffer-too-small", "'sum' at index 2, 4 bytes, and finds buffer 'tiny' (2 bytes) from byte 0");
}

TEST_F(Misuse, OffsetOutOfRange) {
  @autoreleasepool {
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBuffer:buffer() offset:kCount * 4 atIndex:2]; });
  }
  expect_finding("offset-out-of-range", "offset 256 at index 2");
}

TEST_F(Misuse, MisalignedOffset) {
  @autoreleasepool {
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e setBufferOffset:2 atIndex:0];
      dispatch(e);
    });
  }
  expect_finding("misaligned-offset", "aligned to 4");
}

TEST_F(Misuse, IndexOutOfRange) {
  @autoreleasepool {
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBuffer:buffer() offset:0 atIndex:31]; });
  }
  expect_finding("index-out-of-range", "index 31");
}

TEST_F(Misuse, BytesTooLong) {
  @autoreleasepool {
    const std::string bytes(4097, 'x');
    encode([&](id<MTLComputeCommandEncoder> e) { [e setBytes:bytes.data() length:bytes.size() atIndex:5]; });
  }
  expect_finding("bytes-too-long", "4097");
}

TEST_F(Misuse, EmptyGrid) {
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) { dispatch(e, 0); });
  }
  expect_finding("wrong-grid", "the grid is 0 x 1 x 1");
}

TEST_F(Misuse, EmptyThreadgroup) {
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) { dispatch(e, kCount, 0); });
  }
  expect_finding("wrong-grid", "the threadgroup is 0 x 1 x 1");
}

TEST_F(Misuse, ThreadgroupLargerThanThePipelineAllows) {
  @autoreleasepool {
    id<MTLComputePipelineState> narrow = pipeline(@"narrow");
    EXPECT_EQ(narrow.maxTotalThreadsPerThreadgroup, 128u);
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e setComputePipelineState:narrow];
      dispatch(e, 256, 129);
    });
  }
  expect_finding("wrong-grid", "the pipeline allows 128 threads");
}

TEST_F(Misuse, TooMuchThreadgroupMemory) {
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) {
      [e setThreadgroupMemoryLength:32768 + 16 atIndex:0];
      dispatch(e);
    });
  }
  expect_finding("threadgroup-memory", "32784 bytes");
}

TEST_F(Misuse, ThreadgroupMemoryInOddSizes) {
  @autoreleasepool {
    encode([](id<MTLComputeCommandEncoder> e) { [e setThreadgroupMemoryLength:20 atIndex:0]; });
  }
  expect_finding("threadgroup-memory", "no multiple of 16");
}

TEST_F(Misuse, ThreadgroupMemoryNotSet) {
  @autoreleasepool {
    id<MTLComputePipelineState> tiled = pipeline(@"tiled");
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e setComputePipelineState:tiled];
      dispatch(e);
    });
  }
  expect_finding("missing-binding", "threadgroup memory whose length is not set");
}

TEST_F(Misuse, CommitTwice) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    commands.label = @"twice";
    finish(commands);
    [commands commit];
  }
  expect_finding("use-after-commit", "command buffer 'twice' is committed twice");
}

TEST_F(Misuse, EncodeAfterCommit) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    finish(commands);
    EXPECT_TRUE([commands computeCommandEncoder] == nil);
  }
  expect_finding("use-after-commit", "computeCommandEncoder");
}

TEST_F(Misuse, HandlerAfterCommit) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    finish(commands);
    [commands addCompletedHandler:^(id<MTLCommandBuffer>) {
      ADD_FAILURE() << "it must not run";
    }];
  }
  expect_finding("use-after-commit", "addCompletedHandler:");
}

TEST_F(Misuse, EncodeAfterEnd) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder endEncoding];
    [encoder setComputePipelineState:add];
    finish(commands);
  }
  expect_finding("use-after-end", "setComputePipelineState:");
}

TEST_F(Misuse, EndEncodingMissing) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    bind_add(encoder);
    dispatch(encoder);
    finish(commands);
  }
  expect_finding("encoding-not-ended", "while an encoder is open");
}

TEST_F(Misuse, TwoEncodersAtOnce) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    EXPECT_TRUE([commands blitCommandEncoder] == nil);
    [encoder endEncoding];
    finish(commands);
  }
  expect_finding("encoding-not-ended", "blitCommandEncoder");
}

TEST_F(Misuse, EncoderReleasedWithoutEnd) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    @autoreleasepool {
      [commands computeCommandEncoder];
    }
    finish(commands);
  }
  expect_finding("encoding-not-ended", "released without endEncoding");
}

TEST_F(Misuse, NeverCommitted) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    commands.label = @"forgotten";
  }
  expect_finding("never-committed", "command buffer 'forgotten'");
}

TEST_F(Misuse, EnqueuedAndNeverCommittedHoldsUpNobody) {
  @autoreleasepool {
    id<MTLCommandBuffer> later = [queue commandBuffer];
    @autoreleasepool {
      [[queue commandBuffer] enqueue];
    }
    finish(later);
    EXPECT_EQ(later.status, MTLCommandBufferStatusCompleted);
  }
  expect_finding("never-committed");
}

TEST_F(Misuse, WaitBeforeCommit) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands waitUntilCompleted];
    finish(commands);
  }
  expect_finding("wait-before-commit");
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

TEST_F(Misuse, UnretainedBufferReleasedTooEarly) {
  @autoreleasepool {
    id<MTLSharedEvent> event = [device newSharedEvent];
    metal_test_wait_timeout(5);
    id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
    EXPECT_FALSE(commands.retainedReferences);
    [commands encodeWaitForEvent:event value:1];
    @autoreleasepool {
      id<MTLBuffer> brief = buffer();
      brief.label = @"brief";
      id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
      [encoder fillBuffer:brief range:NSMakeRange(0, 16) value:1];
      [encoder endEncoding];
      [commands commit];
    }
    event.signaledValue = 1;
    [commands waitUntilCompleted];
    EXPECT_EQ(commands.status, MTLCommandBufferStatusError);
    EXPECT_EQ(commands.error.code, static_cast<NSInteger>(MTLCommandBufferErrorPageFault));
  }
  expect_finding("released-resource", "buffer 'brief'");
}

TEST_F(Misuse, UnretainedPipelineOrResidencySetReleasedTooEarly) {
  findings_wanted = true;
  const char* const names[] = {"the pipeline of kernel append", "residency set 'brief'"};
  for (const bool set : {false, true}) {
    @autoreleasepool {
      id<MTLSharedEvent> event = [device newSharedEvent];
      metal_test_wait_timeout(5);
      id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
      [commands encodeWaitForEvent:event value:1];
      @autoreleasepool {
        MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
        descriptor.label = @"brief";
        id<MTLResidencySet> made = set ? [device newResidencySetWithDescriptor:descriptor error:nullptr] : nil;
        if (set) [commands useResidencySet:made];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
        if (!set) [encoder setComputePipelineState:pipeline(@"append")];
        [encoder endEncoding];
        [commands commit];
      }
      event.signaledValue = 1;
      [commands waitUntilCompleted];
      EXPECT_EQ(commands.error.code, static_cast<NSInteger>(MTLCommandBufferErrorPageFault));
    }
    EXPECT_EQ(metal_test_findings_of("released-resource"), set ? 2u : 1u);
    EXPECT_THAT(report(), ::testing::HasSubstr(names[set]));
  }
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
  EXPECT_EQ(metal_test_findings_of("out-of-range"), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("overlap"), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("blit-alignment"), 1u) << report();
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

TEST_F(Misuse, FencesEventsAndDebugGroups) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLFence> fence = [device newFence];
    id<MTLSharedEvent> event = [device newSharedEvent];
    event.signaledValue = 2;
    event.signaledValue = 1;
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e waitForFence:fence];
      [e pushDebugGroup:@"open"];
    });
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands popDebugGroup];
    [commands encodeWaitForEvent:event value:9];
    finish(commands);
    EXPECT_EQ(commands.error.code, static_cast<NSInteger>(MTLCommandBufferErrorTimeout));
  }
  EXPECT_EQ(metal_test_findings_of("fence-not-updated"), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("event-goes-back"), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("debug-groups"), 2u) << report();
  EXPECT_EQ(metal_test_findings_of("event-never-signaled"), 1u) << report();
}

TEST_F(Misuse, MoreCommandBuffersThanTheQueueHas) {
  @autoreleasepool {
    id<MTLCommandQueue> small = [device newCommandQueueWithMaxCommandBufferCount:1];
    id<MTLCommandBuffer> first = [small commandBuffer], second = [small commandBuffer];
    finish(first);
    finish(second);
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

TEST_F(Misuse, WhatTheShaderCheckerFindsIsPassedOn) {
  @autoreleasepool {
    fake::set_next_outcome({{{"threadgroup-race", "gemv.metal:12: planted"}}, ""});
    EXPECT_EQ(encode([](id<MTLComputeCommandEncoder> e) { dispatch(e); }).status, MTLCommandBufferStatusCompleted);
  }
  expect_finding("threadgroup-race", "kernel add: gemv.metal:12: planted");
}

TEST_F(Misuse, FastMathWhereItIsNotWanted) {
  @autoreleasepool {
    metal_test_require_safe_math(true);
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.fastMathEnabled = NO;
    EXPECT_EQ(options.mathMode, MTLMathModeSafe);
    EXPECT_EQ(options.mathFloatingPointFunctions, MTLMathFloatingPointFunctionsPrecise);
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
    EXPECT_EQ(metal_test_finding_count(), 0u) << report();
    options.mathMode = MTLMathModeRelaxed;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
    EXPECT_TRUE([device newLibraryWithSource:@"" options:nil error:nullptr] != nil);
  }
  expect_finding("fast-math");
  EXPECT_EQ(metal_test_finding_repeats(0), 2u);
}

TEST_F(Misuse, FastFunctionsWhereTheyAreNotWanted) {
  @autoreleasepool {
    metal_test_require_safe_math(true);
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.mathMode = MTLMathModeSafe;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
  }
  expect_finding("fast-math", "fast functions");
}

TEST_F(Misuse, LanguageVersions) {
  @autoreleasepool {
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.languageVersion = MTLLanguageVersion3_1;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:nullptr] != nil);
    options.languageVersion = (MTLLanguageVersion)(31);
    NSError* error = nil;
    EXPECT_TRUE([device newLibraryWithSource:@"" options:options error:&error] == nil);
    EXPECT_EQ(error.code, static_cast<NSInteger>(MTLLibraryErrorUnsupported));
  }
  expect_finding("language-version", "0.31");
}

TEST_F(Misuse, StaticThreadgroupMemoryCounts) {
  @autoreleasepool {
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e setComputePipelineState:pipeline(@"crowded")];
      [e setThreadgroupMemoryLength:16 atIndex:0];
      dispatch(e);
    });
  }
  expect_finding("threadgroup-memory", "32784 bytes");
}

TEST_F(Misuse, EqualFindingsAreCounted) {
  @autoreleasepool {
    for (int i = 0; i < 3; ++i) {
      encode([](id<MTLComputeCommandEncoder> e) { dispatch(e, 0); });
    }
  }
  expect_finding("wrong-grid");
  EXPECT_EQ(metal_test_finding_repeats(0), 3u);
  EXPECT_THAT(report(), ::testing::HasSubstr("(3 times)"));
}

}  // namespace
}  // namespace metal_framework
