// Right use of each part: results, order, and what the objects say of themselves.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "fixture.h"

namespace metal_framework {
namespace {

using Metal = Fixture;

float& first(id<MTLBuffer> buffer) { return *static_cast<float*>(buffer.contents); }

TEST_F(Metal, TheDeviceDescribesItself) {
  @autoreleasepool {
    EXPECT_STREQ(device.name.UTF8String, "Fake engine");
    EXPECT_EQ(device.maxThreadgroupMemoryLength, 32768u);
    EXPECT_EQ(device.maxThreadsPerThreadgroup.width, 1024u);
    EXPECT_TRUE(device.hasUnifiedMemory);
    EXPECT_TRUE([device supportsFamily:MTLGPUFamilyApple9]);
    EXPECT_FALSE([device supportsFamily:MTLGPUFamilyApple10]);
    metal_test_apple_family(7);
    EXPECT_TRUE([device supportsFamily:MTLGPUFamilyApple7]);
    EXPECT_FALSE([device supportsFamily:MTLGPUFamilyApple8]);
    EXPECT_GT(device.recommendedMaxWorkingSetSize, 0u);
    EXPECT_EQ(device.registryID, MTLCopyAllDevices()[0].registryID);
    EXPECT_TRUE([device conformsToProtocol:@protocol(MTLDevice)]);
    const NSUInteger before = device.currentAllocatedSize;
    @autoreleasepool {
      EXPECT_EQ(buffer(4096).length, 4096u);
    }
    EXPECT_EQ(device.currentAllocatedSize, before);
    id<MTLBuffer> kept = buffer(4096);
    EXPECT_EQ(device.currentAllocatedSize, before + kept.allocatedSize);
  }
}

TEST_F(Metal, NoCopyBuffersCallTheirDeallocator) {
  const auto page = static_cast<NSUInteger>(sysconf(_SC_PAGESIZE));
  void* const pages = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  __block NSUInteger freed = 0;
  @autoreleasepool {
    id<MTLBuffer> borrowed = [device newBufferWithBytesNoCopy:pages
                                                       length:page
                                                      options:MTLResourceStorageModeShared
                                                  deallocator:^(void* bytes, NSUInteger length) {
                                                    freed = length;
                                                    munmap(bytes, length);
                                                  }];
    EXPECT_EQ(borrowed.contents, pages);
    EXPECT_EQ(freed, 0u);
  }
  EXPECT_EQ(freed, page);
}

TEST_F(Metal, FunctionConstantsByIndexAndName) {
  @autoreleasepool {
    for (const bool by_name : {false, true}) {
      MTLFunctionConstantValues* values = [[MTLFunctionConstantValues alloc] init];
      const float factor = by_name ? 3 : 2;
      if (by_name)
        [values setConstantValue:&factor type:MTLDataTypeFloat withName:@"kFactor"];
      else
        [values setConstantValue:&factor type:MTLDataTypeFloat atIndex:1];
      id<MTLFunction> function = [library newFunctionWithName:@"axpy" constantValues:values error:nullptr];
      EXPECT_EQ(function.functionConstantsDictionary[@"kFactor"].index, 1u);
      id<MTLComputePipelineState> axpy = [device newComputePipelineStateWithFunction:function error:nullptr];
      id<MTLBuffer> x = buffer(), y = buffer();
      first(x) = 5;
      first(y) = 1;
      encode([&](id<MTLComputeCommandEncoder> e) {
        [e setComputePipelineState:axpy];
        [e setBuffer:x offset:0 atIndex:0];
        [e setBuffer:y offset:0 atIndex:1];
        dispatch(e);
      });
      EXPECT_EQ(first(y), 1 + factor * 5);
    }
  }
}

TEST_F(Metal, LibrariesFromDataFilesAndWithMacros) {
  @autoreleasepool {
    const char* const source = "kernel void NAME(device float* y [[buffer(0)]]) { }";
    std::vector<char> bytes(metal_test_make_library(source, nullptr, 0));
    metal_test_make_library(source, bytes.data(), bytes.size());
    dispatch_data_t data = dispatch_data_create(bytes.data(), bytes.size(), nil, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    NSError* error = nil;
    EXPECT_STREQ([device newLibraryWithData:data error:&error].functionNames[0].UTF8String, "NAME");
    NSURL* url = [NSURL fileURLWithPath:[NSTemporaryDirectory() stringByAppendingPathComponent:@"framework.metallib"]];
    [[NSData dataWithBytes:bytes.data() length:bytes.size()] writeToURL:url atomically:YES];
    EXPECT_EQ([device newLibraryWithURL:url error:&error].functionNames.count, 1u);
    [[NSFileManager defaultManager] removeItemAtURL:url error:nullptr];
    dispatch_data_t broken = dispatch_data_create("MTLB", 4, nil, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    EXPECT_TRUE([device newLibraryWithData:broken error:&error] == nil);
    MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
    options.preprocessorMacros = @{@"NAME" : @"chosen"};
    id<MTLLibrary> named = [device newLibraryWithSource:[NSString stringWithUTF8String:source] options:options error:&error];
    EXPECT_STREQ(named.functionNames[0].UTF8String, "chosen");
  }
}

TEST_F(Metal, PipelinesReflectTheirArguments) {
  @autoreleasepool {
    MTLComputePipelineReflection* reflection = nil;
    id<MTLComputePipelineState> state = [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"tiled"]
                                                                            options:MTLPipelineOptionBindingInfo
                                                                         reflection:&reflection
                                                                              error:nullptr];
    EXPECT_EQ(state.threadExecutionWidth, 32u);
    ASSERT_EQ(reflection.bindings.count, 2u);
    EXPECT_STREQ(reflection.bindings[0].name.UTF8String, "y");
    EXPECT_EQ(reflection.bindings[0].access, MTLBindingAccessReadWrite);
    EXPECT_EQ(((id<MTLBufferBinding>)reflection.bindings[0]).bufferDataSize, 16u);
    EXPECT_EQ(reflection.bindings[1].type, MTLBindingTypeThreadgroupMemory);
  }
}

// append: y = 2 * y + v. 1 then 2 gives 4; 2 then 1 gives 5.
TEST_F(Metal, BarriersOrderConcurrentDispatches) {
  @autoreleasepool {
    id<MTLComputePipelineState> append = pipeline(@"append");
    const auto result = [&](MTLDispatchType type, MTLBarrierScope barrier) {
      id<MTLBuffer> y = buffer();
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:type];
      [encoder setComputePipelineState:append];
      [encoder setBuffer:y offset:0 atIndex:0];
      for (const float v : {1.0f, 2.0f}) {
        [encoder setBytes:&v length:sizeof v atIndex:1];
        dispatch(encoder, 1, 1);
        if (barrier != 0) [encoder memoryBarrierWithScope:barrier];
      }
      [encoder endEncoding];
      finish(commands);
      return first(y);
    };
    constexpr MTLBarrierScope kNone = 0;
    EXPECT_EQ(result(MTLDispatchTypeSerial, kNone), 4);
    EXPECT_EQ(result(MTLDispatchTypeConcurrent, MTLBarrierScopeBuffers), 4);
    EXPECT_EQ(result(MTLDispatchTypeConcurrent, kNone), 5) << "the missing barrier must show";
    EXPECT_EQ(result(MTLDispatchTypeConcurrent, MTLBarrierScopeTextures), 5) << "one of something else is none for buffers";
    metal_test_reverse_concurrent(false);
    EXPECT_EQ(result(MTLDispatchTypeConcurrent, kNone), 4);
  }
}

TEST_F(Metal, IndirectDispatchesReadTheirGrid) {
  @autoreleasepool {
    id<MTLBuffer> grid = buffer(16), sum = buffer();
    const uint32_t counts[] = {0, 1, 1, 1};
    std::copy(counts, counts + 4, static_cast<uint32_t*>(grid.contents));
    id<MTLBuffer> one = buffer();
    for (NSUInteger i = 0; i < kCount; ++i) static_cast<float*>(one.contents)[i] = 1;
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e setBuffer:one offset:0 atIndex:0];
      [e setBuffer:sum offset:0 atIndex:2];
      [e dispatchThreadgroupsWithIndirectBuffer:grid indirectBufferOffset:4 threadsPerThreadgroup:MTLSizeMake(32, 1, 1)];
    });
    EXPECT_EQ(static_cast<float*>(sum.contents)[31], 1);
    EXPECT_EQ(static_cast<float*>(sum.contents)[32], 0);
  }
}

