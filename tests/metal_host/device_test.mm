// Every function of the device seam, used rightly and refused.
#include <sys/mman.h>

#include <chrono>
#include <future>
#include <thread>

#include "backends/metal/metal_backend.h"
#include "fixture.h"

// A queue of Metal 4 (MTL4CommandQueue) has the device, and another protocol than queues of command buffers.
@protocol CommandQueueOfMetal4 <NSObject>
@property(strong) id<MTLDevice> device;
@end
@interface QueueOfMetal4 : NSObject <CommandQueueOfMetal4>
@end
@implementation QueueOfMetal4
@synthesize device;
@end

namespace metal_marlin::metal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(DeviceTest, DevicesAreListed) {
  ASSERT_EQ(count_devices(), 1u);
  const auto found = must(describe(0));
  EXPECT_EQ(found.architecture, "apple9");
  EXPECT_NE(found.name, "");
  EXPECT_GT(found.working_set_bytes, 0u);
  EXPECT_LE(found.working_set_bytes, found.memory_bytes);
  EXPECT_EQ(found.most_bytes, found.memory_bytes / 20 * 19) << "and not half as much again as the working set";
  metal_test::settings()->working_set_quarters = 1;
  EXPECT_EQ(must(describe(0)).most_bytes, found.memory_bytes / 4 / 2 * 3);
  EXPECT_EQ(found.submission_seconds, 1) << "the system ends longer work";
  EXPECT_EQ(found.max_threads, 1024u);
  EXPECT_EQ(found.threadgroup_bytes, 32768u);
  EXPECT_TRUE(found.matrix && found.bfloat && found.unified_memory);
  EXPECT_FALSE(found.tensor);
  EXPECT_CODE(describe(1).status(), MARLIN_E_NO_DEVICE);
}

// As in a session without a window server.
TEST_F(DeviceTest, TheDefaultDeviceServesWhereNoneIsListed) {
  metal_test::settings()->lists_devices = false;
  EXPECT_EQ(count_devices(), 1u);
  open();
  EXPECT_NE(kernel("scale"), nullptr);
}

TEST_F(DeviceTest, KernelsHaveNames) {
  EXPECT_TRUE(has_kernel("gemv_u4_f16_m1"));
  EXPECT_FALSE(has_kernel("gemv_u4_f16_m999"));
}

TEST_F(DeviceTest, DevicesAreDescribedForTheBoundary) {
  ASSERT_EQ(device_count(), 1u);
  marlin_device_info info{};
  describe_device(0, info);
  EXPECT_EQ(std::string(info.name), describe(0).value().name);
  EXPECT_STREQ(info.isa_or_arch, "apple9");
  EXPECT_GT(info.memory_bytes, 0u);
  metal_test::settings()->removed = true;
  ASSERT_EQ(device_count(), 1u) << "a place to say why there is none";
  info = {};
  describe_device(0, info);
  EXPECT_STREQ(info.name, "Apple GPU");
  EXPECT_THAT(info.why_not, HasSubstr("there is no device 0"));
  EXPECT_CODE(create_backend({}).status(), MARLIN_E_NO_DEVICE);
}

TEST_F(DeviceTest, OtherDevicesAreRefused) {
  metal_test::settings()->apple_family = 0;
  EXPECT_CODE(describe(0).status(), MARLIN_E_NO_DEVICE);
  const Status status = create_device(options()).status();
  EXPECT_EQ(status.code(), MARLIN_E_NO_DEVICE);
  EXPECT_THAT(status.message(), HasSubstr("expected a GPU of Apple with unified memory"));
}

// As the device of a virtual machine says, which runs what the GPU below it does.
TEST_F(DeviceTest, TheFamilyAloneRefusesNothing) {
  std::vector<std::string> log;
  DeviceOptions with = options();
  with.logger = {
      [](void* user, int32_t, const char* message) { static_cast<std::vector<std::string>*>(user)->push_back(message); }, &log};
  metal_test::settings()->apple_family = 7;
  open(with);
  EXPECT_THAT(log, ::testing::IsEmpty());
  metal_test::settings()->apple_family = 5;
  EXPECT_EQ(describe(0).value().architecture, "apple5");
  EXPECT_TRUE(describe(0).value().matrix);
  open(with);
  EXPECT_NE(kernel("scale"), nullptr);
  EXPECT_NE(kernel("narrow"), nullptr);
  EXPECT_THAT(log, ::testing::ElementsAre(HasSubstr("family apple5, expected Apple 7")));
}

