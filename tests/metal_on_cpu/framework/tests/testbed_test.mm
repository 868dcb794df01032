// The framework over the shader test-bed: what only a compiler and a checker can say reaches the host.
#import <Metal/Metal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