TEST_F(Metal, EnqueueKeepsTheOrder) {
  @autoreleasepool {
    id<MTLBuffer> shared = buffer();
    NSMutableArray<id<MTLCommandBuffer>>* all = [NSMutableArray array];
    for (const uint8_t value : {1, 2}) {
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      [commands enqueue];
      id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
      [encoder fillBuffer:shared range:NSMakeRange(0, 4) value:value];
      [encoder endEncoding];
      [all addObject:commands];
    }
    [all[1] commit];
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(*static_cast<char*>(shared.contents), 0);
    [all[0] commit];
    [all[1] waitUntilCompleted];
    EXPECT_EQ(*static_cast<char*>(shared.contents), 2);
  }
}

TEST_F(Metal, ArchivesRememberPipelines) {
  @autoreleasepool {
    NSError* error = nil;
    MTLComputePipelineDescriptor* wanted = [[MTLComputePipelineDescriptor alloc] init];
    wanted.computeFunction = [library newFunctionWithName:@"add"];
    wanted.label = @"sum";
    MTLBinaryArchiveDescriptor* fresh = [[MTLBinaryArchiveDescriptor alloc] init];
    id<MTLBinaryArchive> archive = [device newBinaryArchiveWithDescriptor:fresh error:&error];
    const auto strict = [&](id<MTLBinaryArchive> used) {
      wanted.binaryArchives = @[ used ];
      return [device newComputePipelineStateWithDescriptor:wanted
                                                   options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                                reflection:nullptr
                                                     error:nullptr];
    };
    EXPECT_TRUE(strict(archive) == nil);
    EXPECT_TRUE([archive addComputePipelineFunctionsWithDescriptor:wanted error:&error]);
    EXPECT_STREQ(strict(archive).label.UTF8String, "sum");
    fresh.url = [NSURL fileURLWithPath:[NSTemporaryDirectory() stringByAppendingPathComponent:@"framework.archive"]];
    EXPECT_TRUE([archive serializeToURL:fresh.url error:&error]);
    EXPECT_TRUE(strict([device newBinaryArchiveWithDescriptor:fresh error:&error]) != nil);
    [[NSFileManager defaultManager] removeItemAtURL:fresh.url error:nullptr];
    EXPECT_TRUE([device newBinaryArchiveWithDescriptor:fresh error:&error] == nil);
    EXPECT_EQ(error.code, static_cast<NSInteger>(MTLBinaryArchiveErrorInvalidFile));
  }
}