TEST_F(DeviceTest, TensorOperationsAreThereFromApple10On) {
  EXPECT_FALSE(describe(0).value().tensor);
  metal_test::settings()->apple_family = 10;
  EXPECT_TRUE(describe(0).value().tensor);
}

TEST_F(DeviceTest, DevicesByIndexAndOfTheHost) {
  @autoreleasepool {
    DeviceOptions other = options();
    other.index = 1;
    const Status none = create_device(other).status();
    EXPECT_CODE(none, MARLIN_E_NO_DEVICE);
    EXPECT_THAT(none.message(), HasSubstr("there is no device 1"));
    id<MTLDevice> hosts = MTLCreateSystemDefaultDevice();
    other.native = (__bridge void*)hosts;
    EXPECT_EQ(open(other).capabilities().name, hosts.name.UTF8String);
    other.native = (__bridge void*)@"no device";
    EXPECT_CODE(create_device(other).status(), MARLIN_E_ARGUMENT);
  }
}

TEST_F(DeviceTest, BuffersHoldWhatIsWritten) {
  open();
  for (const Placement placement : {Placement::shared, Placement::device}) {
    BufferRef made = buffer(1000, placement);
    EXPECT_EQ(made->bytes(), 1000u);
    EXPECT_EQ(made->address() % 256, 0u);
    ASSERT_NE(made->host(), nullptr);
    std::fill_n(made->host(), 1000, std::byte{7});
    EXPECT_NE(made->address(), buffer(16)->address());
  }
  EXPECT_CODE(device->allocate(0, Placement::shared, nullptr).status(), MARLIN_E_ARGUMENT);
  EXPECT_CODE(device->allocate(device->capabilities().max_buffer_bytes + 1, Placement::shared, nullptr).status(),
              MARLIN_E_MEMORY);
}

TEST_F(DeviceTest, HostMemoryIsWrappedNotCopied) {
  open();
  const size_t page = device->capabilities().page_bytes;
  auto* const pages =
      static_cast<std::byte*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  {
    auto wrapped = must(device->wrap(pages, 2 * page, Placement::shared));
    EXPECT_EQ(wrapped->host(), pages);
    auto on = stream();
    EXPECT_OK(on->fill(wrapped, page, page, 5));
    EXPECT_OK(finish(*on));
    EXPECT_EQ(pages[page - 1], std::byte{0});
    EXPECT_EQ(pages[page], std::byte{5});
    EXPECT_CODE(device->wrap(pages + 16, page, Placement::shared).status(), MARLIN_E_ARGUMENT);
    EXPECT_CODE(device->wrap(pages, page + 4, Placement::shared).status(), MARLIN_E_ARGUMENT);
    EXPECT_CODE(device->wrap(nullptr, page, Placement::shared).status(), MARLIN_E_ARGUMENT);
    EXPECT_CODE(device->wrap(pages, 0, Placement::shared).status(), MARLIN_E_ARGUMENT);
  }
  munmap(pages, 2 * page);
}

TEST_F(DeviceTest, BuffersOfTheHostAreRetained) {
  open();
  @autoreleasepool {
    id<MTLDevice> hosts = MTLCreateSystemDefaultDevice();
    BufferRef wrapped;
    @autoreleasepool {
      id<MTLBuffer> its = [hosts newBufferWithLength:64 options:MTLResourceStorageModeShared];
      auto made = must(device->wrap_native((__bridge void*)its));
      wrapped = std::move(made);
      EXPECT_EQ(wrapped->address(), its.gpuAddress);
    }
    EXPECT_EQ(metal_test_live_objects("MTLBuffer"), 1);
    floats(wrapped)[0] = 3;
    wrapped.reset();
    EXPECT_EQ(metal_test_live_objects("MTLBuffer"), 0);
    id<MTLBuffer> hidden = [hosts newBufferWithLength:64 options:MTLResourceStorageModePrivate];
    auto made = must(device->wrap_native((__bridge void*)hidden));
    EXPECT_EQ(made->host(), nullptr);
    EXPECT_CODE(device->wrap_native((__bridge void*)[hosts newCommandQueue]).status(), MARLIN_E_ARGUMENT);
    EXPECT_CODE(device->wrap_native(nullptr).status(), MARLIN_E_ARGUMENT);
  }
}

