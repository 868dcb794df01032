// Operands of products through the C ABI, over the driver of the tests: where they lie when kernels use them, and what becomes
// of those that the driver does not know.
#include "abi/support.h"
#include "context_on_fake_driver.h"
#include "shaders/common/arguments.h"
#include "test.h"

namespace {

using namespace cuda_test;
namespace mm = metal_marlin;

constexpr int64_t kM = 2, kN = 64, kK = 128;

/// A context whose only kernel for products is gemv_u4_f16_m8, and weights for it.
class CudaOperands : public CudaContext {
 protected:
  CudaOperands() : CudaContext("gemv_u4_f16_m8") {}

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(CudaContext::SetUp());
    weights = abi_test::quantized(context, kN, kK);
    desc = mm::make<marlin_gemm_desc>();
    desc.weights = weights.get();
    desc.a = view(a.data(), kK, MARLIN_F16, MARLIN_MEM_CUDA);
    desc.c = view(c.data(), kN, MARLIN_F32, MARLIN_MEM_CUDA);
    know(a.data(), sizeof a);
    know(c.data(), sizeof c);
    driver->calls.clear();
  }
  void TearDown() override {
    weights = {};
    CudaContext::TearDown();
  }
  static marlin_matrix view(void* data, int64_t cols, marlin_dtype dtype, marlin_memory memory) {
    return {data, 0, kM, cols, 0, dtype, memory};
  }
  /// Adds what cuMemAlloc made.
  void know(void* begin, size_t bytes) {
    driver->memory.push_back({.begin = reinterpret_cast<uintptr_t>(begin), .bytes = bytes, .allocated = true});
  }
  fake_cuda::Memory& known(const void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return *std::find_if(driver->memory.begin(), driver->memory.end(),
                         [=](const fake_cuda::Memory& m) { return at - m.begin < m.bytes; });
  }
  void forget(const void* address) { driver->memory.erase(driver->memory.begin() + (&known(address) - driver->memory.data())); }
  /// The calls of these functions, in order.
  std::vector<std::string> calls_of(std::initializer_list<std::string> functions) const {
    std::vector<std::string> calls;
    std::copy_if(driver->calls.begin(), driver->calls.end(), std::back_inserter(calls), [&](const std::string& call) {
      return std::find(functions.begin(), functions.end(), call) != functions.end();
    });
    return calls;
  }

  mm::weights weights;
  marlin_gemm_desc desc{};
  // Twice as long as needed, for what runs past the end.
  alignas(16) std::array<uint16_t, 2 * kM * kK> a{};
  alignas(16) std::array<float, 2 * kM * kN> c{};
};

TEST_F(CudaOperands, OfTheHostAreCopiedToTheDeviceAndBack) {
  desc.a.memory = desc.c.memory = MARLIN_MEM_HOST;
  desc.flags = MARLIN_GEMM_ACCUMULATE;
  a.fill(0x3c00);
  c.fill(5);
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  driver->calls.clear();
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  EXPECT_THAT(calls_of({"cuMemcpyAsync", "cuLaunchKernelEx", "cuMemAlloc_v2", "cuMemHostAlloc", "cuEventSynchronize"}),
              ElementsAre("cuMemcpyAsync", "cuLaunchKernelEx", "cuMemcpyAsync", "cuEventSynchronize"));
  ASSERT_FALSE(driver->launches.empty());
  const auto& buffers = driver->launches.back().parameters.buffers;
  for (const int operand : {MARLIN_BUFFER_A, MARLIN_BUFFER_C})
    EXPECT_TRUE(known(reinterpret_cast<const void*>(buffers[operand])).allocated) << operand;
  EXPECT_EQ(*reinterpret_cast<const uint16_t*>(buffers[MARLIN_BUFFER_A]), 0x3c00);
  EXPECT_EQ(*reinterpret_cast<const float*>(buffers[MARLIN_BUFFER_C]), 5);
  for (const float value : c) EXPECT_EQ(value, 5);  // no kernel ran
}

/// Two calls of a launch (1 ms) between two copies (2 ms each).
TEST_F(CudaOperands, TimeOfTheDeviceIsExplained) {
  desc.a.memory = desc.c.memory = MARLIN_MEM_HOST;
  desc.flags = MARLIN_GEMM_ACCUMULATE;
  for (int i = 0; i < 2; ++i) EXPECT_OK(marlin_gemm, nullptr, &desc);
  char text[1024];
  EXPECT_OK(marlin_explain, &desc, text, sizeof text, nullptr);
  EXPECT_THAT(text, HasSubstr("busy_ns: 10000000\n"));
}

