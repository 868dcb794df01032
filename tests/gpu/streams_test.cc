// Streams, memory and preparation: what a call may and may not do besides its dispatches.
#include <sys/wait.h>
#include <unistd.h>

#include "backends/gpu/plan.h"
#include "test.h"
#include "world.h"

namespace {

using namespace device_test;
using testing::_;

/// Timing costs something, and only for calls without a stream does marlin_explain add up the time.
TEST(Streams, OnlyThoseOfCallsWithoutOneAreTimed) {
  World world;
  Product p(world, 1);
  testing::InSequence order;
  EXPECT_CALL(*world.mock, stream(testing::Field(&dv::StreamSource::timed, false))).Times(1);
  EXPECT_CALL(*world.mock, stream(testing::Field(&dv::StreamSource::timed, true))).Times(1);
  const mm::stream stream(world.context);
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  EXPECT_OK(marlin_gemm, nullptr, &p.desc);
}

TEST(Streams, TheFirstErrorStays) {
  World world;
  Product p(world, 1);
  const mm::stream stream(world.context);
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  world.faults.arm(Fault::late, 1);
  EXPECT_OK(marlin_stream_flush, stream.get());
  EXPECT_FAILS(MARLIN_E_DEVICE, "late error", marlin_gemm, stream.get(), &p.desc);
  EXPECT_FAILS(MARLIN_E_DEVICE, "late error", marlin_gemm, stream.get(), &p.desc);
  EXPECT_FAILS(MARLIN_E_DEVICE, "late error", marlin_stream_flush, stream.get());
  EXPECT_FAILS(MARLIN_E_DEVICE, "late error", marlin_stream_wait, stream.get(), UINT64_MAX);
  EXPECT_FAILS(MARLIN_E_DEVICE, "late error", marlin_weights_unpack, stream.get(), p.w.get(), nullptr, int64_t{0}, &p.c.view);
  auto err = mm::make<marlin_error>();
  EXPECT_EQ(marlin_gemm(stream.get(), &p.desc, &err), MARLIN_E_DEVICE);
  EXPECT_EQ(err.native_code, 78);
  const mm::stream other(world.context);
  EXPECT_OK(marlin_gemm, other.get(), &p.desc);
}

TEST(Streams, HalfARecordedCallSticks) {
  World world;
  Product p(world, 1, 64, 8192);  // multiply, barrier, finish
  const mm::stream stream(world.context);
  world.faults.arm(Fault::error, 1);
  EXPECT_FAILS(MARLIN_E_DEVICE, "mock", marlin_gemm, stream.get(), &p.desc);  // before anything was recorded
  for (int n = 1; world.record.take(), n < 20; ++n) {
    const mm::stream fresh(world.context);
    world.faults.arm(Fault::error, n);
    const bool failed = marlin_gemm(fresh.get(), &p.desc, nullptr) != MARLIN_OK;
    const std::string where = world.faults.where;
    world.faults.disarm();
    if (!failed) return;
    const bool recording = where == "dispatch" || where == "barrier";
    EXPECT_EQ(marlin_gemm(fresh.get(), &p.desc, nullptr), recording ? MARLIN_E_DEVICE : MARLIN_OK) << where;
  }
  FAIL() << "never ended";
}

TEST(Streams, WaitingMayTimeOutAndGoOn) {
  World world;
  Product p(world, 1);
  const mm::stream stream(world.context);
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  world.faults.arm(Fault::timeout, 2);  // commit, wait
  EXPECT_FAILS(MARLIN_E_TIMEOUT, "timed out", marlin_stream_wait, stream.get(), uint64_t{0});
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
}

TEST(Streams, DestroyingDoesNotWaitAndNothingLeaks) {
  Record record;
  {
    FaultPlan faults;
    auto device = std::make_shared<IdleDevice>(record);
    mm::context context(gpu_context(std::make_shared<testing::NiceMock<MockDevice>>(device, faults), {.probe = false}));
    mm::stream stream(context);
    mm::weights w = abi_test::quantized(context, 64, 8192);
    const Matrix a(context, 1, 8192, MARLIN_F16), c(context, 1, 64, MARLIN_F32);
    auto d = mm::make<marlin_gemm_desc>();
    d.weights = w.get();
    d.a = a.view;
    d.c = c.view;
    EXPECT_OK(marlin_gemm, stream.get(), &d);
    EXPECT_OK(marlin_stream_flush, stream.get());
    record.take();
    marlin_weights_destroy(w.release());
    marlin_context_destroy(context.release());
    EXPECT_GE(record.buffers, 3);  // the weights live on in what was recorded
    marlin_stream_destroy(stream.release());
    EXPECT_TRUE(record.take().empty());
  }
  EXPECT_EQ(record.buffers, 0);
  EXPECT_EQ(record.streams, 0);
}

TEST(Memory, MoreThanTheWorkingSetIsWarnedOfOnceAndMoreThanTheMostRefused) {
  std::vector<std::string> log;
  World world({.probe = false}, {.logger = {[](void* user, int32_t level, const char* message) {
                                              if (level == 2) static_cast<std::vector<std::string>*>(user)->push_back(message);
                                            },
                                            &log}});
  world.device->change().working_set_bytes = 59999;
  world.device->change().most_bytes = 100000;
  world.device->change().max_buffer_bytes = 90000;
  marlin_buffer* buffer = nullptr;
  EXPECT_FAILS(MARLIN_E_MEMORY, "at most 90000", marlin_buffer_create, world.context.get(), uint64_t{90001}, &buffer);
  mm::buffer first;
  EXPECT_OK(marlin_buffer_create, world.context.get(), uint64_t{60000}, first.out());
  EXPECT_FAILS(MARLIN_E_MEMORY, "60000 are in use of the 100000 that the device may have", marlin_buffer_create,
               world.context.get(), uint64_t{40001}, &buffer);
  first = {};
  EXPECT_OK(marlin_buffer_create, world.context.get(), uint64_t{90000}, first.out());
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("60000 bytes are in use, more than its working set of 59999"), std::string::npos) << log[0];
}

