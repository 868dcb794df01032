// A device, a library of small kernels, and a test that fails when objects are left or, unless it asks, when something is
// found.
#pragma once

#import <Metal/Metal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "metal_test_hooks.h"

namespace metal_framework {

inline std::string report() {
  std::string all(metal_test_report(nullptr, 0), '\0');
  metal_test_report(all.data(), all.size());
  all.pop_back();
  return all;
}

class Fixture : public ::testing::Test {
 protected:
  static constexpr NSUInteger kCount = 64;

  void SetUp() override {
    metal_test_reset();
    metal_test_wait_timeout(0.05);
    device = MTLCreateSystemDefaultDevice();
    @autoreleasepool {
      NSError* error = nil;
      library = [device
          newLibraryWithSource:@"constant float kFactor [[function_constant(1)]];\n"
                                "kernel void add(device const float* a [[buffer(0)]], device const float* b "
                                "[[buffer(1)]], device float* sum [[buffer(2)]]) { }\n"
                                "kernel void axpy(device const float* x [[buffer(0)]], device float* y [[buffer(1)]]) { }\n"
                                "kernel void append(device float* y [[buffer(0)]], constant float& v [[buffer(1)]]) { }\n"
                                "kernel void tiled(device float4* y [[buffer(0)]], threadgroup float* t "
                                "[[threadgroup(0)]]) { }\n"
                                "kernel void crowded(device float* y [[buffer(0)]]) { threadgroup float all[8192]; }\n"
                                "[[max_total_threads_per_threadgroup(128)]] kernel void narrow(device float* y "
                                "[[buffer(0)]]) { }\n"
                       options:nil
                         error:&error];
      queue = [device newCommandQueue];
      add = pipeline(@"add");
    }
  }
  void TearDown() override {
    library = nil;
    queue = nil;
    add = nil;
    device = nil;
    EXPECT_EQ(metal_test_check_leaks(), 0u) << report();
    if (!findings_wanted) EXPECT_EQ(metal_test_finding_count(), 0u) << report();
    metal_test_reset();
  }

  id<MTLComputePipelineState> pipeline(NSString* name) {
    return [device newComputePipelineStateWithFunction:[library newFunctionWithName:name] error:nullptr];
  }
  id<MTLBuffer> buffer(NSUInteger bytes = kCount * 4) {
    return [device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
  }
  void bind_add(id<MTLComputeCommandEncoder> encoder) {
    [encoder setComputePipelineState:add];
    for (NSUInteger i = 0; i < 3; ++i) [encoder setBuffer:buffer() offset:0 atIndex:i];
  }
  static void dispatch(id<MTLComputeCommandEncoder> encoder, NSUInteger grid = kCount, NSUInteger group = 32) {
    [encoder dispatchThreads:MTLSizeMake(grid, 1, 1) threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
  }
  static void finish(id<MTLCommandBuffer> commands) {
    [commands commit];
    [commands waitUntilCompleted];
  }
  // Encodes, ends and runs a dispatch of `add` that the block prepares.
  template <class Body>
  id<MTLCommandBuffer> encode(Body body) {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    bind_add(encoder);
    body(encoder);
    [encoder endEncoding];
    finish(commands);
    return commands;
  }
  // The only finding, whose kind and words are these.
  void expect_finding(const std::string& kind, const std::string& words = "") {
    findings_wanted = true;
    EXPECT_EQ(metal_test_finding_count(), 1u) << report();
    EXPECT_EQ(metal_test_findings_of(kind.c_str()), 1u) << report();
    if (!words.empty()) EXPECT_THAT(report(), ::testing::HasSubstr(words));
  }

  bool findings_wanted = false;
  id<MTLDevice> device = nil;
  id<MTLLibrary> library = nil;
  id<MTLCommandQueue> queue = nil;
  id<MTLComputePipelineState> add = nil;
};

}  // namespace metal_framework
