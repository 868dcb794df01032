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

/// What a stream tells of its work.
struct Ears {
  std::vector<marlin_trace_event> events;
  std::vector<std::string> steps;
  std::vector<marlin_status> ended;
  std::shared_ptr<Tracer> tracer = std::make_shared<Tracer>(
      [](void* user, const marlin_trace_event* event) {
        auto& ears = *static_cast<Ears*>(user);
        ears.events.push_back(*event);
        ears.steps.emplace_back(event->step);
      },
      this);
  static void done(void* user, marlin_status status) { static_cast<Ears*>(user)->ended.push_back(status); }
};

TEST_F(Submissions, CommandBuffersTellOfTheirSteps) {
  open();
  Ears ears;
  const auto* const handle = reinterpret_cast<const marlin_stream*>(&ears);
  BufferRef y = buffer(64);
  KernelRef append_kernel = kernel("append", {}), scale_kernel = kernel("scale");
  auto on = must(device->stream({.trace = {ears.tracer, handle}}));
  EXPECT_OK(append(*on, append_kernel, y, 1));
  EXPECT_OK(scale(*on, scale_kernel, y, y, 8));
  EXPECT_OK(finish(*on));
  EXPECT_OK(scale(*on, scale_kernel, y, y, 8));
  EXPECT_OK(finish(*on));
  EXPECT_EQ(ears.steps, (std::vector<std::string>{"", "scale", "scale"}));
  for (const size_t i : {0, 1, 2}) {
    const marlin_trace_event& event = ears.events[i];
    EXPECT_EQ(event.together, i < 2 ? 2u : 1u);
    EXPECT_EQ(event.stream, handle);
    EXPECT_EQ(event.device_ns, event.end_ns - event.begin_ns);
  }
  EXPECT_EQ(ears.events[0].begin_ns, ears.events[1].begin_ns);
  EXPECT_LE(ears.events[1].end_ns, ears.events[2].begin_ns);
  EXPECT_EQ(ears.events[1].rows, 8);
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    auto hosts = must(device->stream(
        {MARLIN_NATIVE_METAL_COMMAND_BUFFER, (__bridge void*)commands, false, nullptr, nullptr, {ears.tracer, handle}}));
    EXPECT_OK(scale(*hosts, scale_kernel, y, y, 8));
    EXPECT_OK(hosts->commit());
    EXPECT_CODE(hosts->notify(Ears::done, &ears), MARLIN_E_ARGUMENT);
    hosts = nullptr;
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_EQ(ears.events.size(), 4u) << "also when the stream is gone";
  }
  EXPECT_OK(scale(*on, scale_kernel, y, y, 8));
  ears.tracer->close();
  EXPECT_OK(finish(*on));
  EXPECT_EQ(ears.events.size(), 4u) << "the host is gone";
  EXPECT_TRUE(ears.ended.empty());
}

TEST_F(Submissions, NotifyOnceWithTheStatus) {
  open();
  Ears ears;
  BufferRef y = buffer(64);
  KernelRef scale_kernel = kernel("scale");
  auto on = stream();
  EXPECT_OK(on->notify(Ears::done, &ears));
  EXPECT_EQ(ears.ended, std::vector<marlin_status>{MARLIN_OK}) << "nothing runs";
  EXPECT_OK(scale(*on, scale_kernel, y, y, 8));
  EXPECT_OK(on->commit());
  EXPECT_OK(on->notify(Ears::done, &ears));
  EXPECT_OK(on->wait(UINT64_MAX));
  for (int i = 0; i < 1000 && ears.ended.size() < 2; ++i) usleep(1000);  // the waiting thread is told first
  EXPECT_EQ(ears.ended, (std::vector<marlin_status>{MARLIN_OK, MARLIN_OK}));
}

}  // namespace
}  // namespace metal_marlin::metal
