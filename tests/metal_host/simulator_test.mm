// The host as it is compiled for a simulator.
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

TEST_F(DeviceTest, ASimulatorHasNone) {
  EXPECT_CODE(describe(0).status(), MARLIN_E_NO_DEVICE);
  EXPECT_THAT(describe(0).status().message(), ::testing::HasSubstr("the CPU serves there"));
  DeviceOptions hosts = options();
  @autoreleasepool {
    id<MTLDevice> native = MTLCreateSystemDefaultDevice();
    hosts.native = (__bridge void*)native;
    for (const DeviceOptions& each : {options(), hosts}) EXPECT_CODE(create_device(each).status(), MARLIN_E_NO_DEVICE);
  }
}

}  // namespace
}  // namespace metal_marlin::metal
