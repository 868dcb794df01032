// What streams tell a host of their work: that it has ended, and what a trace hears.
#include "test.h"
#include "world.h"

namespace {

using namespace device_test;
using testing::_;

TEST(Streams, NotifyBehindTheirWork) {
  World world;
  Product p(world, 1);
  mm::stream stream(world.context);
  std::vector<marlin_status> ended;
  void (*const done)(void*, marlin_status) = [](void* user, marlin_status status) {
    static_cast<std::vector<marlin_status>*>(user)->push_back(status);
  };
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  world.record.take();
  stream.notify(done, &ended);
  std::vector<std::string> calls;
  for (const Command& command : world.record.take()) calls.push_back(command.what);
  EXPECT_EQ(calls, (std::vector<std::string>{"commit", "notify"}));
  EXPECT_EQ(ended, std::vector<marlin_status>{MARLIN_OK});
  for (const int at : {1, 2}) {  // commit, notify
    const mm::stream fresh(world.context);
    world.faults.arm(Fault::error, at);
    EXPECT_FAILS(MARLIN_E_DEVICE, "mock", marlin_stream_notify, fresh.get(), done, &ended);
    world.faults.disarm();
  }
  auto desc = mm::make<marlin_stream_desc>();
  desc.kind = MARLIN_NATIVE_METAL_ENCODER;
  desc.native = &world;
  const mm::stream hosts(world.context, desc);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "the host commits", marlin_stream_notify, hosts.get(), done, &ended);
  EXPECT_EQ(ended.size(), 1u) << "what fails calls nothing";
}

TEST(Streams, NameWhatTheyDispatchForATrace) {
  const auto tracer = std::make_shared<mm::Tracer>([](void*, const marlin_trace_event*) {}, nullptr);
  mm::BackendOptions options;
  options.tracer = tracer;
  World world({.probe = false}, options);
  Product p(world, 1, 64, 8192);
  p.desc.compute = MARLIN_COMPUTE_INT8;
  std::vector<const marlin_stream*> of;
  EXPECT_CALL(*world.mock, stream(_)).WillRepeatedly([&](const dv::StreamSource& source) {
    EXPECT_EQ(source.trace.tracer, tracer);
    of.push_back(source.trace.stream);
    return world.device->stream(source);
  });
  const mm::stream stream(world.context);
  world.record.take();
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  std::vector<std::string> steps;
  for (const Command& command : world.record.take()) {
    if (command.what != "dispatch") continue;
    steps.emplace_back(command.step.step);
    EXPECT_EQ(command.step.kernel, command.kernel);
    EXPECT_EQ(command.step.rows, 1);
    EXPECT_EQ(command.step.n, 64);
    EXPECT_EQ(command.step.k, 8192);
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"prepare A", "multiply"}));
  EXPECT_OK(marlin_gemm, nullptr, &p.desc);
  EXPECT_EQ(of, (std::vector<const marlin_stream*>{stream.get(), nullptr}));
}

}  // namespace
