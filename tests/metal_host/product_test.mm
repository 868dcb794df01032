// A product from end to end: packed weights, the GPU backend, this host, and the library's own kernel, probed before it serves.
#include <sys/mman.h>

#include <cstdio>
#include <random>

#include "backends/gpu/gpu_backend.h"
#include "backends/gpu/packer.h"
#include "backends/gpu/weights.h"
#include "fixture.h"
#include "formats/codecs.h"
#include "problem/memory_source.h"
#include "unit/planned.h"

namespace metal_marlin::metal {
namespace {

constexpr int64_t kN = 40, kK = 96;

class Products : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    built_in.shaders = embedded_shaders();
    open(built_in);
    BackendOptions options;
    options.threads = 1;
    options.logger = {[](void* user, int32_t, const char* message) { static_cast<Products*>(user)->log += message; }, this};
    auto made = must(gpu::make_gpu_backend(std::shared_ptr<device::Device>(std::move(device)), options));
    backend = std::move(made);
    std::mt19937 random(1);
    WeightMeta& meta = source.mutable_meta();
    meta.format = MARLIN_FORMAT_MXFP4, meta.scale_type = ScaleType::e8m0;
    meta.n = kN, meta.k = kK, meta.group_size = 32;
    set_groups(meta, Order::plain, random);
    fill_randomly(source, random, true);
    auto packed = must(backend->pack(source));
    weights = std::move(packed);
    a = memory(kK * 2), c = memory(kN * 4);
    for (int64_t k = 0; k < kK; ++k) reinterpret_cast<_Float16*>(a->host())[k] = static_cast<_Float16>(k % 7 - 3);
  }
  void TearDown() override {
    a.reset(), c.reset(), weights.reset(), backend.reset();
    DeviceTest::TearDown();
  }
  std::unique_ptr<SharedMemory> memory(uint64_t bytes) { return must(backend->allocate(bytes)); }
  static MatrixView view(const SharedMemory& of, int64_t cols, marlin_dtype dtype) {
    MatrixView made;
    made.data = of.host(), made.rows = 1, made.cols = made.stride = cols, made.dtype = dtype;
    made.memory = MARLIN_MEM_BUFFER, made.buffer = &of;
    return made;
  }
  GemmProblem problem() const {
    GemmProblem made;
    made.weights = weights.get(), made.a = view(*a, kK, MARLIN_F16), made.c = view(*c, kN, MARLIN_F32);
    return made;
  }
  void expect_product() {
    EXPECT_EQ(log, "") << "every kernel computes right when it is probed";
    const auto chosen = must(plan_and_explain(*backend, problem()));
    EXPECT_THAT(chosen, ::testing::StartsWith("kernel: gemv_fp4_f16_m1\n"));
    constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (int64_t n = 0; n < kN; ++n) {
      double want = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const uint8_t code = source.all().codes[static_cast<size_t>(n * kK + k)];
        const int exponent = source.all().scales[static_cast<size_t>(n * (kK / 32) + k / 32)] - 127;
        want += std::ldexp((code & 8) != 0 ? -kE2m1[code & 7] : kE2m1[code & 7], exponent) * static_cast<double>(k % 7 - 3);
      }
      EXPECT_NEAR(reinterpret_cast<const float*>(c->host())[n], want, 1e-4 * (1 + std::fabs(want))) << n;
    }
  }

  /// How many buffers of weights the last product made resident, beside the stream's own.
  void expect_resident(size_t weights_only) {
    EXPECT_OK(plan_and_run(*backend, nullptr, problem()));
    if (!before_) before_ = metal_test::settings()->resident - weights_only;
    EXPECT_EQ(metal_test::settings()->resident, *before_ + weights_only);
  }

  std::string log;
  DeviceOptions built_in;
  MemorySource source;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<PackedWeights> weights;
  std::unique_ptr<SharedMemory> a, c;

 private:
  std::optional<size_t> before_;
};

TEST_F(Products, AtOnce) {
  const GemmProblem once = problem();
  EXPECT_OK(plan_and_run(*backend, nullptr, once));
  expect_product();
}

/// What newer systems have, the host goes without. No math is fast there, either.
class ProductsOfTheOldestSystem : public Products {
 protected:
  ProductsOfTheOldestSystem() { oldest_system = true; }
};
TEST_F(ProductsOfTheOldestSystem, AreRight) {
  EXPECT_OK(plan_and_run(*backend, nullptr, problem()));
  expect_product();
  EXPECT_EQ(metal_test::settings()->resident, 0u) << "which has no residency sets";
}

