// Long work is submitted in parts, so that the system does not end it.
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

using Submissions = DeviceTest;

// Work that is submitted in parts runs in order, and a fence keeps the order where memory is not tracked.
TEST_F(Submissions, PartsOfWorkRunInOrder) {
  open();
  auto on = stream();
  BufferRef y = buffer(64);
  floats(y)[0] = 0;
  KernelRef append_kernel = kernel("append", {});
  EXPECT_OK(on->split()) << "there is nothing to submit";
  EXPECT_OK(append(*on, append_kernel, y, 1));
  EXPECT_OK(on->split());
  EXPECT_OK(on->wait(UINT64_MAX));
  EXPECT_EQ(floats(y)[0], 1) << "it is submitted";
  EXPECT_OK(append(*on, append_kernel, y, 2));
  EXPECT_OK(on->fill(y, 32, 4, 7));  // in an encoder of its own, which waits, too
  EXPECT_OK(on->split());
  EXPECT_OK(append(*on, append_kernel, y, 3));
  EXPECT_OK(finish(*on));
  EXPECT_EQ(floats(y)[0], 1 * 4 + 2 * 2 + 3);
  EXPECT_EQ(y->host()[32], std::byte{7});
  EXPECT_EQ(metal_test::settings()->fence_waits, 3u);
  auto filled = stream();
  EXPECT_OK(filled->fill(y, 0, 64, 1));
  EXPECT_OK(filled->split()) << "whose fence is first updated by a fill";
  EXPECT_OK(filled->fill(y, 32, 4, 2));
  EXPECT_OK(finish(*filled));
  EXPECT_EQ(metal_test::settings()->fence_waits, 4u);
  metal_test::settings()->fail[metal_test::Fault::event] = 1;
  auto without = stream();
  EXPECT_OK(append(*without, append_kernel, y, 1));
  EXPECT_CODE(without->split(), MARLIN_E_MEMORY);
  EXPECT_OK(finish(*without));
}

TEST_F(Submissions, TheHostsCommandBufferIsNotSplit) {
  open();
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    auto on = stream(MARLIN_NATIVE_METAL_COMMAND_BUFFER, (__bridge void*)commands);
    BufferRef y = buffer(64);
    EXPECT_OK(on->fill(y, 0, 64, 1));
    EXPECT_OK(on->split());
    EXPECT_EQ(metal_test_live_objects("MTLFence"), 0) << "which the host's command buffer might not retain";
    EXPECT_EQ(commands.status, MTLCommandBufferStatusNotEnqueued);
    EXPECT_OK(on->commit());
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_EQ(y->host()[63], std::byte{1});
  }
}

}  // namespace
}  // namespace metal_marlin::metal
