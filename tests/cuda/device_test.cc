// The host's part of the CUDA backend over a driver of the tests: what it asks of the driver, in which context, what it makes
// of errors, and that it gives back all that it took.
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/policy.h"
#include "on_fake_driver.h"
#include "test.h"

namespace {

using namespace cuda_test;
using device::Placement;

TEST_F(CudaDevice, SaysWhatItIs) {
  const auto device = make();
  const device::Capabilities& c = device->capabilities();
  EXPECT_EQ(c.name, "Fake GPU");
  EXPECT_EQ(c.architecture, "sm_90");
  EXPECT_EQ(c.memory_bytes, uint64_t{80} << 30);
  EXPECT_FALSE(c.unified_memory);
  EXPECT_EQ(cuda::count_devices(options), 1u);
}

TEST_F(CudaDevice, SaysWhyThereIsNone) {
  options.driver = "libno_such_driver.so.1";
  EXPECT_THAT(why_not(), HasSubstr("libno_such_driver.so.1"));
  EXPECT_EQ(cuda::count_devices(options), 0u);
  options.driver = MARLIN_FAKE_DRIVER;
  fail("cuInit", 100);
  EXPECT_THAT(why_not(), HasSubstr("cuInit: CUDA_ERROR_UNKNOWN (100)"));
  driver->version = 12040;
  EXPECT_THAT(why_not(), HasSubstr("the driver is of CUDA 12.4, the kernels need 13.0"));
  driver->version = 13000;
  driver->major = 7, driver->minor = 5;
  EXPECT_THAT(why_not(), HasSubstr("compute capability 7.5"));
  driver->major = 9;
  driver->devices = 0;
  EXPECT_THAT(why_not(), HasSubstr("no device 0, the driver lists 0"));
  driver->devices = 1;
  options.index = 1;
  EXPECT_THAT(why_not(), HasSubstr("no device 1, the driver lists 1"));
  options.index = 0;
  for (const char* function : {"cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
                               "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"}) {
    fail(function, 999);
    const Status s = cuda::describe(options).status();
    EXPECT_EQ(s.code(), MARLIN_E_NO_DEVICE) << function;
    EXPECT_THAT(s.message(), HasSubstr("(999)")) << function;
  }
  options.kernels = {};
  EXPECT_THAT(why_not(), HasSubstr("not built into this library"));
}

TEST_F(CudaDevice, LeavesTheCurrentContextAsItWas) {
  const auto device = make();
  driver->current = reinterpret_cast<void*>(fake_cuda::kHosts);
  const auto buffer = must(device->allocate(16, Placement::device, "test"));
  EXPECT_EQ(driver->current, reinterpret_cast<void*>(fake_cuda::kHosts));
  driver->current = nullptr;
}

TEST_F(CudaDevice, UsesTheContextOfTheHost) {
  options.native = reinterpret_cast<void*>(fake_cuda::kHosts);
  const auto device = make();
  EXPECT_THAT(driver->calls, Not(Contains("cuDevicePrimaryCtxRetain")));
  const auto stream = device->stream({MARLIN_NATIVE_CUDA_STREAM, reinterpret_cast<void*>(0xBAD)});
  EXPECT_TRUE(stream.ok());
}

TEST_F(CudaDevice, AllocatesWhereItIsAskedTo) {
  const auto device = make();
  auto on_device = device->allocate(100, Placement::device, "test");
  auto shared = device->allocate(100, Placement::shared, "test");
  ASSERT_TRUE(on_device.ok() && shared.ok());
  EXPECT_EQ(on_device.value()->host(), nullptr);
  EXPECT_NE(shared.value()->host(), nullptr);
  EXPECT_EQ(driver->live_memory, 1);
  EXPECT_EQ(driver->live_pinned, 1);
  fail("cuMemAlloc_v2", 2);
  const Status none = device->allocate(100, Placement::device, "weights").status();
  EXPECT_EQ(none.code(), MARLIN_E_MEMORY);
  EXPECT_EQ(none.native_code(), 2);
  EXPECT_THAT(none.message(), HasSubstr("weights: CUDA_ERROR_OUT_OF_MEMORY (2)"));
  for (const char* function : {"cuMemHostAlloc", "cuMemHostGetDevicePointer_v2", "cuCtxPushCurrent_v2"}) {
    fail(function, 700);
    EXPECT_EQ(device->allocate(8, Placement::shared, "test").status().code(), MARLIN_E_DEVICE) << function;
  }
}

TEST_F(CudaDevice, WrapsMemoryOfTheHost) {
  const auto device = make();
  alignas(4096) static std::byte page[4096];
  {
    const auto wrapped = must(device->wrap(page, sizeof page, Placement::shared));
    EXPECT_EQ(wrapped->host(), page);
    EXPECT_EQ(driver->live_registered, 1);
  }
  fail("cuMemHostGetDevicePointer_v2", 700);
  EXPECT_FALSE(device->wrap(page, sizeof page, Placement::shared).ok());
  const auto native = must(device->wrap_native(page));
  EXPECT_EQ(native->address(), reinterpret_cast<uintptr_t>(page));
}

TEST_F(CudaDevice, FindsKernelsInTheirModules) {
  const auto device = make();
  EXPECT_TRUE(device->kernel("gemv_u4_f16_m8", {}).ok());
  EXPECT_EQ(driver->live_modules, 1);
  EXPECT_TRUE(device->kernel("finish", {}).ok());
  EXPECT_TRUE(device->kernel("gather_b2", {}).ok());
  EXPECT_EQ(driver->live_modules, 2);  // each is loaded once
  EXPECT_EQ(device->kernel("gemv_u4_f16_m9", {}).status().code(), MARLIN_E_NOT_FOUND);
  fail("cuFuncGetAttribute", 700);
  EXPECT_EQ(device->kernel("finish", {}).status().code(), MARLIN_E_DEVICE);
}

TEST_F(CudaDevice, PrefersKernelsOfAForm) {
  const auto device = make();
  const auto stream = must(device->stream({}));
  const auto launched = [&](uint32_t scale, uint32_t zero, uint32_t shift) {
    const device::Constant constants[] = {{MARLIN_CONSTANT_SCALE_TYPE, device::Constant::Type::uint32, scale},
                                          {MARLIN_CONSTANT_ZERO_KIND, device::Constant::Type::uint32, zero},
                                          {MARLIN_CONSTANT_GROUP_SHIFT, device::Constant::Type::uint32, shift}};
    const auto kernel = device->kernel("gemv_u4_f16_m8", constants);
    EXPECT_TRUE(kernel.ok());
    EXPECT_TRUE(stream->dispatch({kernel.value(), {}, {}, {}, nullptr}).ok());
    return driver->launches.back().kernel;
  };
  EXPECT_EQ(launched(1, 0, 7), "gemv_u4_f16_m8_s1z0g7");
  EXPECT_EQ(launched(2, 0, 5), "gemv_u4_f16_m8");
  EXPECT_EQ(launched(0, 1, 7), "gemv_u4_f16_m8");
}

/// A stream with one kernel and one buffer.
class CudaStream : public CudaDevice {
 protected:
  void SetUp() override {
    CudaDevice::SetUp();
    device = make();
    const device::Constant constants[] = {{3, device::Constant::Type::uint32, 2}, {5, device::Constant::Type::boolean, 1}};
    auto found = must(device->kernel("finish", constants));
    kernel = std::move(found);
    auto made = must(device->allocate(4096, Placement::shared, "test"));
    buffer = std::move(made);
    stream = open({});
  }
  void TearDown() override {
    stream = nullptr;
    buffer = nullptr;
    kernel = nullptr;
    device = nullptr;
    CudaDevice::TearDown();
  }
  std::unique_ptr<device::Stream> open(const device::StreamSource& source) { return must(device->stream(source)); }
  Status dispatch(device::Size3 groups = {3, 2, 1}, const TracedStep& what = {"test"}) {
    const uint32_t value[] = {7, 8};
    const device::Argument arguments[] = {{4, buffer, 64, {}}, {9, nullptr, 0, std::as_bytes(std::span(value))}};
    return stream->dispatch({kernel, arguments, groups, {128, 1, 1}, what});
  }

