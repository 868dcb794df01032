// Streams on command buffers and encoders of the host: what is recorded there lives as long as the GPU may use it, and one
// encoder is open at a time.
#include <sys/mman.h>

#include "backends/metal/objects.h"
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

using ::testing::HasSubstr;

class HostRecords : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    open();
    @autoreleasepool {
      queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    }
  }
  void TearDown() override {
    queue = nil;
    DeviceTest::TearDown();
  }
  std::unique_ptr<device::Stream> on(id<MTLCommandBuffer> commands) {
    return stream(MARLIN_NATIVE_METAL_COMMAND_BUFFER, (__bridge void*)commands);
  }
  Status refusal(id<MTLCommandBuffer> commands) {
    return device->stream({MARLIN_NATIVE_METAL_COMMAND_BUFFER, (__bridge void*)commands}).status();
  }
  static void finish_commands(id<MTLCommandBuffer> commands) {
    [commands commit];
    [commands waitUntilCompleted];
  }
  id<MTLCommandQueue> queue = nil;
};

/// Pages of the host, wrapped.
class Pages {
 public:
  explicit Pages(device::Device& device) : bytes_(device.capabilities().page_bytes) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Pages() { munmap(memory_, bytes_); }
  BufferRef wrap(device::Device& device) const { return must(device.wrap(memory_, bytes_, Placement::shared)); }
  float* floats() const { return static_cast<float*>(memory_); }

 private:
  const size_t bytes_;
  void* memory_;
};

class References : public HostRecords, public ::testing::WithParamInterface<bool> {
 protected:
  id<MTLCommandBuffer> make() const {
    return GetParam() ? [queue commandBufferWithUnretainedReferences] : [queue commandBuffer];
  }
};
INSTANTIATE_TEST_SUITE_P(, References, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Unretained" : "Retained"; });

// The stream, the device with its pipelines, weights and wrapped pages all go before the host commits.
TEST_P(References, KeepWhatIsRecordedUntilItCompleted) {
  const Pages pages(*device);
  std::weak_ptr<device::Buffer> weights, wrapped;
  @autoreleasepool {
    id<MTLCommandBuffer> commands = make();
    @autoreleasepool {
      auto stream = on(commands);
      BufferRef x = buffer(64, Placement::device), y = pages.wrap(*device), z = buffer(64);
      weights = x, wrapped = y;
      floats(x)[0] = 21;
      EXPECT_OK(stream->fill(z, 1, 3, 0));  // by a kernel of the host's own
      EXPECT_OK(scale(*stream, kernel("scale"), x, y, 1));
      EXPECT_OK(stream->barrier());
      EXPECT_OK(stream->copy(y, 0, z, 4, 4));
      EXPECT_OK(stream->barrier());
      EXPECT_OK(stream->copy(z, 4, y, 8, 4));
      EXPECT_OK(stream->commit());
    }
    device.reset();
    EXPECT_FALSE(weights.expired() || wrapped.expired()) << "nothing has run yet";
    metal_test::settings()->completion_delay = 0.02;
    finish_commands(commands);
    EXPECT_EQ(commands.status, MTLCommandBufferStatusCompleted);
    EXPECT_EQ(pages.floats()[0], 42);
    EXPECT_EQ(pages.floats()[2], 42);
    EXPECT_TRUE(weights.expired() && wrapped.expired()) << "the GPU is done with them";
  }
}

TEST_P(References, LetGoWhenTheyCompletedThoughTheirStreamGoesOn) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = make();
    auto stream = on(commands);
    BufferRef y = buffer(64, Placement::device);
    const std::weak_ptr<device::Buffer> watched = y;
    EXPECT_OK(stream->fill(y, 0, 64, 1));
    EXPECT_OK(stream->commit());
    y.reset();
    EXPECT_FALSE(watched.expired());
    finish_commands(commands);
    EXPECT_EQ(commands.status, MTLCommandBufferStatusCompleted);
    EXPECT_TRUE(watched.expired());
  }
}

TEST_P(References, LetGoWhenNobodyCommits) {
  findings_wanted = true;  // the framework tells of command buffers that nobody commits
  std::weak_ptr<device::Buffer> watched;
  @autoreleasepool {
    id<MTLCommandBuffer> commands = make();
    auto stream = on(commands);
    BufferRef y = buffer(64, Placement::device);
    watched = y;
    EXPECT_OK(stream->fill(y, 0, 64, 1));
    EXPECT_OK(stream->commit());
  }
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(metal_test_finding_count(), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("never-committed"), 1u) << report();
}