/// Scratch of calls without a stream is kept for the next of them, but not while somebody else lacks memory.
TEST(Memory, ThatIsKeptForLaterCallsIsFreedInNeed) {
  World world;
  Product p(world, 9, 64, 8192);  // which splits K
  EXPECT_OK(marlin_gemm, nullptr, &p.desc);
  const int with_scratch = world.record.buffers;
  world.device->change().most_bytes = 1;
  marlin_buffer* buffer = nullptr;
  EXPECT_FAILS(MARLIN_E_MEMORY, "are in use of the 1 that the device may have", marlin_buffer_create, world.context.get(),
               uint64_t{8}, &buffer);
  EXPECT_EQ(world.record.buffers, with_scratch - 1) << "even so, all was freed that could be";
  world.device->change().most_bytes = 0;
  EXPECT_OK(marlin_gemm, nullptr, &p.desc);
  EXPECT_EQ(world.record.buffers, with_scratch);
  EXPECT_CALL(*world.mock, allocate(_, _, _))
      .Times(2)
      .WillOnce([](uint64_t, dv::Placement, const char*) {
        return Result<dv::BufferRef>(Status::error(MARLIN_E_MEMORY, "no memory"));
      })
      .WillRepeatedly([&](uint64_t bytes, dv::Placement placement, const char* label) {
        return world.device->allocate(bytes, placement, label);
      });
  mm::buffer made;
  EXPECT_OK(marlin_buffer_create, world.context.get(), uint64_t{8}, made.out());
  EXPECT_EQ(world.record.buffers, with_scratch) << "the buffer in place of the scratch";
  testing::Mock::VerifyAndClearExpectations(world.mock.get());
}