TEST_F(Metal, PassesSampleTimeStamps) {
  @autoreleasepool {
    MTLCounterSampleBufferDescriptor* descriptor = [[MTLCounterSampleBufferDescriptor alloc] init];
    descriptor.counterSet = device.counterSets[0];
    descriptor.sampleCount = 3;
    id<MTLCounterSampleBuffer> samples = [device newCounterSampleBufferWithDescriptor:descriptor error:nullptr];
    MTLComputePassDescriptor* pass = [MTLComputePassDescriptor computePassDescriptor];
    pass.sampleBufferAttachments[0].sampleBuffer = samples;
    pass.sampleBufferAttachments[0].startOfEncoderSampleIndex = 0;
    pass.sampleBufferAttachments[0].endOfEncoderSampleIndex = 1;
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDescriptor:pass];
    bind_add(encoder);
    dispatch(encoder);
    [encoder endEncoding];
    finish(commands);
    NSData* resolved = [samples resolveCounterRange:NSMakeRange(0, 3)];
    const auto* stamps = static_cast<const MTLCounterResultTimestamp*>(resolved.bytes);
    EXPECT_LE(stamps[0].timestamp, stamps[1].timestamp);
    EXPECT_EQ(stamps[2].timestamp, MTLCounterErrorValue);
  }
}

TEST_F(Metal, ResidencyFencesAndCaptures) {
  @autoreleasepool {
    MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
    descriptor.label = @"weights";
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:descriptor error:nullptr];
    id<MTLBuffer> held = buffer();
    [set addAllocation:held];
    [set commit];
    EXPECT_TRUE([set containsAllocation:held]);
    EXPECT_EQ(set.allocatedSize, held.length);
    [queue addResidencySet:set];
    for (const size_t requested : {size_t{0}, size_t{1}, size_t{0}}) {
      encode([&](id<MTLComputeCommandEncoder> e) { dispatch(e); });
      EXPECT_EQ(metal_test_resident_allocations(), 1u);
      EXPECT_EQ(metal_test_requested_allocations(), requested);
      if (requested == 0)
        [set requestResidency];
      else
        [set endResidency];
    }
    id<MTLFence> fence = [device newFence];
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e useResource:held usage:MTLResourceUsageRead];
      dispatch(e);
      [e updateFence:fence];
    });
    encode([&](id<MTLComputeCommandEncoder> e) {
      [e waitForFence:fence];
      dispatch(e);
    });
    [queue removeResidencySet:set];
    MTLCaptureManager* manager = [MTLCaptureManager sharedCaptureManager];
    MTLCaptureDescriptor* capture = [[MTLCaptureDescriptor alloc] init];
    NSError* error = nil;
    EXPECT_FALSE([manager startCaptureWithDescriptor:capture error:&error]);
    EXPECT_EQ(error.code, MTLCaptureErrorInvalidDescriptor);
    id<MTLCaptureScope> scope = [manager newCaptureScopeWithCommandQueue:queue];
    scope.label = @"step";
    capture.captureObject = scope;
    capture.destination = MTLCaptureDestinationGPUTraceDocument;
    capture.outputURL = [NSURL fileURLWithPath:@"step.gputrace"];
    EXPECT_TRUE([manager startCaptureWithDescriptor:capture error:&error]);
    [scope beginScope];
    [scope endScope];
    [manager stopCapture];
    EXPECT_FALSE(manager.isCapturing);
  }
}

TEST_F(Metal, ManyThreadsCommitToManyQueues) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      @autoreleasepool {
        id<MTLCommandQueue> own = [device newCommandQueue];
        id<MTLCommandBuffer> last = nil;
        for (int i = 0; i < 50; ++i) {
          @autoreleasepool {
            last = [own commandBuffer];
            id<MTLComputeCommandEncoder> encoder = [last computeCommandEncoder];
            bind_add(encoder);
            dispatch(encoder);
            [encoder endEncoding];
            [last commit];
          }
        }
        [last waitUntilCompleted];
        EXPECT_EQ(last.status, MTLCommandBufferStatusCompleted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace metal_framework