TEST_F(Products, HaveSeveralTextsCompiledAtOnceWhenTheyArePrepared) {
  metal_test::settings()->compile_seconds = 0.1;
  const GemmProblem once = problem();
  const auto prepared = backend->prepare(nullptr, without_plans({&once, 1}), 2);
  EXPECT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_EQ(metal_test::settings()->most_compiling, 2u) << "gemv for one row, and for two";
  EXPECT_EQ(metal_test::settings()->compiled, 2u);
}

// An app goes to the background and comes back. Nothing is remembered of the time in between: neither kernels as wrong, nor
// streams.
TEST_F(Products, InTheBackgroundAreErrorsAndInTheForegroundRightAgain) {
  const GemmProblem once = problem();
  for (const bool probed : {false, true}) {
    SCOPED_TRACE(probed ? "probed before" : "probed in the background");
    metal_test::settings()->refusal = MTLCommandBufferErrorNotPermitted;
    for (int i = 0; i < 2; ++i) {
      const Status refused = plan_and_run(*backend, nullptr, once);
      EXPECT_EQ(refused.code(), MARLIN_E_DEVICE);
      EXPECT_EQ(refused.native_code(), static_cast<int32_t>(MTLCommandBufferErrorNotPermitted));
      EXPECT_THAT(refused.message(), ::testing::HasSubstr("call again in the foreground"));
    }
    metal_test::settings()->refusal = 0;
    EXPECT_OK(plan_and_run(*backend, nullptr, once));
    expect_product();
  }
}

// What a packed container has at a multiple of 4096 bytes, mapped as the library maps it, with its last page cut off.
TEST_F(Products, OfWeightsThatLieInAFile) {
  const auto packer = gpu::make_packer({}, gpu::simdgroup_policy()).take();
  const auto packed = packer->pack(source).take();
  PackedMatrix matrix = packer->packed_matrix(*packed).take();
  constexpr size_t kAt = 3 * 4096;
  const size_t bytes = kAt + matrix.data.size();
  std::FILE* const file = std::tmpfile();
  ASSERT_EQ(std::fseek(file, kAt, SEEK_SET), 0);
  ASSERT_EQ(std::fwrite(matrix.data.data(), 1, matrix.data.size(), file), matrix.data.size());
  ASSERT_EQ(std::fflush(file), 0);
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fileno(file), 0);
  std::fclose(file);
  ASSERT_NE(map, MAP_FAILED);
  matrix.data = {static_cast<const std::byte*>(map) + kAt, matrix.data.size()};
  std::shared_ptr<const void> owner(map, [bytes](const void* p) { munmap(const_cast<void*>(p), bytes); });
  const std::weak_ptr<const void> alive = owner;
  expect_resident(1);  // those that SetUp packed
  const long before = metal_test_live_objects("MTLBuffer");
  auto stack = backend->adopt({&matrix, 1}, std::exchange(owner, nullptr));
  ASSERT_TRUE(stack.ok()) << stack.status().message();
  EXPECT_EQ(metal_test_live_objects("MTLBuffer"), before + 1);
  const auto& adopted = static_cast<const gpu::GpuWeights&>(*stack.value().front());
  EXPECT_EQ(adopted.part(0).buffer->host() + adopted.part(0).offset, matrix.data.data()) << "in place";
  GemmProblem mapped = problem();
  mapped.weights = &adopted;
  EXPECT_OK(plan_and_run(*backend, nullptr, mapped));
  expect_product();
  expect_resident(2);
  stack = Status::error(MARLIN_E_CANCELLED, "gone");
  EXPECT_TRUE(alive.expired());
  expect_resident(1);
  EXPECT_OK(plan_and_run(*backend, nullptr, problem()));
}

TEST_F(Products, OnTheHostsCommandBuffer) {
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    auto on = must(backend->create_stream({.kind = MARLIN_NATIVE_METAL_COMMAND_BUFFER, .native = (__bridge void*)commands}));
    const GemmProblem once = problem();
    EXPECT_OK(plan_and_run(*backend, on.get(), once));
    EXPECT_OK(backend->flush(*on));
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_TRUE(commands.error == nil);
    expect_product();
  }
}

