// Streams between a host's encoders that use memory which Metal does not track, as MLX's is.
#include "backends/metal/objects.h"
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

class Fences : public DeviceTest, public ::testing::WithParamInterface<marlin_native> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    open();
    @autoreleasepool {
      id<MTLDevice> metal = MTLCreateSystemDefaultDevice();
      queue = [metal newCommandQueue];
      before = [metal newFence], after = [metal newFence];
      x = untracked(), y = untracked();
    }
  }
  void TearDown() override {
    x = y = nullptr;
    @autoreleasepool {
      commands = nil, queue = nil, before = nil, after = nil;
    }
    DeviceTest::TearDown();
  }
  BufferRef untracked() const {
    id<MTLBuffer> made = [MTLCreateSystemDefaultDevice() newBufferWithLength:256
                                                                     options:MTLResourceHazardTrackingModeUntracked];
    return must(device->wrap_native((__bridge void*)made));
  }
  // An encoder of the host that sets what is in `to` to 0, or does nothing.
  void host(id<MTLFence> wait, id<MTLFence> update, const BufferRef& to = nullptr) {
    if (GetParam() == MARLIN_NATIVE_METAL_QUEUE || commands == nil) commands = [queue commandBuffer];
    id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
    if (wait != nil) [encoder waitForFence:wait];
    if (to != nullptr) [encoder fillBuffer:static_cast<const MetalBuffer&>(*to).buffer() range:NSMakeRange(0, 256) value:0];
    if (update != nil) [encoder updateFence:update];
    [encoder endEncoding];
    if (GetParam() == MARLIN_NATIVE_METAL_QUEUE) [commands commit];
  }
  std::unique_ptr<device::Stream> between(id<MTLFence> wait, id<MTLFence> update) {
    id native = GetParam() == MARLIN_NATIVE_METAL_QUEUE ? (id)queue : (id)commands;
    return must(device->stream({.kind = GetParam(),
                                .native = (__bridge void*)native,
                                .wait_fence = (__bridge void*)wait,
                                .update_fence = (__bridge void*)update}));
  }
  void run() {
    if (GetParam() == MARLIN_NATIVE_METAL_COMMAND_BUFFER) [commands commit];
    [commands waitUntilCompleted];
  }

  id<MTLCommandQueue> queue = nil;
  id<MTLCommandBuffer> commands = nil;  // the host's last
  id<MTLFence> before = nil, after = nil;
  BufferRef x, y;
};
INSTANTIATE_TEST_SUITE_P(, Fences, ::testing::Values(MARLIN_NATIVE_METAL_QUEUE, MARLIN_NATIVE_METAL_COMMAND_BUFFER),
                         [](const auto& info) { return info.param == MARLIN_NATIVE_METAL_QUEUE ? "Queue" : "CommandBuffer"; });

TEST_P(Fences, OrderEachEncoderWithTheHostsAndWithEachOther) {
  const KernelRef append_kernel = kernel("append", {});
  @autoreleasepool {
    host(nil, before, y);
    auto on = between(before, after);
    EXPECT_OK(append(*on, append_kernel, y, 1));
    EXPECT_OK(on->copy(y, 0, x, 0, 64));
    EXPECT_OK(on->barrier());
    EXPECT_OK(on->copy(x, 0, y, 64, 64));
    EXPECT_OK(on->commit());
    EXPECT_OK(append(*on, append_kernel, y, 2));
    EXPECT_OK(on->split());
    EXPECT_OK(append(*on, append_kernel, y, 3));
    EXPECT_OK(on->commit());
    host(after, before, y);  // and once more, with the same stream
    EXPECT_OK(on->fill(y, 0, 4, 0));
    EXPECT_OK(append(*on, append_kernel, y, 4));
    EXPECT_OK(on->commit());
    host(after, nil, x);
    run();
  }
  EXPECT_EQ(floats(y)[0], 4);
}

TEST_P(Fences, MayBeOneForBothAndNoneToWaitFor) {
  const KernelRef append_kernel = kernel("append", {});
  @autoreleasepool {
    if (GetParam() == MARLIN_NATIVE_METAL_COMMAND_BUFFER) commands = [queue commandBuffer];
    auto first = between(nil, after);  // nothing of the host is before it
    EXPECT_OK(append(*first, append_kernel, y, 1));
    EXPECT_OK(first->commit());
    auto on = between(after, after);
    EXPECT_OK(append(*on, append_kernel, y, 2));
    EXPECT_OK(on->fill(x, 0, 64, 1));
    EXPECT_OK(on->copy(y, 0, x, 0, 64));
    EXPECT_OK(on->commit());
    host(after, nil, y);
    run();
  }
  EXPECT_EQ(floats(x)[0], 4);
}

// Streams of one command buffer share its encoder, which waits for the fences of both.
TEST_P(Fences, OfAStreamThatJoinsAnOpenEncoder) {
  const KernelRef append_kernel = kernel("append", {});
  @autoreleasepool {
    id<MTLFence> other = [MTLCreateSystemDefaultDevice() newFence], last = [MTLCreateSystemDefaultDevice() newFence];
    host(nil, before, y);
    host(nil, other, x);
    auto first = between(before, after);
    EXPECT_OK(append(*first, append_kernel, y, 1));
    auto second = between(other, last);
    EXPECT_OK(append(*second, append_kernel, x, 2));
    EXPECT_OK(first->commit());
    EXPECT_OK(second->commit());
    host(after, nil, y);
    host(last, nil, x);
    run();
  }
}

TEST_P(Fences, OfAnotherKindAreRefused) {
  @autoreleasepool {
    commands = [queue commandBuffer];
    id native = GetParam() == MARLIN_NATIVE_METAL_QUEUE ? (id)queue : (id)commands;
    for (const bool waited : {false, true}) {
      id<MTLFence> wait = waited ? (id<MTLFence>)queue : before, update = waited ? after : (id<MTLFence>)queue;
      const Status refused = device
                                 ->stream({.kind = GetParam(),
                                           .native = (__bridge void*)native,
                                           .wait_fence = (__bridge void*)wait,
                                           .update_fence = (__bridge void*)update})
                                 .status();
      EXPECT_CODE(refused, MARLIN_E_ARGUMENT);
      EXPECT_THAT(refused.message(), ::testing::HasSubstr("fence is no MTLFence"));
    }
    [commands commit];
    [commands waitUntilCompleted];
  }
}

}  // namespace
}  // namespace metal_marlin::metal