// Metal does not tell which command buffer an encoder is of: the stream keeps all itself.
TEST_P(References, OfAnEncoderAreKeptByItsStream) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = make();
    std::weak_ptr<device::Buffer> weights;
    const Pages pages(*device);
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    auto on_encoder = stream(MARLIN_NATIVE_METAL_ENCODER, (__bridge void*)encoder);
    @autoreleasepool {
      BufferRef x = buffer(64, Placement::device), y = pages.wrap(*device);
      weights = x;
      floats(x)[0] = 4;
      EXPECT_OK(scale(*on_encoder, kernel("scale"), x, y, 1));
      EXPECT_OK(on_encoder->commit());
    }
    device.reset();
    [encoder endEncoding];
    finish_commands(commands);
    EXPECT_EQ(commands.status, MTLCommandBufferStatusCompleted);
    EXPECT_EQ(pages.floats()[0], 8);
    EXPECT_FALSE(weights.expired());
    on_encoder.reset();
    EXPECT_TRUE(weights.expired());
  }
}

TEST_F(HostRecords, OfAStreamsOwnAreKeptUntilTheyCompleted) {
  auto own = stream();
  BufferRef y = buffer(64, Placement::device);
  const std::weak_ptr<device::Buffer> watched = y;
  metal_test::settings()->completion_delay = 0.05;
  EXPECT_OK(own->fill(y, 0, 64, 1));
  EXPECT_OK(own->commit());
  y.reset();
  EXPECT_FALSE(watched.expired()) << "memory counts as used while the GPU uses it";
  EXPECT_OK(own->wait(UINT64_MAX));
  EXPECT_TRUE(watched.expired());
}

// What no longer takes commands: Metal would end the program.
TEST_F(HostRecords, ThatAreCommittedAreRefused) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    [commands enqueue];
    {
      auto enqueued = on(commands);
      EXPECT_OK(enqueued->fill(buffer(64), 0, 64, 1)) << "one that has its place in the queue may be recorded";
      EXPECT_OK(enqueued->commit());
    }
    metal_test::settings()->completion_delay = 0.05;
    [commands commit];
    EXPECT_CODE(refusal(commands), MARLIN_E_ARGUMENT);
    EXPECT_THAT(refusal(commands).message(), HasSubstr("the host's command buffer is committed"));
    [commands waitUntilCompleted];
    EXPECT_CODE(refusal(commands), MARLIN_E_ARGUMENT);
    id<MTLCommandBuffer> failed = [queue commandBuffer];
    metal_test::settings()->command_buffer = {1, MTLCommandBufferErrorPageFault, false};
    finish_commands(failed);
    EXPECT_CODE(refusal(failed), MARLIN_E_ARGUMENT);
  }
}

TEST_F(HostRecords, TakeNoMoreOnceTheHostHasCommitted) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    auto stream = on(commands);
    BufferRef x = buffer(64), y = buffer(64);
    EXPECT_OK(stream->fill(x, 0, 64, 1));
    EXPECT_OK(stream->commit());
    finish_commands(commands);
    EXPECT_OK(stream->commit()) << "nothing is left to flush";
    for (const Status& refused :
         {stream->fill(x, 0, 64, 2), stream->copy(x, 0, y, 0, 64), scale(*stream, kernel("scale"), x, y, 1)}) {
      EXPECT_EQ(refused.code(), MARLIN_E_ARGUMENT);
      EXPECT_THAT(refused.message(), HasSubstr("the host's command buffer is committed"));
    }
    EXPECT_EQ(x->host()[0], std::byte{1});
  }
}

TEST_F(HostRecords, CommittedBeforeAFlushAreAnErrorOfTheFlush) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    auto stream = on(commands);
    BufferRef x = buffer(64);
    EXPECT_OK(stream->fill(x, 0, 64, 1));
    EXPECT_OK(stream->barrier());  // which ends the encoder of a fill
    finish_commands(commands);
    const Status late = stream->commit();
    EXPECT_EQ(late.code(), MARLIN_E_ARGUMENT);
    EXPECT_THAT(late.message(), HasSubstr("the host's command buffer is committed"));
  }
}