  std::unique_ptr<device::Device> device;
  device::KernelRef kernel;
  device::BufferRef buffer;
  std::unique_ptr<device::Stream> stream;
};

TEST_F(CudaStream, PassesBuffersConstantsAndArguments) {
  ASSERT_TRUE(dispatch().ok());
  ASSERT_EQ(driver->launches.size(), 1u);
  const fake_cuda::Launch& launch = driver->launches[0];
  EXPECT_EQ(launch.kernel, "finish");
  EXPECT_EQ(launch.grid[0], 3u);
  EXPECT_EQ(launch.grid[1], 2u);
  EXPECT_EQ(launch.block[0], 128u);
  EXPECT_EQ(launch.parameters.buffers[4], buffer->address() + 64);
  EXPECT_EQ(launch.parameters.constants[3], 2);
  EXPECT_EQ(launch.parameters.constants[5], 1);
  uint32_t value[2];
  std::memcpy(value, launch.parameters.arguments, sizeof value);
  EXPECT_EQ(value[0], 7u);
  EXPECT_EQ(value[1], 8u);
}

TEST_F(CudaStream, CutsGridsThatAreTooHigh) {
  ASSERT_TRUE(dispatch({1, 65535 + 10, 1}).ok());
  ASSERT_EQ(driver->launches.size(), 2u);
  EXPECT_EQ(driver->launches[0].grid[1], 65535u);
  EXPECT_EQ(driver->launches[1].grid[1], 10u);
  EXPECT_EQ(driver->launches[1].parameters.first_row_of_groups, 65535u);
}

/// What a kernel for Hopper needs besides its arguments: shared memory, an early start, boxes of A.
TEST_F(CudaStream, LaunchesKernelsOfHopperByTheirRules) {
  using device::Constant;
  const auto form = [](bool aligned) {
    return std::array{Constant{MARLIN_CONSTANT_SCALE_TYPE, Constant::Type::uint32, kScaleF16},
                      Constant{MARLIN_CONSTANT_GROUP_SHIFT, Constant::Type::uint32, 7},
                      Constant{MARLIN_CONSTANT_ALIGNED, Constant::Type::boolean, aligned}};
  };
  const auto launched = [&](const char* name, bool aligned) -> const fake_cuda::Launch& {
    auto found = device->kernel(name, form(aligned));
    EXPECT_TRUE(found.ok()) << found.status().message();
    kernel = found.take();
    ProductArgs args{};
    args.m = 100, args.k = 512, args.lda = 520;
    const device::Argument arguments[] = {{MARLIN_BUFFER_A, buffer, 0, {}},
                                          {MARLIN_BUFFER_ARGS, nullptr, 0, std::as_bytes(std::span(&args, 1))}};
    EXPECT_TRUE(stream->dispatch({kernel, arguments, {132, 1, 1}, {384, 1, 1}, "test"}).ok());
    return driver->launches.back();
  };
  const auto map_of = [](const fake_cuda::Launch& launch) {
    std::array<uint64_t, 4> map;  // columns and rows of A, then of a box
    std::memcpy(map.data(), launch.parameters.tensor_map, sizeof map);
    return map;
  };
  constexpr std::array<uint64_t, 4> kNone{}, kBoxes{512, 100, 64, 32};
  const fake_cuda::Launch ring = launched("ring_u4_f16_m8", true), tile = launched("wgmma_u4_f16_m64_n256", true),
                          unaligned = launched("wgmma_u4_f16_m64_n256", false), general = launched("gemv_u4_f16_m8", true);
  EXPECT_EQ(ring.kernel, "ring_u4_f16_m8_s1z0g7");
  EXPECT_EQ(ring.shared_bytes, static_cast<unsigned>(kRingSharedBytes));
  EXPECT_TRUE(ring.overlaps);
  EXPECT_EQ(map_of(ring), kNone);
  EXPECT_EQ(tile.shared_bytes, static_cast<unsigned>(kTileSharedBytes));
  EXPECT_TRUE(tile.overlaps);
  EXPECT_EQ(map_of(tile), kBoxes);
  EXPECT_EQ(map_of(unaligned), kNone);
  EXPECT_EQ(general.shared_bytes, 0u);
  EXPECT_TRUE(general.overlaps);
  driver->compiled_for = 80;  // which does not know how to wait for the kernel before
  EXPECT_FALSE(launched("gemv_u4_f16_m8", true).overlaps);
  fail("cuTensorMapEncodeTiled", 1);
  const device::Argument none[] = {{MARLIN_BUFFER_A, buffer, 0, {}}};
  auto mapped = must(device->kernel("wgmma_u4_f16_m64_n256", form(true)));
  EXPECT_EQ(stream->dispatch({mapped, none, {1, 1, 1}, {384, 1, 1}, "test"}).native_code(), 1);
  fail("cuFuncSetAttribute", 1);
  EXPECT_EQ(device->kernel("ring_u4_f16_m8", form(true)).status().native_code(), 1);
}

TEST_F(CudaStream, CopiesAndFills) {
  auto other = must(device->allocate(64, Placement::device, "test"));
  ASSERT_TRUE(stream->fill(buffer, 16, 8, 0x5a).ok());
  ASSERT_TRUE(stream->copy(buffer, 16, other, 8, 8).ok());
  EXPECT_EQ(reinterpret_cast<const uint8_t*>(other->address())[8], 0x5a);
}

TEST_F(CudaStream, KeepsBuffersUntilTheirWorkIsDone) {
  driver->pending = true;
  ASSERT_TRUE(dispatch().ok());
  buffer = nullptr;
  EXPECT_EQ(driver->live_pinned, 1);
  stream = nullptr;  // does not wait
  EXPECT_EQ(driver->live_pinned, 1);
  driver->pending = false;
  stream = open({});
  stream = nullptr;
  EXPECT_EQ(driver->live_pinned, 0);
}

TEST_F(CudaStream, ReleasesBuffersOnceItHasWaited) {
  ASSERT_TRUE(dispatch().ok());
  buffer = nullptr;
  ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
  EXPECT_EQ(driver->live_pinned, 0);
}

TEST_F(CudaStream, ThatNobodyWaitsForReleasesBuffers) {
  for (int i = 0; i < 1000; ++i) {
    auto made = must(device->allocate(8, Placement::shared, "test"));
    buffer = std::move(made);
    ASSERT_TRUE(dispatch().ok());
    ASSERT_TRUE(stream->commit().ok());
  }
  EXPECT_LT(driver->live_pinned, 200);
  EXPECT_LT(driver->live_events, 10);
}

TEST_F(CudaStream, TimesOut) {
  driver->pending = true;
  EXPECT_EQ(stream->wait(0).code(), MARLIN_E_TIMEOUT);
  EXPECT_EQ(stream->wait(2'000'000).code(), MARLIN_E_TIMEOUT);
  driver->pending = false;
  EXPECT_TRUE(stream->wait(0).ok());
}

TEST_F(CudaStream, KeepsTheFirstLateError) {
  EXPECT_TRUE(stream->failure().ok());
  driver->late = 700;
  const Status late = stream->wait(UINT64_MAX);
  EXPECT_EQ(late.code(), MARLIN_E_DEVICE);
  EXPECT_EQ(late.native_code(), 700);
  EXPECT_THAT(late.message(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  driver->late = 0;
  EXPECT_EQ(stream->failure().native_code(), 700);
}

TEST_F(CudaStream, AsksForLateErrorsWithoutWaiting) {
  driver->pending = true;
  EXPECT_TRUE(stream->failure().ok());
  driver->pending = false;
  driver->late = 700;
  EXPECT_EQ(stream->failure().native_code(), 700);
  driver->late = 0;
}

TEST_F(CudaStream, ReportsFailedCalls) {
  fail("cuLaunchKernelEx", 700);
  EXPECT_EQ(dispatch().native_code(), 700);
  EXPECT_EQ(stream->failure().native_code(), 700);
  stream = open({});
  fail("cuMemcpyAsync", 2);
  EXPECT_EQ(stream->copy(buffer, 0, buffer, 64, 8).code(), MARLIN_E_MEMORY);
  for (const char* function : {"cuStreamCreate", "cuEventCreate"}) {
    fail(function, 700);
    EXPECT_EQ(device->stream({}).status().native_code(), 700) << function;
  }
}

/// From the first kernel or copy to the last. What the device did before, between two waits and for a fill in advance is no
/// part.
TEST_F(CudaStream, OfItsOwnSaysHowLongTheDeviceWorked) {
  stream = open({.timed = true});
  ASSERT_TRUE(stream->fill(buffer, 0, 8, 0).ok());
  for (int i = 0; i < 2; ++i) {
    driver->clock_ms += 1000;
    ASSERT_TRUE(stream->copy(buffer, 0, buffer, 64, 8).ok());
    ASSERT_TRUE(dispatch().ok());
    ASSERT_TRUE(dispatch().ok());
    ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
    EXPECT_FLOAT_EQ(static_cast<float>(stream->busy_seconds()), 0.004f);
  }
  ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
  EXPECT_EQ(stream->busy_seconds(), 0) << "nothing ran since the last wait";
  ASSERT_TRUE(dispatch().ok());
  driver->pending = true;
  EXPECT_EQ(stream->wait(0).code(), MARLIN_E_TIMEOUT);
  driver->pending = false;
  ASSERT_TRUE(dispatch().ok());
  ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
  EXPECT_FLOAT_EQ(static_cast<float>(stream->busy_seconds()), 0.002f) << "with what ran before the time-out";
  ASSERT_TRUE(dispatch().ok());
  fail("cuEventElapsedTime", 700);
  EXPECT_TRUE(stream->wait(UINT64_MAX).ok());
  EXPECT_EQ(stream->busy_seconds(), 0) << "unknown";
  fail("cuEventRecord", 700);
  EXPECT_EQ(dispatch().native_code(), 700);
  stream = nullptr;
  for (const int skip : {0, 1}) {
    fail("cuEventCreate", 700, skip);
    EXPECT_EQ(device->stream({.timed = true}).status().native_code(), 700) << skip;
  }
}

/// A launch takes 1 ms of the driver's clock.
class TracedStream : public CudaStream {
 protected:
  void open_for(marlin_native kind) { stream = open({.kind = kind, .trace = {tracer, handle}}); }
  Status launch() { return dispatch({3, 2, 1}, {"multiply", "some", 3, 4, 5}); }

  std::vector<std::pair<marlin_trace_event, std::string>> heard;
  const marlin_stream* const handle = reinterpret_cast<const marlin_stream*>(&heard);
  const std::shared_ptr<Tracer> tracer = std::make_shared<Tracer>(
      [](void* user, const marlin_trace_event* event) {
        static_cast<decltype(heard)*>(user)->emplace_back(*event, std::string(event->step) + " " + event->kernel);
      },
      &heard);
};

TEST_F(TracedStream, TellsOfLaunchesThatAreDone) {
  open_for(MARLIN_NATIVE_CUDA_STREAM);
  driver->pending = true;
  const uint64_t before = monotonic_ns();
  ASSERT_TRUE(launch().ok());
  ASSERT_TRUE(stream->copy(buffer, 0, buffer, 64, 8).ok());  // 2 ms, which nobody hears of
  ASSERT_TRUE(launch().ok());
  ASSERT_TRUE(stream->commit().ok());
  EXPECT_TRUE(heard.empty()) << "they run";
  driver->pending = false;
  ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
  ASSERT_EQ(heard.size(), 2u);
  for (const auto& [event, name] : heard) {
    EXPECT_EQ(name, "multiply some");
    EXPECT_EQ(event.device_ns, 1000000u);
    EXPECT_EQ(event.end_ns - event.begin_ns, 1000000u);
    EXPECT_EQ(event.together, 1u);
    EXPECT_EQ(event.stream, handle);
    EXPECT_EQ(event.rows * 100 + event.n * 10 + event.k, 345);
  }
  EXPECT_EQ(heard[1].first.begin_ns - heard[0].first.begin_ns, 3000000u);
  EXPECT_TRUE(before <= heard[0].first.begin_ns && heard[0].first.begin_ns <= monotonic_ns());

  ASSERT_TRUE(launch().ok());
  ASSERT_TRUE(stream->commit().ok());
  EXPECT_EQ(heard.size(), 3u) << "a flush tells, too";
  ASSERT_TRUE(launch().ok());
  stream = nullptr;
  EXPECT_EQ(heard.size(), 4u) << "destroying the stream tells of what is done";
  open_for(MARLIN_NATIVE_NONE);
  ASSERT_TRUE(launch().ok());
  tracer->close();
  ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
  EXPECT_EQ(heard.size(), 4u) << "the host is gone";
}

TEST_F(TracedStream, IsNoReasonToFail) {
  open_for(MARLIN_NATIVE_CUDA_STREAM);
  fail("cuEventElapsedTime", 700);
  ASSERT_TRUE(launch().ok());
  ASSERT_TRUE(launch().ok());
  ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
  EXPECT_EQ(heard.size(), 1u) << "without the one whose time is unknown";
  for (const char* const function : {"cuEventCreate", "cuEventRecord"})
    for (const int skip : {0, 1, 2}) {
      fail(function, 700, skip);
      EXPECT_TRUE(launch().ok()) << "a trace fails no work";
    }
  driver->capturing = true;
  driver->calls.clear();
  ASSERT_TRUE(launch().ok());
  EXPECT_THAT(driver->calls, Not(Contains("cuEventRecord")));
  driver->capturing = false;
}

TEST_F(CudaStream, NotifiesOnceWithTheStatus) {
  std::vector<marlin_status> ended;
  const auto done = [](void* user, marlin_status status) { static_cast<std::vector<marlin_status>*>(user)->push_back(status); };
  stream = open({});
  ASSERT_TRUE(dispatch().ok());
  driver->pending = true;
  ASSERT_TRUE(stream->notify(done, &ended).ok());
  EXPECT_TRUE(ended.empty());
  stream = nullptr;
  driver->pending = false;
  for (const auto& call : driver->callbacks) call();
  EXPECT_EQ(ended, std::vector<marlin_status>{MARLIN_OK}) << "also behind the stream's end";
  stream = open({});
  driver->late = 700;
  ASSERT_TRUE(stream->notify(done, &ended).ok());
  EXPECT_EQ(ended.back(), MARLIN_E_DEVICE);
  driver->late = 0;
  fail("cuStreamAddCallback", 700);
  EXPECT_EQ(stream->notify(done, &ended).native_code(), 700);
  stream = open({});
  driver->capturing = true;
  EXPECT_EQ(stream->notify(done, &ended).code(), MARLIN_E_ARGUMENT);
  driver->capturing = false;
  EXPECT_EQ(ended.size(), 2u);
}

/// Nobody asks, or the stream may be captured.
TEST_F(CudaStream, HasNoClockElsewhere) {
  for (const device::StreamSource& source : {device::StreamSource{}, {MARLIN_NATIVE_CUDA_STREAM, nullptr, true}}) {
    stream = open(source);
    driver->calls.clear();
    ASSERT_TRUE(dispatch().ok());
    ASSERT_TRUE(stream->copy(buffer, 0, buffer, 64, 8).ok());
    EXPECT_THAT(driver->calls, Not(Contains("cuEventRecord")));
    ASSERT_TRUE(stream->wait(UINT64_MAX).ok());
    EXPECT_EQ(stream->busy_seconds(), 0);
    EXPECT_THAT(driver->calls, Not(Contains("cuEventElapsedTime")));
  }
}

TEST_F(CudaStream, OfTheHostMayBeCaptured) {
  stream = open({MARLIN_NATIVE_CUDA_STREAM, nullptr});  // the legacy stream is NULL
  EXPECT_EQ(driver->live_streams, 0);
  driver->capturing = true;
  driver->calls.clear();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(dispatch().ok());
    ASSERT_TRUE(stream->commit().ok());
    ASSERT_TRUE(stream->failure().ok());
  }
  EXPECT_EQ(stream->wait(UINT64_MAX).code(), MARLIN_E_ARGUMENT);
  for (const char* forbidden : {"cuStreamQuery", "cuEventQuery", "cuEventRecord", "cuEventSynchronize", "cuMemAlloc_v2"})
    EXPECT_THAT(driver->calls, Not(Contains(forbidden)));
  driver->capturing = false;
}

TEST_F(CudaStream, OfTheHostMustBeOfTheContext) {
  EXPECT_EQ(device->stream({MARLIN_NATIVE_CUDA_STREAM, reinterpret_cast<void*>(0xBAD)}).status().code(), MARLIN_E_ARGUMENT);
  EXPECT_EQ(device->stream({MARLIN_NATIVE_METAL_QUEUE, reinterpret_cast<void*>(1)}).status().code(), MARLIN_E_ARGUMENT);
}

TEST_F(CudaStream, MayOutliveItsDevice) {
  device = nullptr;
  EXPECT_TRUE(dispatch().ok());
  EXPECT_TRUE(stream->wait(UINT64_MAX).ok());
}

TEST(CudaPolicy, NamesItsKernels) {
  EXPECT_TRUE(cuda::has_kernel("gemv_u4_bf16_m8"));
  EXPECT_TRUE(cuda::has_kernel("gemv_u4_sparse_bf16_m8"));
  EXPECT_TRUE(cuda::has_kernel("ring_u4_sparse_bf16_m8"));
  EXPECT_FALSE(cuda::has_kernel("mma_u4_sparse_bf16_m16_n128"));
  EXPECT_FALSE(cuda::has_kernel(""));
}

}  // namespace
