// The framework over the shader test-bed: what only a compiler and a checker can say reaches the host.
#include "fixture.h"

namespace metal_framework {
namespace {

class Testbed : public Fixture {
 protected:
  void SetUp() override {
    Fixture::SetUp();
    @autoreleasepool {
      library =
          [device newLibraryWithSource:@"#include <metal_stdlib>\n"
                                        "using namespace metal;\n"
                                        "kernel void past(device float* y [[buffer(0)]], constant uint& by [[buffer(1)]],\n"
                                        "                 uint i [[thread_position_in_grid]]) {\n"
                                        "  y[i + by] = i;\n"
                                        "}\n"
                                        "kernel void tiled(device float4* y [[buffer(0)]],\n"
                                        "                  uint i [[thread_position_in_threadgroup]]) {\n"
                                        "  threadgroup float4 tile[64];\n"
                                        "  tile[i] = y[i];\n"
                                        "  y[i] = tile[i];\n"
                                        "}\n"
                                        "struct Place { device float* y; };\n"
                                        "kernel void there(constant Place& p [[buffer(0)]]) { *p.y = 1; }\n"
                               options:nil
                                 error:nullptr];
    }
  }
  // Writes 32 floats, `by` floats behind the beginning of a buffer of 32.
  float write(uint32_t by, NSUInteger offset = 0, NSUInteger bytes_of_by = 4) {
    id<MTLBuffer> y = buffer(128);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:pipeline(@"past")];
    [encoder setBuffer:y offset:offset atIndex:0];
    [encoder setBytes:&by length:bytes_of_by atIndex:1];
    dispatch(encoder, 2, 16);
    [encoder endEncoding];
    finish(commands);
    return static_cast<float*>(y.contents)[31];
  }
};

TEST_F(Testbed, RunsThreadgroups) {
  @autoreleasepool {
    EXPECT_EQ(write(0), 31);
  }
}

TEST_F(Testbed, FindsAccessesOutOfBounds) {
  @autoreleasepool {
    write(1);
  }
  expect_finding("out-of-bounds-write", "program_source:5");
}

TEST_F(Testbed, KnowsTheSizeOfWhatAReferenceNeeds) {
  @autoreleasepool {
    EXPECT_EQ(write(0, 0, 2), 0);
  }
  expect_finding("buffer-too-small");
}

TEST_F(Testbed, CompileErrorsNameTheLine) {
  @autoreleasepool {
    NSError* error = nil;
    NSString* const wrong = @"#include <metal_stdlib>\nkernel void past() { nothing = 1; }\n";
    EXPECT_TRUE([device newLibraryWithSource:wrong options:nil error:&error] == nil);
    EXPECT_THAT(error.localizedDescription.UTF8String, ::testing::HasSubstr("program_source:2"));
  }
}

TEST_F(Testbed, PipelinesSayWhatTheyNeed) {
  @autoreleasepool {
    id<MTLComputePipelineState> tiled = pipeline(@"tiled");
    EXPECT_EQ(tiled.staticThreadgroupMemoryLength, 64 * 16u);
    EXPECT_EQ(tiled.maxTotalThreadsPerThreadgroup, 1024u);
    EXPECT_EQ(tiled.threadExecutionWidth, 32u);
  }
}

TEST_F(Testbed, AddressesReachResidencySetsAlone) {
  @autoreleasepool {
    id<MTLBuffer> y = buffer(4);
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:[[MTLResidencySetDescriptor alloc] init] error:nullptr];
    [set addAllocation:y];
    [set commit];
    for (const bool resident : {true, false}) {
      EXPECT_EQ(metal_test_finding_count(), 0u) << report();
      const uint64_t place = y.gpuAddress;
      id<MTLCommandBuffer> commands = [queue commandBuffer];
      if (resident) [commands useResidencySet:set];
      id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
      [encoder setComputePipelineState:pipeline(@"there")];
      [encoder setBytes:&place length:sizeof place atIndex:0];
      dispatch(encoder, 1, 1);
      [encoder endEncoding];
      finish(commands);
      EXPECT_EQ(*static_cast<float*>(y.contents), 1);
    }
  }
  expect_finding("wild-pointer");
}

}  // namespace
}  // namespace metal_framework