TEST_F(DeviceTest, KernelsTakeConstants) {
  open();
  const std::vector<Constant> all = {{0, Constant::Type::boolean, 1},
                                     {1, Constant::Type::uint32, 4},
                                     {2, Constant::Type::uint32, 10},
                                     {77, Constant::Type::uint32, 1}};  // of no kernel
  KernelRef made = kernel("scale", all);
  EXPECT_EQ(made, kernel("scale", all)) << "compiled once";
  EXPECT_NE(made, kernel("scale", kPlain));
  EXPECT_EQ(made->simd_width(), 32u);
  EXPECT_EQ(made->max_threads(), 1024u);
  EXPECT_EQ(made->threadgroup_bytes(), 0u);
  EXPECT_EQ(kernel("narrow")->max_threads(), 64u);
  BufferRef x = buffer(), y = buffer();
  for (int i = 0; i < 64; ++i) floats(x)[i] = static_cast<float>(i);
  auto on = stream();
  EXPECT_OK(scale(*on, made, x, y, 64));
  EXPECT_OK(finish(*on));
  for (int i = 0; i < 64; ++i) ASSERT_EQ(floats(y)[i], -static_cast<float>(10 * i + 4));
}

TEST_F(DeviceTest, BarriersOrderDispatches) {
  open();
  KernelRef append_kernel = kernel("append", {});
  auto on = stream();
  for (const bool barrier : {true, false}) {
    BufferRef y = buffer();
    floats(y)[0] = 0;
    EXPECT_OK(append(*on, append_kernel, y, 1));
    if (barrier) EXPECT_OK(on->barrier());
    EXPECT_OK(append(*on, append_kernel, y, 2));
    EXPECT_OK(finish(*on));
    EXPECT_EQ(floats(y)[0], barrier ? 4 : 5) << "dispatches between barriers may run at once, which shows here";
  }
}

TEST_F(DeviceTest, CopiesAndFillsOfAnyBytes) {
  open();
  auto on = stream();
  for (const uint64_t offset : {0, 4, 1, 3}) {
    for (const uint64_t bytes : {8, 1, 333}) {
      BufferRef from = buffer(512), to = buffer(512);
      for (int i = 0; i < 512; ++i) from->host()[i] = static_cast<std::byte>(i), to->host()[i] = std::byte{0xEE};
      EXPECT_OK(on->copy(from, offset, to, 2 * offset, bytes));
      EXPECT_OK(on->fill(to, 400 + offset, bytes % 64, 9));
      EXPECT_OK(finish(*on));
      for (uint64_t i = 0; i < 512; ++i) {
        const uint64_t filled = bytes % 64;
        const std::byte want = i >= 400 + offset && i < 400 + offset + filled ? std::byte{9}
                               : i >= 2 * offset && i < 2 * offset + bytes    ? static_cast<std::byte>(i - offset)
                                                                              : std::byte{0xEE};
        ASSERT_EQ(to->host()[i], want) << "byte " << i << " of copy " << offset << ", " << bytes;
      }
    }
  }
  BufferRef one = buffer(64);
  EXPECT_OK(on->copy(one, 0, one, 32, 0));
  EXPECT_OK(on->fill(one, 64, 0, 1));
  EXPECT_CODE(on->copy(one, 0, one, 16, 32), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->copy(one, 60, buffer(64), 0, 8), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->copy(one, 0, nullptr, 0, 8), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->fill(one, UINT64_MAX, 2, 0), MARLIN_E_ARGUMENT);
}

