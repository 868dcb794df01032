// A device, and a test that fails when objects are left or, unless it asks, when something is found.
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
  void SetUp() override {
    metal_test_reset();
    metal_test::settings()->wait_timeout = 0.05;
    device = MTLCreateSystemDefaultDevice();
    @autoreleasepool {
      queue = [device newCommandQueue];
    }
  }
  void TearDown() override {
    library = nil, queue = nil, device = nil;
    EXPECT_EQ(metal_test_check_leaks(), 0u) << report();
    if (!findings_wanted) EXPECT_EQ(metal_test_finding_count(), 0u) << report();
    metal_test_reset();
  }

  id<MTLComputePipelineState> pipeline(NSString* name) {
    MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
    descriptor.computeFunction = [library newFunctionWithName:name
                                               constantValues:[[MTLFunctionConstantValues alloc] init]
                                                        error:nullptr];
    return [device newComputePipelineStateWithDescriptor:descriptor
                                                 options:MTLPipelineOptionNone
                                              reflection:nullptr
                                                   error:nullptr];
  }
  id<MTLBuffer> buffer(NSUInteger bytes = 256) {
    return [device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
  }
  static void dispatch(id<MTLComputeCommandEncoder> encoder, NSUInteger groups = 2, NSUInteger group = 32) {
    [encoder dispatchThreadgroups:MTLSizeMake(groups, 1, 1) threadsPerThreadgroup:MTLSizeMake(group, 1, 1)];
  }
  static void finish(id<MTLCommandBuffer> commands) {
    [commands commit];
    [commands waitUntilCompleted];
  }
  // The only finding, whose kind and words are these.
  void expect_finding(const std::string& kind, const std::string& words = "") {
    findings_wanted = true;
    EXPECT_EQ(metal_test_finding_count(), 1u) << report();
    EXPECT_EQ(metal_test_findings_of(kind.c_str()), 1u) << report();
    EXPECT_THAT(report(), ::testing::HasSubstr(words));
  }

  bool findings_wanted = false;
  id<MTLDevice> device = nil;
  id<MTLLibrary> library = nil;
  id<MTLCommandQueue> queue = nil;
};

}  // namespace metal_framework