TEST_F(HostRecords, OfSeveralStreamsHaveOneEncoder) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
    BufferRef y = buffer(64);
    floats(y)[0] = 0;
    KernelRef append_kernel = kernel("append", {});
    auto first = on(commands);
    EXPECT_OK(append(*first, append_kernel, y, 1));
    auto second = on(commands);
    EXPECT_OK(second->barrier());
    EXPECT_OK(append(*second, append_kernel, y, 2));
    EXPECT_OK(first->barrier());
    EXPECT_OK(append(*first, append_kernel, y, 3));
    EXPECT_OK(first->barrier());
    EXPECT_OK(first->fill(y, 32, 4, 7));  // in an encoder of another kind
    first.reset();
    EXPECT_OK(second->fill(y, 36, 4, 8));
    EXPECT_OK(second->barrier());
    EXPECT_OK(append(*second, append_kernel, y, 4));
    EXPECT_OK(second->commit());
    id<MTLBlitCommandEncoder> its = [commands blitCommandEncoder];
    EXPECT_TRUE(its != nil) << "no encoder is left open";
    [its endEncoding];
    EXPECT_OK(on(commands)->commit()) << "a stream that records nothing";
    finish_commands(commands);
    EXPECT_EQ(floats(y)[0], 1 * 8 + 2 * 4 + 3 * 2 + 4);
    EXPECT_EQ(y->host()[32], std::byte{7});
    EXPECT_EQ(y->host()[36], std::byte{8});
  }
}

// Nobody can ask Metal whether the host's own encoder is open; Metal ends the program, and the framework finds it.
TEST_F(HostRecords, WithAnEncoderOfTheHostOpenAreMisuse) {
  findings_wanted = true;
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    auto stream = on(commands);
    const Status refused = stream->fill(buffer(64), 0, 64, 1);
    EXPECT_EQ(refused.code(), MARLIN_E_MEMORY);
    EXPECT_THAT(refused.message(), HasSubstr("is one of the host's open?"));
    [encoder endEncoding];
    finish_commands(commands);
  }
  EXPECT_EQ(metal_test_finding_count(), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("encoding-not-ended"), 1u) << report();
}

// Streams rely on Metal's own records of what encoders use: nothing else orders a fill before the dispatch that reads it.
TEST_F(HostRecords, AreOrderedByBuffersThatMetalTracks) {
  BufferRef x = buffer(64), y = buffer(64, Placement::device);
  const Pages pages(*device);
  @autoreleasepool {
    for (const BufferRef& made : {x, y, pages.wrap(*device)})
      EXPECT_EQ(static_cast<const MetalBuffer&>(*made).buffer().hazardTrackingMode, MTLHazardTrackingModeTracked);
  }
}

TEST_F(HostRecords, LabelsAreForACapture) {
  open();
  const KernelRef made = kernel("scale");
  const BufferRef x = buffer(), y = buffer();
  auto on = stream();
  for (const bool capturing : {false, true}) {
    metal_test::settings()->captures = capturing;
    EXPECT_OK(scale(*on, made, x, y, 4));
    EXPECT_EQ(metal_test::settings()->debug_groups, capturing ? 1u : 0u);
  }
  EXPECT_OK(finish(*on));
}

// --- memory that stays resident ---------------------------------------------------------------------------------------------

TEST_F(HostRecords, DestroyedMemoryIsLetGoAtOnce) {
  const long before = metal_test_live_objects("MTLBuffer");
  BufferRef first = buffer(64, Placement::device), second = buffer(64, Placement::device);
  auto own = stream();
  EXPECT_OK(own->copy(first, 0, second, 0, 64));
  EXPECT_OK(finish(*own));
  first.reset();
  EXPECT_EQ(metal_test_live_objects("MTLBuffer"), before + 1) << "nothing else has to run for that";
  second.reset();
  EXPECT_EQ(metal_test_live_objects("MTLBuffer"), before);
}

// Where shaders are compiled the test-bed refuses a pointer to memory that is not resident.
TEST_F(HostRecords, MemoryOfTheDeviceIsResidentWithoutBeingBound) {
  BufferRef x = buffer(64, Placement::device), y = buffer(64);
  floats(x)[0] = 6;
  const uint64_t address = x->address();
  const Argument arguments[] = {value(0, address), {1, y, 0, {}}};
  auto own = stream();
  EXPECT_OK(own->dispatch({kernel("follow", {}), arguments, {}, {1, 1, 1}, {}}));
  EXPECT_OK(finish(*own));
  EXPECT_EQ(floats(y)[0], 6);
}

TEST_F(HostRecords, MemoryStaysResidentForEncodersOfTheHost) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    auto on = stream(MARLIN_NATIVE_METAL_ENCODER, (__bridge void*)encoder);
    const BufferRef x = buffer(64, Placement::device), y = buffer();
    EXPECT_OK(scale(*on, kernel("scale"), x, y, 1));
    EXPECT_EQ(metal_test_later_blocks(), 0u);
    EXPECT_OK(on->commit());
    EXPECT_EQ(metal_test_later_blocks(), 1u) << "the next request";
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
  }
}

}  // namespace
}  // namespace metal_marlin::metal
