// The framework over the shader test-bed: what only a compiler and a checker can say reaches the host.
#import <Metal/Metal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "metal_test_hooks.h"

namespace {

NSString* const kSource = @"#include <metal_stdlib>\n"
                           "using namespace metal;\n"
                           "kernel void past(device float* y [[buffer(0)]], constant uint& by [[buffer(1)]],\n"
                           "                 uint i [[thread_position_in_grid]]) {\n"
                           "  y[i + by] = i;\n"
                           "}\n";

class Testbed : public ::testing::Test {
 protected:
  void SetUp() override { metal_test_reset(); }
  void TearDown() override {
    EXPECT_EQ(metal_test_check_leaks(), 0u);
    metal_test_reset();
  }
  // Writes 40 floats, in threadgroups of 16, `by` floats behind the beginning of a buffer of 40.
  static float write(uint32_t by, NSUInteger bytes_of_by = 4) {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLLibrary> library = [device newLibraryWithSource:kSource options:nil error:nullptr];
    id<MTLComputePipelineState> past = [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"past"]
                                                                             error:nullptr];
    id<MTLBuffer> y = [device newBufferWithLength:160 options:MTLResourceStorageModeShared];
    id<MTLCommandBuffer> commands = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:past];
    [encoder setBuffer:y offset:0 atIndex:0];
    [encoder setBytes:&by length:bytes_of_by atIndex:1];
    [encoder dispatchThreads:MTLSizeMake(40, 1, 1) threadsPerThreadgroup:MTLSizeMake(16, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    return static_cast<float*>(y.contents)[39];
  }
};

TEST_F(Testbed, RunsThreadgroupsThatAreNotWhole) {
  @autoreleasepool {
    EXPECT_EQ(write(0), 39);
  }
  EXPECT_EQ(metal_test_finding_count(), 0u) << metal_test_finding(0);
}

TEST_F(Testbed, FindsAccessesOutOfBounds) {
  @autoreleasepool {
    write(1);
  }
  ASSERT_EQ(metal_test_finding_count(), 1u);
  EXPECT_THAT(metal_test_finding(0), ::testing::HasSubstr("out-of-bounds"));
  EXPECT_THAT(metal_test_finding(0), ::testing::HasSubstr("program_source:5"));
}

TEST_F(Testbed, KnowsTheSizeOfWhatAReferenceNeeds) {
  @autoreleasepool {
    EXPECT_EQ(write(0, 2), 0);
  }
  EXPECT_EQ(metal_test_findings_of("buffer-too-small"), 1u);
}

TEST_F(Testbed, CompileErrorsNameTheLine) {
  @autoreleasepool {
    NSError* error = nil;
    NSString* wrong = [kSource stringByReplacingOccurrencesOfString:@"= i;" withString:@"= nothing;"];
    EXPECT_TRUE([MTLCreateSystemDefaultDevice() newLibraryWithSource:wrong options:nil error:&error] == nil);
    EXPECT_THAT(error.localizedDescription.UTF8String, ::testing::HasSubstr("program_source:5"));
  }
}

TEST_F(Testbed, PipelinesAndFunctionsSayWhatTheyNeed) {
  @autoreleasepool {
    NSString* source = @"#include <metal_stdlib>\n"
                        "using namespace metal;\n"
                        "constant ushort kRows [[function_constant(2)]];\n"
                        "kernel void tiled(device float4* y [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {\n"
                        "  threadgroup float4 tile[64];\n"
                        "  tile[i] = y[i];\n"
                        "  y[i] = tile[i] * float(kRows);\n"
                        "}\n";
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    NSError* error = nil;
    id<MTLLibrary> library = [device newLibraryWithSource:source options:nil error:&error];
    ASSERT_TRUE(library != nil) << error.localizedDescription.UTF8String;
    MTLFunctionConstantValues* values = [[MTLFunctionConstantValues alloc] init];
    const uint16_t rows = 64;
    [values setConstantValue:&rows type:MTLDataTypeUShort withName:@"kRows"];
    id<MTLFunction> function = [library newFunctionWithName:@"tiled" constantValues:values error:nullptr];
    EXPECT_EQ(function.functionConstantsDictionary[@"kRows"].type, MTLDataTypeUShort);
    EXPECT_EQ(function.functionConstantsDictionary[@"kRows"].index, 2u);
    id<MTLComputePipelineState> state = [device newComputePipelineStateWithFunction:function error:nullptr];
    EXPECT_EQ(state.staticThreadgroupMemoryLength, 64 * 16u);
    EXPECT_EQ(state.maxTotalThreadsPerThreadgroup, 1024u);
    EXPECT_EQ(state.threadExecutionWidth, 32u);
  }
}

// y[i] = x[i] + 1, the buffers given by their addresses.
class Addresses : public Testbed {
 protected:
  void SetUp() override {
    Testbed::SetUp();
    @autoreleasepool {
      device = MTLCreateSystemDefaultDevice();
      id<MTLLibrary> library = [device newLibraryWithSource:@"#include <metal_stdlib>\n"
                                                             "struct Places { device const float* x; device float* y; };\n"
                                                             "kernel void next(constant Places& p [[buffer(0)]],\n"
                                                             "                 uint i [[thread_position_in_grid]]) {\n"
                                                             "  p.y[i] = p.x[i] + 1;\n"
                                                             "}\n"
                                                    options:nil
                                                      error:nullptr];
      next = [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"next"] error:nullptr];
      x = [device newBufferWithLength:32 options:MTLResourceStorageModeShared];
      y = [device newBufferWithLength:32 options:MTLResourceStorageModeShared];
      static_cast<float*>(x.contents)[7] = 4;
    }
  }
  void TearDown() override {
    device = nil, next = nil, x = nil, y = nil;
    Testbed::TearDown();
  }
  template <class Prepare>
  float run(Prepare prepare) {
    const uint64_t places[] = {x.gpuAddress, y.gpuAddress};
    id<MTLCommandBuffer> commands = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:next];
    [encoder setBytes:places length:sizeof places atIndex:0];
    prepare(commands, encoder);
    [encoder dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    return static_cast<float*>(y.contents)[7];
  }
  id<MTLDevice> device = nil;
  id<MTLComputePipelineState> next = nil;
  id<MTLBuffer> x = nil, y = nil;
};