TEST_F(CudaOperands, OfTheDeviceAreUsedWhereTheyLie) {
  desc.a.offset_bytes = 16;
  known(a.data()).bytes = 16;
  know(&a[8], kM * kK * 2);  // the product begins where another allocation does
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  ASSERT_FALSE(driver->launches.empty());
  EXPECT_EQ(driver->launches.back().parameters.buffers[MARLIN_BUFFER_A], reinterpret_cast<uintptr_t>(&a[8]));
  EXPECT_EQ(driver->launches.back().parameters.buffers[MARLIN_BUFFER_C], reinterpret_cast<uintptr_t>(c.data()));
  EXPECT_THAT(driver->calls, Not(Contains("cuMemcpyAsync")));
}

TEST_F(CudaOperands, ThatRunPastTheirAllocationAreRefused) {
  constexpr size_t kNeeded = kM * kN * 4;
  const mm::stream stream(context);
  for (marlin_stream* const on : {static_cast<marlin_stream*>(nullptr), stream.get()}) {
    known(c.data()).bytes = kNeeded;
    EXPECT_OK(marlin_gemm, on, &desc);
    const size_t launches = driver->launches.size();
    known(c.data()).bytes = kNeeded - 1;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "its allocation holds 511 from there on", marlin_gemm, on, &desc);
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "c needs 512 bytes at 0x", marlin_gemm, on, &desc);
    known(c.data()).bytes = kNeeded + 12;  // of two rows the second begins three elements later
    desc.c.row_stride = kN + 3;
    EXPECT_OK(marlin_gemm, on, &desc);
    desc.c.row_stride = kN + 4;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "c needs 528 bytes", marlin_gemm, on, &desc);
    desc.c.row_stride = 0;
    desc.c.offset_bytes = 16;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "its allocation holds 508 from there on", marlin_gemm, on, &desc);
    desc.c.offset_bytes = 0;
    EXPECT_EQ(driver->launches.size(), launches + 1) << "nothing of what was refused ran";
    EXPECT_OK(marlin_gemm, on, &desc);
  }
}

/// What lies behind an allocation is none of its business; what a host reserved or pinned in pieces may be one matrix.
TEST_F(CudaOperands, MayGoOnWhereAllocationsDoNot) {
  constexpr size_t kHalf = kM * kN * 4 / 2;
  const auto halve = [&](auto&& change) {
    know(c.data() + kM * kN / 2, kHalf);
    for (fake_cuda::Memory* const m : {&known(c.data()), &driver->memory.back()}) {
      m->bytes = kHalf;
      change(*m);
    }
  };
  halve([](fake_cuda::Memory&) {});
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "its allocation holds 256", marlin_gemm, nullptr, &desc);
  driver->memory.pop_back();
  halve([](fake_cuda::Memory& m) { m.allocated = false, m.pooled = true; });
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "its allocation holds 256", marlin_gemm, nullptr, &desc);
  driver->memory.pop_back();
  halve([](fake_cuda::Memory& m) { m.pooled = false, m.type = 1; });
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  driver->memory.pop_back();
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "its allocation holds 256", marlin_gemm, nullptr, &desc);
}

TEST_F(CudaOperands, OfUnknownLengthAreLeftToTheHost) {
  known(c.data()).tells = false;
  EXPECT_OK(marlin_gemm, nullptr, &desc);
  for (const int cannot_tell : {1, 801}) {
    fail("cuPointerGetAttributes", cannot_tell);
    EXPECT_OK(marlin_gemm, nullptr, &desc);
  }
  for (const int skip : {0, 1}) {
    fail("cuPointerGetAttributes", 700, skip);
    EXPECT_FAILS(MARLIN_E_DEVICE, "cuPointerGetAttributes: CUDA_ERROR_ILLEGAL_ADDRESS (700)", marlin_gemm, nullptr, &desc);
  }
}

TEST_F(CudaOperands, ThatTheDriverDoesNotKnowAreRefused) {
  forget(a.data());
  const mm::stream stream(context);
  for (marlin_stream* const on : {static_cast<marlin_stream*>(nullptr), stream.get()}) {
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "a is at 0x", marlin_gemm, on, &desc);
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "the device knows of no memory; expected 512 bytes of device, managed or pinned memory",
                 marlin_gemm, on, &desc);
  }
  desc.a.rows = desc.c.rows = 0;  // nothing is read
  EXPECT_OK(marlin_gemm, nullptr, &desc);
}