// A, C and scratch are of the host, as MLX makes its memory: only fences order the encoders that use them.
TEST_F(Products, OnUntrackedMemoryBetweenFencesOfTheHost) {
  @autoreleasepool {
    id<MTLDevice> metal = MTLCreateSystemDefaultDevice();
    id<MTLFence> before = [metal newFence], after = [metal newFence];
    const auto untracked = [&](NSUInteger bytes) {
      return [metal newBufferWithLength:bytes options:MTLResourceHazardTrackingModeUntracked];
    };
    const auto natively = [](MatrixView view, id<MTLBuffer> buffer) {
      view.memory = MARLIN_MEM_METAL, view.native = (__bridge void*)buffer, view.buffer = nullptr;
      return view;
    };
    const auto copy = [](id<MTLCommandBuffer> commands, id<MTLFence> wait, id<MTLFence> update, id<MTLBuffer> from,
                         id<MTLBuffer> to, NSUInteger bytes) {
      id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
      if (wait != nil) [encoder waitForFence:wait];
      [encoder copyFromBuffer:from sourceOffset:0 toBuffer:to destinationOffset:0 size:bytes];
      if (update != nil) [encoder updateFence:update];
      [encoder endEncoding];
    };
    id<MTLBuffer> input = [metal newBufferWithLength:kK * 2 options:0], output = [metal newBufferWithLength:kN * 4 options:0];
    id<MTLBuffer> x = untracked(kK * 2), y = untracked(kN * 4), scratch = untracked(1 << 16);
    std::memcpy(input.contents, a->host(), kK * 2);
    id<MTLCommandBuffer> commands = [[metal newCommandQueue] commandBuffer];
    copy(commands, nil, before, input, x, kK * 2);
    MatrixView temporaries = view(*c, 1 << 16, MARLIN_U8);
    temporaries.data = scratch.contents;
    auto on = must(backend->create_stream({.kind = MARLIN_NATIVE_METAL_COMMAND_BUFFER,
                                           .native = (__bridge void*)commands,
                                           .scratch = natively(temporaries, scratch),
                                           .wait_fence = (__bridge void*)before,
                                           .update_fence = (__bridge void*)after}));
    GemmProblem once = problem();
    once.a = natively(once.a, x), once.c = natively(once.c, y);
    EXPECT_OK(plan_and_run(*backend, on.get(), once));
    EXPECT_OK(plan_and_run(*backend, on.get(), once));
    EXPECT_OK(backend->flush(*on));
    copy(commands, after, nil, y, output, kN * 4);
    [commands commit];
    [commands waitUntilCompleted];
    std::memcpy(c->host(), output.contents, kN * 4);
    on.reset();
  }
  expect_product();
}

// Scratch that is replaced when the second call needs more, weights, A and the stream itself go before the host commits; the
// command buffer holds references to none of them.
TEST_F(Products, OnAHostsCommandBufferThatRetainsNothing) {
  GemmProblem gated = problem();
  gated.epilogue = MARLIN_EPILOGUE_SWIGLU, gated.c.cols = gated.c.stride = kN / 2;
  EXPECT_OK(plan_and_run(*backend, nullptr, gated));
  const auto* const values = reinterpret_cast<const float*>(c->host());
  const std::vector<float> expected(values, values + kN / 2);
  auto first = memory(kN * 2), second = memory(kN * 2);
  @autoreleasepool {
    id<MTLCommandQueue> queue = [MTLCreateSystemDefaultDevice() newCommandQueue];
    id<MTLCommandBuffer> commands = [queue commandBufferWithUnretainedReferences];
    @autoreleasepool {
      auto on = must(backend->create_stream({.kind = MARLIN_NATIVE_METAL_COMMAND_BUFFER, .native = (__bridge void*)commands}));
      EXPECT_OK(plan_and_run(*backend, on.get(), gated));
      GemmProblem both[] = {gated, gated};
      both[0].c.data = first->host(), both[0].c.buffer = first.get();
      both[1].c.data = second->host(), both[1].c.buffer = second.get();
      EXPECT_OK(plan_and_run(*backend, on.get(), both));
      EXPECT_OK(backend->flush(*on));
    }
    a.reset(), weights.reset();
    metal_test::settings()->completion_delay = 0.02;
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_TRUE(commands.error == nil);
  }
  for (const auto* const made : {c.get(), first.get(), second.get()})
    for (int64_t i = 0; i < kN / 2; ++i)
      EXPECT_EQ(reinterpret_cast<const float*>(made->host())[i], expected[static_cast<size_t>(i)]) << i;
}

}  // namespace
}  // namespace metal_marlin::metal