TEST(Memory, WithoutUnifiedMemoryWeightsAreCopied) {
  World world;
  world.device->change().unified_memory = false;
  world.record.take();
  const mm::weights w = abi_test::quantized(world.context, 64, 64);
  std::vector<std::string> what;
  for (const Command& c : world.record.take()) what.push_back(c.what);
  EXPECT_EQ(what, (std::vector<std::string>{"copy", "commit", "wait"}));
  EXPECT_EQ(world.record.buffers, 1);  // the copy that the host filled is gone
}

TEST(Scratch, OfTheHostIsUsedOrTooSmall) {
  World world;
  Product p(world, 9, 64, 8192);  // which splits K
  uint64_t needed = 0;
  const marlin_gemm_desc* const descs[] = {&p.desc};
  EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{9}, &needed);
  EXPECT_GE(needed, 8u * 64 * 4);
  for (const uint64_t bytes : {needed, needed - 256}) {
    mm::buffer memory;
    EXPECT_OK(marlin_buffer_create, world.context.get(), bytes + 8, memory.out());
    auto d = mm::make<marlin_stream_desc>();
    d.scratch.data = memory.get();
    d.scratch.offset_bytes = 8;
    d.scratch.rows = 1;
    d.scratch.cols = static_cast<int64_t>(bytes);
    d.scratch.dtype = MARLIN_U8;
    d.scratch.memory = MARLIN_MEM_BUFFER;
    mm::stream stream;
    EXPECT_OK(marlin_stream_create, world.context.get(), &d, stream.out());
    const int before = world.record.allocations;
    if (bytes == needed) {
      EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
    } else {
      EXPECT_FAILS(MARLIN_E_NOT_PREPARED, "these products need", marlin_gemm, stream.get(), &p.desc);
    }
    EXPECT_EQ(world.record.allocations, before);
  }
  std::vector<uint8_t> host(100);
  auto d = mm::make<marlin_stream_desc>();
  d.scratch = mm::matrix_view(host.data(), 1, 100);
  marlin_stream* none = nullptr;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "scratch.memory is 0", marlin_stream_create, world.context.get(), &d, &none);
}

class Prepare : public testing::TestWithParam<int> {};

/// After marlin_prepare no M up to max_m makes the device allocate or compile.
TEST_P(Prepare, LeavesNothingToDoLater) {
  World world;
  const bool on_stream = GetParam() % 2 == 0, int8 = GetParam() / 2 % 2 != 0, gated = GetParam() / 4 % 2 != 0;
  world.device->change().unified_memory = GetParam() / 8 != 0;
  const int64_t n = 320, k = 2080, max_m = 200;
  const mm::weights w = abi_test::quantized(world.context, n, k);
  mm::stream stream;
  if (on_stream) stream = mm::stream(world.context);
  const Matrix a(world.context, max_m, k, MARLIN_F16), c(world.context, max_m, n, MARLIN_BF16);
  std::vector<float> host_a(static_cast<size_t>(max_m * k)), host_c(static_cast<size_t>(max_m * n));
  auto d = mm::make<marlin_gemm_desc>();
  d.weights = w.get();
  d.a = on_stream ? a.view : mm::matrix_view(host_a.data(), max_m, k);
  d.c = on_stream ? c.view : mm::matrix_view(host_c.data(), max_m, n);
  d.compute = int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
  d.epilogue = gated ? MARLIN_EPILOGUE_SWIGLU : MARLIN_EPILOGUE_NONE;
  if (gated) d.c.cols = n / 2;
  const marlin_gemm_desc* const both[] = {&d, &d};
  uint64_t bytes = 0;
  EXPECT_OK(marlin_prepare, stream.get(), both, 1u, max_m, &bytes);
  EXPECT_GT(bytes, 0u);
  const int allocations = world.record.allocations, compilations = world.record.compilations;
  for (int64_t m = 1; m <= max_m; ++m) {
    d.a.rows = d.c.rows = m;
    EXPECT_OK(marlin_gemm, stream.get(), &d);
    ASSERT_EQ(world.record.allocations, allocations) << "M = " << m;
    ASSERT_EQ(world.record.compilations, compilations) << "M = " << m;
  }
}
INSTANTIATE_TEST_SUITE_P(Forms, Prepare, testing::Range(0, 16));