TEST_F(Addresses, ReachResourcesThatAreUsed) {
  @autoreleasepool {
    const float found = run([&](id<MTLCommandBuffer>, id<MTLComputeCommandEncoder> encoder) {
      [encoder useResource:x usage:MTLResourceUsageRead];
      [encoder useResource:y usage:MTLResourceUsageRead | MTLResourceUsageWrite];
    });
    EXPECT_EQ(found, 5);
  }
  EXPECT_EQ(metal_test_finding_count(), 0u) << metal_test_finding(0);
}

TEST_F(Addresses, ReachResidencySets) {
  @autoreleasepool {
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:[[MTLResidencySetDescriptor alloc] init] error:nullptr];
    [set addAllocation:x];
    [set addAllocation:y];
    [set commit];
    const float found =
        run([&](id<MTLCommandBuffer> commands, id<MTLComputeCommandEncoder>) { [commands useResidencySet:set]; });
    EXPECT_EQ(found, 5);
  }
  EXPECT_EQ(metal_test_finding_count(), 0u) << metal_test_finding(0);
}

TEST_F(Addresses, ThatNobodyDeclaredAreFindings) {
  @autoreleasepool {
    run([](id<MTLCommandBuffer>, id<MTLComputeCommandEncoder>) {});
  }
  EXPECT_EQ(metal_test_findings_of("wild-pointer"), 1u);
}

TEST_F(Addresses, OfWhatIsOnlyReadCannotBeWritten) {
  @autoreleasepool {
    run([&](id<MTLCommandBuffer>, id<MTLComputeCommandEncoder> encoder) {
      [encoder useResource:x usage:MTLResourceUsageRead];
      [encoder useResource:y usage:MTLResourceUsageRead];
    });
  }
  EXPECT_EQ(metal_test_findings_of("write-to-constant"), 1u);
}

TEST_F(Testbed, OffsetsThatTheKernelCannotUseAreFindings) {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    id<MTLLibrary> library = [device newLibraryWithSource:kSource options:nil error:nullptr];
    id<MTLComputePipelineState> past = [device newComputePipelineStateWithFunction:[library newFunctionWithName:@"past"]
                                                                             error:nullptr];
    id<MTLBuffer> y = [device newBufferWithLength:160 options:MTLResourceStorageModeShared];
    id<MTLCommandBuffer> commands = [[device newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    const uint32_t none = 0;
    [encoder setComputePipelineState:past];
    [encoder setBuffer:y offset:2 atIndex:0];
    [encoder setBytes:&none length:4 atIndex:1];
    [encoder dispatchThreads:MTLSizeMake(8, 1, 1) threadsPerThreadgroup:MTLSizeMake(8, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
  }
  EXPECT_EQ(metal_test_findings_of("misaligned-access"), 1u);
}

TEST_F(Testbed, DamagedCompiledLibrariesAreRefused) {
  @autoreleasepool {
    dispatch_data_t broken = dispatch_data_create("MTLB", 4, nil, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    NSError* error = nil;
    EXPECT_TRUE([MTLCreateSystemDefaultDevice() newLibraryWithData:broken error:&error] == nil);
    EXPECT_TRUE([error.domain isEqualToString:MTLLibraryErrorDomain]);
    EXPECT_TRUE([MTLCreateSystemDefaultDevice() newDefaultLibrary] == nil);
  }
}

}  // namespace