/// A graph allocates at its launch: before that the driver does not know the memory. Nothing may end the capture.
TEST_F(CudaOperands, OfAGraphMayBeUnknownWhileItIsCaptured) {
  auto d = mm::make<marlin_stream_desc>();
  d.kind = MARLIN_NATIVE_CUDA_STREAM;
  mm::stream stream;
  EXPECT_OK(marlin_stream_create, context.get(), &d, stream.out());
  forget(a.data());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "a is at 0x", marlin_gemm, stream.get(), &desc);
  driver->capturing = true;
  driver->calls.clear();
  EXPECT_OK(marlin_gemm, stream.get(), &desc);
  for (const char* forbidden : {"cuStreamQuery", "cuEventQuery", "cuEventRecord", "cuEventSynchronize", "cuMemAlloc_v2"})
    EXPECT_THAT(driver->calls, Not(Contains(forbidden)));
  known(c.data()).bytes = 4;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "its allocation holds 4", marlin_gemm, stream.get(), &desc);
  driver->capturing = false;
}

/// The stream is as good as before when the capture has ended.
TEST_F(CudaOperands, OfAStreamThatCannotBeWaitedForNow) {
  auto d = mm::make<marlin_stream_desc>();
  d.kind = MARLIN_NATIVE_CUDA_STREAM;
  mm::stream stream;
  EXPECT_OK(marlin_stream_create, context.get(), &d, stream.out());
  driver->capturing = true;
  EXPECT_OK(marlin_gemm, stream.get(), &desc);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "is being captured", marlin_stream_wait, stream.get(), uint64_t{0});
  EXPECT_OK(marlin_gemm, stream.get(), &desc);
  driver->capturing = false;
  EXPECT_OK(marlin_gemm, stream.get(), &desc);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
}

/// By the wrapper for C++ alone.
TEST_F(CudaOperands, AndAStreamOfTheHostInCpp) {
  mm::stream stream(context, MARLIN_NATIVE_CUDA_STREAM, nullptr);
  auto d = mm::make<marlin_gemm_desc>();
  d.weights = weights.get();
  d.a = mm::cuda_view(static_cast<const mm::f16*>(static_cast<void*>(a.data())), kM, kK);
  d.c = mm::cuda_view(static_cast<float*>(static_cast<void*>(c.data())), kM, kN);
  EXPECT_EQ(d.a.memory, MARLIN_MEM_CUDA);
  EXPECT_EQ(d.a.dtype, MARLIN_F16);
  mm::prepare(stream, {d}, kM);
  driver->capturing = true;
  driver->calls.clear();
  mm::gemm(stream, d);
  EXPECT_THAT(driver->calls, Contains("cuLaunchKernelEx"));
  EXPECT_THAT(driver->calls, Not(Contains("cuMemAlloc_v2")));
  driver->capturing = false;
  stream.wait();
}

/// Kernels have float16 scales: those of other types that are float16 numbers, too, become that.
TEST_F(CudaOperands, ScalesBecomeFloat16WhereThatIsExact) {
  std::vector<uint8_t> codes(kN * kK / 2, 0x9C);
  for (const bool exact : {true, false}) {
    std::vector<uint16_t> scales(kN, 0x3F00);  // bfloat16 0.5
    if (!exact) scales[kN - 1] = 0x2F00;       // less than float16 has
    auto pack = mm::make<marlin_pack_desc>();
    pack.format = MARLIN_FORMAT_INT4;
    pack.group_size = kK;
    pack.n = kN;
    pack.k = kK;
    pack.values = mm::matrix_view(codes.data(), kN, kK / 2);
    pack.scales = {scales.data(), 0, kN, 1, 0, MARLIN_BF16, MARLIN_MEM_HOST};
    const mm::weights packed = mm::pack(context, std::vector{pack}, 1);
    desc.weights = packed.get();
    EXPECT_OK(marlin_gemm, nullptr, &desc);
    ASSERT_FALSE(driver->launches.empty());
    EXPECT_EQ(driver->launches.back().parameters.constants[MARLIN_CONSTANT_SCALE_TYPE], exact ? kScaleF16 : kScaleBf16);
  }
}

TEST_F(CudaOperands, ScratchIsMeasuredToo) {
  auto d = mm::make<marlin_stream_desc>();
  d.scratch = {c.data(), 0, 1, sizeof c + 1, 0, MARLIN_U8, MARLIN_MEM_CUDA};
  mm::stream stream;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "desc->scratch needs 1025 bytes", marlin_stream_create, context.get(), &d, stream.out());
  d.scratch.cols = sizeof c;
  EXPECT_OK(marlin_stream_create, context.get(), &d, stream.out());
}

}  // namespace