/// Kernels take long to compile on some devices, and where A is aligned those for other places of it are of no use.
TEST(Prepare, CompilesForTheAlignmentOfTheOperands) {
  const auto compiled = [](int64_t stride, uint64_t offset, bool known) {
    World world;
    const mm::weights w = abi_test::quantized(world.context, 64, 256);
    const Matrix a(world.context, 8, 512, MARLIN_F16), c(world.context, 8, 64, MARLIN_F16);
    const mm::stream stream(world.context);
    auto d = mm::make<marlin_gemm_desc>();
    d.weights = w.get();
    d.a = a.view, d.c = c.view;
    d.a.cols = 256, d.a.row_stride = stride, d.a.offset_bytes = offset;
    if (!known) d.a.data = nullptr;
    const marlin_gemm_desc* const one[] = {&d};
    EXPECT_OK(marlin_prepare, stream.get(), one, 1u, int64_t{1}, nullptr);
    return world.record.compilations;
  };
  const int aligned = compiled(512, 0, true);
  EXPECT_EQ(compiled(257, 0, true), aligned);
  EXPECT_EQ(compiled(512, 2, true), aligned);
  EXPECT_EQ(compiled(257, 0, false), aligned) << "rows of this distance are aligned nowhere";
  EXPECT_EQ(compiled(512, 0, false), aligned + 1);
}

/// What is reserved for several products holds all of their parts at once.
TEST(Prepare, AddsUpTheScratchOfTheProducts) {
  World world;
  Product split(world, 5, 64, 8192), gated(world, 5);
  gated.desc.epilogue = MARLIN_EPILOGUE_SWIGLU;
  gated.desc.c.cols = 32;
  const marlin_gemm_desc* const both[] = {&split.desc, &gated.desc};
  uint64_t one = 0, other = 0, all = 0;
  EXPECT_OK(marlin_prepare, nullptr, both, 1u, int64_t{5}, &one);
  EXPECT_OK(marlin_prepare, nullptr, both + 1, 1u, int64_t{5}, &other);
  const mm::stream stream(world.context);
  EXPECT_OK(marlin_prepare, stream.get(), both, 2u, int64_t{5}, &all);
  EXPECT_GE(all, one + other - 255) << "each may skip 255 bytes of the host's memory";
  const int allocations = world.record.allocations;
  EXPECT_OK(marlin_gemm_many, stream.get(), both, 2u);
  EXPECT_EQ(world.record.allocations, allocations);
  mm::buffer memory;
  EXPECT_OK(marlin_buffer_create, world.context.get(), all, memory.out());
  auto d = mm::make<marlin_stream_desc>();
  d.scratch = {memory.get(), 0, 1, static_cast<int64_t>(all), 0, MARLIN_U8, MARLIN_MEM_BUFFER};
  mm::stream on_hosts;
  EXPECT_OK(marlin_stream_create, world.context.get(), &d, on_hosts.out());
  EXPECT_OK(marlin_gemm_many, on_hosts.get(), both, 2u);
}

struct Log {
  std::vector<std::string> lines;
  static void write(void* user, int32_t, const char* message) { static_cast<Log*>(user)->lines.emplace_back(message); }
};

TEST(Probe, AKernelThatMiscomputesIsLoggedAndNeverUsed) {
  Log log;
  mm::BackendOptions options;
  options.logger = {Log::write, &log};
  World world({.probe = true}, options);  // computes nothing, hence nothing right
  world.device->change().tensor = true;
  Product p(world, 1);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "no kernel", marlin_gemm, nullptr, &p.desc);
  EXPECT_EQ(log.lines.size(), mm::gpu::simdgroup_policy().kernels.size());  // each was tried once
  EXPECT_TRUE(abi_test::contains(log.lines.at(0), "gemv_u4_f16_m1 is not used on this device: C[")) << log.lines.at(0);
  EXPECT_TRUE(abi_test::contains(log.lines.at(0), ", expected 628.0")) << log.lines.at(0);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "no kernel", marlin_gemm, nullptr, &p.desc);
  EXPECT_EQ(log.lines.size(), mm::gpu::simdgroup_policy().kernels.size());
}