TEST_F(DeviceTest, DispatchesThatCannotBe) {
  open();
  KernelRef narrow = kernel("narrow");
  auto on = stream();
  const Argument arguments[] = {{0, buffer(), 0, {}}};
  EXPECT_CODE(on->dispatch({narrow, arguments, {}, {65, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->dispatch({narrow, arguments, {1, 0, 1}, {1, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->dispatch({narrow, arguments, {}, {0, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->dispatch({narrow, arguments, {}, {8, 4, 4}, {}}), MARLIN_E_ARGUMENT);
  EXPECT_CODE(on->dispatch({nullptr, arguments, {}, {1, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  const Argument beyond[] = {{0, buffer(64), 64, {}}};
  EXPECT_CODE(on->dispatch({narrow, beyond, {}, {1, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  const std::vector<std::byte> large(Argument::kMaxInline + 1);
  const Argument inline_arguments[] = {{0, nullptr, 0, large}};
  EXPECT_CODE(on->dispatch({narrow, inline_arguments, {}, {1, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  const Argument empty[] = {{0, nullptr, 0, {}}};
  EXPECT_CODE(on->dispatch({narrow, empty, {}, {1, 1, 1}, {}}), MARLIN_E_ARGUMENT);
  EXPECT_OK(finish(*on)) << "nothing was recorded";
}

TEST_F(DeviceTest, StreamsWaitPollAndTellTheTime) {
  open();
  auto on = stream();
  EXPECT_OK(on->commit());
  EXPECT_OK(on->wait(0));
  EXPECT_EQ(on->busy_seconds(), 0);
  metal_test::settings()->completion_delay = 0.05;
  BufferRef y = buffer();
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(on->fill(y, 0, 4, 1));
    EXPECT_OK(on->commit());
  }
  EXPECT_CODE(on->wait(0), MARLIN_E_TIMEOUT);
  EXPECT_CODE(on->wait(1'000'000), MARLIN_E_TIMEOUT);
  EXPECT_OK(on->wait(10'000'000'000));
  EXPECT_GE(on->busy_seconds(), 0.1);
  EXPECT_LT(on->busy_seconds(), 60) << "and not since the system began";
  EXPECT_OK(on->failure());
  EXPECT_OK(on->wait(UINT64_MAX));
  EXPECT_EQ(on->busy_seconds(), 0);
}

TEST_F(DeviceTest, WhatIsCommittedGoesOnWithoutItsStreamAndDevice) {
  open();
  metal_test::settings()->completion_delay = 0.02;
  KernelRef scale_kernel = kernel("scale");
  BufferRef x = buffer(), y = buffer(), watched = y;
  floats(x)[0] = 21;
  auto on = stream(), second = stream();
  EXPECT_OK(scale(*on, scale_kernel, x, y, 1));
  EXPECT_OK(on->commit());
  on.reset();
  x.reset(), y.reset(), scale_kernel.reset(), device.reset();
  EXPECT_OK(second->fill(watched, 16, 4, 0xFF));
  EXPECT_OK(finish(*second));
  while (floats(watched)[0] != 42) std::this_thread::yield();
}

TEST_F(DeviceTest, WhatIsNotCommittedIsDropped) {
  findings_wanted = true;  // the framework tells of command buffers that nobody commits
  open();
  BufferRef y = buffer();
  floats(y)[0] = 1;
  {
    auto on = stream();
    EXPECT_OK(on->fill(y, 0, 4, 0xFF));
  }
  EXPECT_EQ(floats(y)[0], 1);
  EXPECT_EQ(metal_test_finding_count(), 1u) << report();
  EXPECT_EQ(metal_test_findings_of("never-committed"), 1u) << report();
}

TEST_F(DeviceTest, StreamsOnTheHostsQueue) {
  open();
  @autoreleasepool {
    id<MTLCommandQueue> queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    auto on = stream(MARLIN_NATIVE_METAL_QUEUE, (__bridge void*)queue);
    BufferRef y = buffer(64, Placement::device);
    EXPECT_OK(on->fill(y, 0, 64, 3));
    EXPECT_OK(finish(*on));
    EXPECT_EQ(y->host()[63], std::byte{3});
  }
}

TEST_F(DeviceTest, StreamsOnTheHostsCommandBuffer) {
  open();
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    auto on = stream(MARLIN_NATIVE_METAL_COMMAND_BUFFER, (__bridge void*)commands);
    BufferRef x = buffer(64, Placement::device), y = buffer(64);
    floats(x)[3] = 5;
    EXPECT_OK(scale(*on, kernel("scale"), x, y, 4));
    EXPECT_OK(on->commit());
    EXPECT_CODE(on->wait(0), MARLIN_E_ARGUMENT);
    id<MTLBlitCommandEncoder> its = [commands blitCommandEncoder];
    EXPECT_TRUE(its != nil) << "no encoder is left open";
    [its endEncoding];
    EXPECT_EQ(commands.status, MTLCommandBufferStatusNotEnqueued) << "the host commits";
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_EQ(floats(y)[3], 10);
    EXPECT_OK(on->failure());
  }
}

TEST_F(DeviceTest, StreamsOnTheHostsEncoder) {
  open();
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    auto on = stream(MARLIN_NATIVE_METAL_ENCODER, (__bridge void*)encoder);
    BufferRef x = buffer(64), y = buffer(64);
    EXPECT_OK(on->fill(x, 0, 64, 0));
    EXPECT_OK(on->barrier());
    EXPECT_OK(scale(*on, kernel("scale"), x, y, 16));
    EXPECT_OK(on->barrier());
    EXPECT_OK(on->copy(y, 0, x, 32, 32));
    EXPECT_OK(on->commit());
    EXPECT_CODE(on->wait(0), MARLIN_E_ARGUMENT);
    on.reset();
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_EQ(commands.status, MTLCommandBufferStatusCompleted);
    EXPECT_EQ(floats(x)[15], 0);
  }
}

TEST_F(DeviceTest, StreamsOfOtherKindsAreRefused) {
  open();
  @autoreleasepool {
    id<MTLCommandQueue> queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    for (const marlin_native kind :
         {MARLIN_NATIVE_CUDA_STREAM, MARLIN_NATIVE_METAL_COMMAND_BUFFER, MARLIN_NATIVE_METAL_ENCODER})
      EXPECT_CODE(device->stream({kind, (__bridge void*)queue}).status(), MARLIN_E_ARGUMENT);
    EXPECT_CODE(device->stream({MARLIN_NATIVE_METAL_QUEUE, nullptr}).status(), MARLIN_E_ARGUMENT);
    EXPECT_CODE(device->stream({MARLIN_NATIVE_METAL_QUEUE, (__bridge void*)@"no queue"}).status(), MARLIN_E_ARGUMENT);
  }
}

TEST_F(DeviceTest, AQueueOfMetal4IsRefused) {
  open();
  @autoreleasepool {
    QueueOfMetal4* const queue = [[QueueOfMetal4 alloc] init];
    queue.device = MTLCreateSystemDefaultDevice();
    for (const auto& [kind, expected] : {std::pair{MARLIN_NATIVE_METAL_QUEUE, "MTLCommandQueue"},
                                         {MARLIN_NATIVE_METAL_COMMAND_BUFFER, "MTLCommandBuffer"},
                                         {MARLIN_NATIVE_METAL_ENCODER, "MTLComputeCommandEncoder"}}) {
      const Status status = device->stream({kind, (__bridge void*)queue}).status();
      EXPECT_CODE(status, MARLIN_E_ARGUMENT);
      EXPECT_EQ(std::string(status.message()), std::string("stream: native is no ") + expected + " of this device");
    }
  }
}

TEST_F(DeviceTest, ThreadsCompileAllocateAndRunAtOnce) {
  open();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto on = stream();
      for (uint32_t i = 0; i < 5; ++i) {
        const std::vector<Constant> constants = {
            {0, Constant::Type::boolean, 0}, {1, Constant::Type::uint32, t % 2}, {2, Constant::Type::uint32, 3}};
        BufferRef x = buffer(256, Placement::device), y = buffer(256, Placement::device);
        for (int k = 0; k < 64; ++k) floats(x)[k] = static_cast<float>(k);
        EXPECT_OK(scale(*on, kernel("scale", constants), x, y, 64));
        EXPECT_OK(finish(*on));
        EXPECT_EQ(floats(y)[63], static_cast<float>(3 * 63 + t % 2));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Compiling takes long: whoever wants a kernel that is there does not wait for it.
TEST_F(DeviceTest, CompiledKernelsAreHadWhileAnotherIsCompiled) {
  open();
  struct Amid {
    device::Device& device;
    KernelRef expected;
    std::future<KernelRef> found{};
    bool waited = true;
  } amid{*device, kernel("scale")};
  const auto ask = [](void* user) {
    auto& all = *static_cast<Amid*>(user);
    all.found = std::async(std::launch::async, [&all] { return all.device.kernel("scale", kPlain).take(); });
    all.waited = all.found.wait_for(std::chrono::seconds(10)) != std::future_status::ready;
  };
  metal_test::settings()->in_pipeline = [call = ask, user = &amid] { call(user); };
  kernel("narrow");
  ASSERT_TRUE(amid.found.valid());
  EXPECT_FALSE(amid.waited);
  EXPECT_EQ(amid.found.get(), amid.expected);
}

}  // namespace
}  // namespace metal_marlin::metal