/// No comparison with NaN holds, and none may pass for that.
TEST(Probe, NaNIsNoResult) {
  Log log;
  mm::BackendOptions options;
  options.logger = {Log::write, &log};
  World world({.probe = true}, options);
  ON_CALL(*world.mock, allocate(_, _, _)).WillByDefault([&](uint64_t bytes, dv::Placement placement, const char* label) {
    auto made = world.device->allocate(bytes, placement, label);
    std::memset(made.value()->host(), 0xff, bytes);  // C, which nobody writes, is NaN
    return made;
  });
  Product p(world, 1);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "no kernel", marlin_gemm, nullptr, &p.desc);
  ASSERT_FALSE(log.lines.empty());
  EXPECT_TRUE(abi_test::contains(log.lines.at(0), "is not used on this device: C[0, 0] is ")) << log.lines.at(0);
  EXPECT_TRUE(abi_test::contains(log.lines.at(0), "nan")) << log.lines.at(0);
}

TEST(Probe, AKernelThatIsNotThereIsReplaced) {
  World world({.probe = true});
  ON_CALL(*world.mock, kernel(_, _)).WillByDefault([](std::string_view name, std::span<const dv::Constant>) {
    return Result<dv::KernelRef>(
        Status::error(MARLIN_E_NOT_FOUND, "no kernel %.*s", static_cast<int>(name.size()), name.data()));
  });
  Product p(world, 1);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "no kernel", marlin_gemm, nullptr, &p.desc);
}

TEST(Probe, WhatTheCompilerSaysReachesTheCaller) {
  World world({.probe = true});
  Product p(world, 1);
  EXPECT_CALL(*world.mock, kernel(_, _)).WillOnce([](std::string_view, std::span<const dv::Constant>) {
    return Result<dv::KernelRef>(Status::error(MARLIN_E_DEVICE, "gemv.metal:12: error: no such type").with_native(3));
  });
  EXPECT_FAILS(MARLIN_E_DEVICE, "gemv.metal:12", marlin_gemm, nullptr, &p.desc);
  testing::Mock::VerifyAndClearExpectations(world.mock.get());
}

TEST(Probe, AKernelWithTooManyRegistersIsReplaced) {
  Log log;
  mm::BackendOptions options;
  options.logger = {Log::write, &log};
  World world({.probe = true}, options);
  ON_CALL(*world.mock, kernel(_, _)).WillByDefault([](std::string_view name, std::span<const dv::Constant> constants) {
    auto kernel = std::make_shared<IdleKernel>(name, constants);
    kernel->threads = 64;
    return Result<dv::KernelRef>(dv::KernelRef(std::move(kernel)));
  });
  Product p(world, 1);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "no kernel", marlin_gemm, nullptr, &p.desc);
  EXPECT_TRUE(abi_test::contains(log.lines.at(0), "up to 64 threads in simdgroups of 32, expected 256")) << log.lines.at(0);
}

/// What a host hands over and the device does not take.
TEST(NativeObjects, ThatDoNotFitAreErrorsOfTheCall) {
  World world;
  Product p(world, 1);
  const Status committed = Status::error(MARLIN_E_ARGUMENT, "the command buffer is committed");
  EXPECT_CALL(*world.mock, stream(_)).WillOnce([&](const dv::StreamSource&) {
    return Result<std::unique_ptr<dv::Stream>>(committed);
  });
  auto d = mm::make<marlin_stream_desc>();
  int native = 0;
  d.kind = MARLIN_NATIVE_METAL_COMMAND_BUFFER;
  d.native = &native;
  marlin_stream* none = nullptr;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "is committed", marlin_stream_create, world.context.get(), &d, &none);
  EXPECT_CALL(*world.mock, wrap_native(&native)).WillOnce([](void*) {
    return Result<dv::BufferRef>(Status::error(MARLIN_E_ARGUMENT, "a buffer of another device"));
  });
  auto g = p.desc;
  g.a.data = &native;
  g.a.memory = MARLIN_MEM_METAL;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "another device", marlin_gemm, nullptr, &g);
  testing::Mock::VerifyAndClearExpectations(world.mock.get());
  EXPECT_OK(marlin_gemm, nullptr, &p.desc);
}

TEST(Sizes, BeyondWhatAKernelCountsAreRefusedBeforeAnythingIsRead) {
  World world;
  alignas(4) uint8_t unread[16] = {};
  auto d = mm::make<marlin_pack_desc>();
  d.format = MARLIN_FORMAT_INT4;
  d.group_size = 32;
  d.n = INT32_MAX;
  d.k = 32;
  d.values = mm::matrix_view(unread, d.n, 16);
  d.scales = {unread, 0, d.n, 1, 0, MARLIN_F16, MARLIN_MEM_HOST};
  const marlin_pack_desc* const parts[] = {&d};
  mm::weights w;
  EXPECT_FAILS(MARLIN_E_SHAPE, "2147483647 rows are more than this device takes", marlin_weights_pack, world.context.get(),
               parts, 1u, 0u, w.out());
  Product p(world, 1, 1, 1);  // one element a row, which INT8 activations pad to 32
  p.desc.compute = MARLIN_COMPUTE_INT8;
  const marlin_gemm_desc* const descs[] = {&p.desc};
  EXPECT_FAILS(MARLIN_E_SHAPE, "do not fit the address space", marlin_prepare, nullptr, descs, 1u, int64_t{1} << 60, nullptr);
}

/// Every call that would ask the device; the number of the first that does not say why it cannot, or 0.
int first_served_after_a_fork(const World& world, Product& p, const mm::stream& stream, const mm::buffer& memory) {
  const auto values = abi_test::numbers(64, 1);
  const auto part = abi_test::pack_desc(values, 1, 64);
  const marlin_pack_desc* const parts[] = {&part};
  const marlin_gemm_desc* const descs[] = {&p.desc};
  const marlin_matrix rows = memory.matrix<float>(1, 64);
  int native = 0;
  auto foreign = p.desc;
  foreign.a.data = &native;
  foreign.a.memory = MARLIN_MEM_METAL;
  mm::weights w;
  mm::buffer b;
  mm::stream s;
  char text[256];
  const abi_test::Outcome outcomes[] = {
      abi_test::call(marlin_gemm, nullptr, &p.desc),
      abi_test::call(marlin_gemm_many, stream.get(), descs, 1u),
      abi_test::call(marlin_gemm, nullptr, &foreign),
      abi_test::call(marlin_prepare, stream.get(), descs, 1u, int64_t{4}, nullptr),
      abi_test::call(marlin_weights_unpack, nullptr, p.w.get(), nullptr, int64_t{0}, &rows),
      abi_test::call(marlin_weights_pack, world.context.get(), parts, 1u, 0u, w.out()),
      abi_test::call(marlin_buffer_create, world.context.get(), uint64_t{8}, b.out()),
      abi_test::call(marlin_stream_create, world.context.get(), nullptr, s.out()),
      abi_test::call(marlin_stream_flush, stream.get()),
      abi_test::call(marlin_stream_wait, stream.get(), UINT64_MAX),
      abi_test::call(
          marlin_stream_notify, stream.get(), [](void*, marlin_status) {}, nullptr),
      abi_test::call(marlin_explain, &p.desc, text, sizeof text, nullptr),
  };
  int number = 0;
  for (const abi_test::Outcome& o : outcomes)
    if (++number; o.status != MARLIN_E_DEVICE || !abi_test::contains(o.message, "does not survive a fork")) return number;
  return 0;
}

TEST(Fork, LeavesTheContextToTheParent) {
  World world;
  Product p(world, 2);
  const mm::stream stream(world.context);
  const mm::buffer memory(world.context, 256);
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(first_served_after_a_fork(world, p, stream, memory));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the number of the first call that was served";
  EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
}

}  // namespace
