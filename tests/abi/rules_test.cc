// The rules at the head of metal_marlin.h, one by one, over the shared library and the CPU. What needs a backend that
// misbehaves is in boundary_test.cc, every length of a struct in descriptor_test.cc, every argument of every function in
// exports_test.cc.
#include <sched.h>

#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

class Rules : public testing::Test {
 protected:
  const mm::context context{kBackend};
  const mm::weights weights = quantized(context, 10, 64);
  Product product{weights, 3};
  const marlin_gemm_desc* desc() const { return &product.desc; }
};

TEST_F(Rules, ErrorsFillErrOnlyOnFailureAndNullIsFine) {
  auto err = mm::make<marlin_error>();
  err.native_code = 5;
  EXPECT_EQ(marlin_gemm(nullptr, desc(), &err), MARLIN_OK);
  EXPECT_EQ(err.native_code, 5);
  EXPECT_TRUE(product.right());
  EXPECT_EQ(marlin_gemm(nullptr, nullptr, nullptr), MARLIN_E_ARGUMENT);
  marlin_buffer* buffer = reinterpret_cast<marlin_buffer*>(&err);
  EXPECT_EQ(marlin_buffer_create(context.get(), 0, &buffer, nullptr), MARLIN_E_ARGUMENT);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(marlin_buffer_create(context.get(), 64, nullptr, nullptr), MARLIN_E_ARGUMENT);
}

TEST_F(Rules, StructsReservedFieldsAndUnknownFlagsAreUnsupported) {
  const std::vector<float> values = numbers(64, 3);
  for (uint32_t bit = 0; bit < 32; ++bit) {
    marlin_gemm_desc g = *desc();
    g.flags = 1u << bit;
    const bool known = g.flags == MARLIN_GEMM_ACCUMULATE || g.flags == MARLIN_GEMM_ROW_INVARIANT;
    EXPECT_EQ(marlin_gemm(nullptr, &g, nullptr), known ? MARLIN_OK : MARLIN_E_UNSUPPORTED) << bit;

    marlin_pack_desc p = pack_desc(values, 2, 32);
    const marlin_pack_desc* const parts[] = {&p};
    mm::weights w;
    p.flags = 1u << bit;
    if (p.flags > MARLIN_PACK_TWO_LEVEL_SCALES)
      EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "parts[0]: ", marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());

    auto open = mm::make<marlin_open_desc>();
    mm::checkpoint file;
    open.flags = 1u << bit;
    if (open.flags > MARLIN_OPEN_INPUTS_FIRST)
      EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "flags", marlin_checkpoint_open, "x", &open, file.out());
    open.flags = MARLIN_OPEN_OUTPUTS_FIRST | MARLIN_OPEN_INPUTS_FIRST;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "one order of stacks", marlin_checkpoint_open, "x", &open, file.out());
  }
}

TEST_F(Rules, UnknownEnumValuesAreArguments) {
  for (const int32_t bad : {-1, 99, INT32_MIN, INT32_MAX}) {
    auto c = mm::make<marlin_context_desc>();
    c.backend = bad;
    mm::context none;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "backend", marlin_context_create, &c, none.out());
    auto s = mm::make<marlin_stream_desc>();
    s.kind = bad;
    mm::stream stream;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "kind", marlin_stream_create, context.get(), &s, stream.out());
    auto o = mm::make<marlin_open_desc>();
    o.layout = bad;
    mm::checkpoint file;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "layout", marlin_checkpoint_open, "x", &o, file.out());
    o.layout = MARLIN_LAYOUT_AUTO;
    o.gptq_zero_f = bad;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "gptq_zero_f", marlin_checkpoint_open, "x", &o, file.out());

    const auto change = [&](auto set, const char* mentioned) {
      marlin_gemm_desc g = *desc();
      set(g);
      EXPECT_FAILS(MARLIN_E_ARGUMENT, mentioned, marlin_gemm, nullptr, &g);
    };
    change([&](auto& g) { g.compute = bad; }, "compute");
    change([&](auto& g) { g.epilogue = bad; }, "epilogue");
    change([&](auto& g) { g.a.dtype = bad; }, "a.dtype");
    change([&](auto& g) { g.c.dtype = bad; }, "c.dtype");
    change([&](auto& g) { g.a.memory = bad; }, "a.memory");
    change([&](auto& g) { g.c.memory = bad; }, "c.memory");

    const std::vector<float> values = numbers(64, 3);
    const auto change_part = [&](auto set, const char* mentioned) {
      marlin_pack_desc p = pack_desc(values, 2, 32);
      set(p);
      const marlin_pack_desc* const parts[] = {&p};
      mm::weights w;
      EXPECT_FAILS(MARLIN_E_ARGUMENT, mentioned, marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
    };
    change_part([&](auto& p) { p.format = bad; }, "format");
    change_part([&](auto& p) { p.layout = bad; }, "layout");
    change_part([&](auto& p) { p.gptq_zero_f = bad; }, "gptq_zero_f");
    change_part([&](auto& p) { p.values.dtype = bad; }, "values.dtype");
    change_part([&](auto& p) { p.values.memory = bad; }, "values.memory");
  }
}

TEST_F(Rules, MatricesHaveStridesOffsetsAndAlignment) {
  // a and c inside larger matrices, with every element between their rows left alone.
  std::vector<float> a(3 * 70 + 2), c(3 * 13 + 1, 77.0f);
  for (int64_t i = 0; i < 3; ++i) std::copy_n(product.a.begin() + i * 64, 64, a.begin() + 2 + i * 70);
  EXPECT_OK(marlin_gemm, nullptr, desc());
  marlin_gemm_desc g = *desc();
  g.a = mm::matrix_view(a.data(), 3, 64, 70);
  g.a.offset_bytes = 8;
  g.c = mm::matrix_view(c.data() + 1, 3, 10, 13);
  EXPECT_OK(marlin_gemm, nullptr, &g);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 10; ++j) EXPECT_EQ(c[1 + i * 13 + j], product.c[i * 10 + j]);
    for (int64_t j = 10; j < 13 && i < 2; ++j) EXPECT_EQ(c[1 + i * 13 + j], 77.0f);
  }
  g.a.row_stride = -1;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "a.row_stride is -1", marlin_gemm, nullptr, &g);
  g.a.row_stride = INT64_MIN;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "a.row_stride", marlin_gemm, nullptr, &g);
  g.a.row_stride = 63;
  EXPECT_FAILS(MARLIN_E_SHAPE, "a.row_stride is 63", marlin_gemm, nullptr, &g);
  g.a.row_stride = 70;
  for (const uint64_t odd : {1, 2, 3, 5}) {
    g.a.offset_bytes = odd;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "multiple", marlin_gemm, nullptr, &g);
  }
  g.a.offset_bytes = UINT64_MAX - 7;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "wrap", marlin_gemm, nullptr, &g);
}

TEST_F(Rules, MatricesMustFitEachOther) {
  const auto change = [&](auto set, marlin_status status, const char* mentioned) {
    marlin_gemm_desc g = *desc();
    set(g);
    EXPECT_FAILS(status, mentioned, marlin_gemm, nullptr, &g);
    EXPECT_TRUE(product.untouched());
  };
  change([](auto& g) { g.a.cols = 63; }, MARLIN_E_SHAPE, "a.cols is 63");
  change([](auto& g) { g.c.cols = 9; }, MARLIN_E_SHAPE, "c.cols is 9");
  change([](auto& g) { g.c.rows = 2; }, MARLIN_E_SHAPE, "c.rows is 2");
  change([](auto& g) { g.a.rows = -1; }, MARLIN_E_SHAPE, "a is [-1, 64]");
  change([](auto& g) { g.a.cols = INT64_MIN; }, MARLIN_E_SHAPE, "a is [3, ");
  change([](auto& g) { g.a.data = nullptr; }, MARLIN_E_ARGUMENT, "a.data is NULL");
  change([](auto& g) { g.c.data = nullptr; }, MARLIN_E_ARGUMENT, "c.data is NULL");
  change([](auto& g) { g.a.dtype = MARLIN_I8; }, MARLIN_E_ARGUMENT, "a.dtype");
  change([](auto& g) { g.weights = nullptr; }, MARLIN_E_ARGUMENT, "weights is NULL");
  change([](auto& g) { g.bias = mm::matrix_view(static_cast<float*>(g.a.data), 2, 10); }, MARLIN_E_SHAPE, "bias.rows is 2");
  change([](auto& g) { g.bias = mm::matrix_view(static_cast<float*>(g.a.data), 1, 11); }, MARLIN_E_SHAPE, "bias.cols is 11");
  change([](auto& g) { g.expert_scales = g.a; }, MARLIN_E_ARGUMENT, "expert_scales are given without expert_ids");
  change([](auto& g) { g.epilogue = MARLIN_EPILOGUE_SWIGLU; }, MARLIN_E_SHAPE, "c.cols is 10");
  change([](auto& g) { g.compute = MARLIN_COMPUTE_FP8; }, MARLIN_E_UNSUPPORTED, "");
}

TEST_F(Rules, SizesWhoseProductsWrapAreTypedErrorsBeforeAnyWork) {
  for (const int64_t big : {int64_t{1} << 31, int64_t{1} << 32, int64_t{1} << 61, kHuge / 4, kHuge}) {
    marlin_gemm_desc g = *desc();
    g.a.row_stride = big;
    g.c.row_stride = big;
    if (big >= int64_t{1} << 61) EXPECT_FAILS(MARLIN_E_SHAPE, "address space", marlin_gemm, nullptr, &g);
    g = *desc();
    g.a.rows = g.c.rows = big;
    if (big >= int64_t{1} << 61) EXPECT_FAILS(MARLIN_E_SHAPE, "address space", marlin_gemm, nullptr, &g);
    g = *desc();
    g.a.cols = big;
    EXPECT_NE(marlin_gemm(nullptr, &g, nullptr), MARLIN_OK);

    const std::vector<float> values = numbers(64, 3);
    for (const auto& [n, k] : {std::pair(big, int64_t{32}), std::pair(int64_t{2}, big), std::pair(big, big)}) {
      marlin_pack_desc p = pack_desc(values, 2, 32);
      p.n = n;
      p.k = k;
      const marlin_pack_desc* const parts[] = {&p};
      mm::weights w;
      EXPECT_FAILS(MARLIN_E_SHAPE, "", marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
      if (n < int64_t{1} << 61 && k < int64_t{1} << 61) continue;
      p.values.rows = n;
      p.values.cols = k;
      EXPECT_FAILS(MARLIN_E_SHAPE, "", marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
    }
  }
}

TEST_F(Rules, SizesNoRowsIsNoWorkAndNoColumnsAreAShape) {
  marlin_gemm_desc g = *desc();
  g.a.rows = g.c.rows = 0;
  EXPECT_OK(marlin_gemm, nullptr, &g);
  g.a.data = g.c.data = nullptr;
  EXPECT_OK(marlin_gemm, nullptr, &g);
  const marlin_gemm_desc* const descs[] = {&g, desc()};
  EXPECT_OK(marlin_gemm_many, nullptr, descs, 2u);
  EXPECT_TRUE(product.right());
  g.a.cols = 63;  // no rows do not excuse a wrong shape
  EXPECT_FAILS(MARLIN_E_SHAPE, "a.cols", marlin_gemm, nullptr, &g);

  const std::vector<float> values = numbers(64, 3);
  for (const auto& [n, k] : {std::pair(0, 32), std::pair(2, 0), std::pair(-1, 32), std::pair(2, -32)}) {
    marlin_pack_desc p = pack_desc(values, n, k);
    const marlin_pack_desc* const parts[] = {&p};
    mm::weights w;
    EXPECT_FAILS(MARLIN_E_SHAPE, "parts[0]: ", marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
  }
}

TEST_F(Rules, SizesOutputsMayNotOverlap) {
  marlin_gemm_desc g = *desc();
  g.c.data = g.a.data;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c overlaps a", marlin_gemm, nullptr, &g);
  g.c.data = product.a.data() + product.a.size() - 1;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c overlaps a", marlin_gemm, nullptr, &g);
  g = *desc();
  g.bias = mm::matrix_view(product.c.data() + 29, 1, 10);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c overlaps bias", marlin_gemm, nullptr, &g);

  // Two products, side by side in one matrix: fine. One element shared: not.
  std::vector<float> both(3 * 20);
  marlin_gemm_desc left = *desc(), right = *desc();
  left.c = mm::matrix_view(both.data(), 3, 10, 20);
  right.c = mm::matrix_view(both.data() + 10, 3, 10, 20);
  const marlin_gemm_desc* const descs[] = {&left, &right};
  EXPECT_OK(marlin_gemm_many, nullptr, descs, 2u);
  right.c = mm::matrix_view(both.data() + 9, 3, 10, 20);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "overlaps", marlin_gemm_many, nullptr, descs, 2u);
  right.c = left.a;
  right.c.cols = right.c.row_stride = 10;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "overlaps", marlin_gemm_many, nullptr, descs, 2u);
}

TEST_F(Rules, BuffersAreZeroAlignedAndBounded) {
  for (const uint64_t bytes : {1, 63, 64, 65, 100000}) {
    const mm::buffer buffer(context, bytes);
    const auto* p = static_cast<const unsigned char*>(buffer.data());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    for (uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0);
  }
  mm::buffer none;
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - 62, uint64_t{1} << 63, uint64_t{1} << 62})
    EXPECT_FAILS(MARLIN_E_MEMORY, "bytes", marlin_buffer_create, context.get(), bytes, none.out());
  EXPECT_EQ(marlin_buffer_host(nullptr), nullptr);
  EXPECT_EQ(marlin_buffer_host(reinterpret_cast<marlin_buffer*>(weights.get())), nullptr);

  const mm::buffer memory(context, (3 * 64 + 3 * 10) * 4);
  std::memcpy(memory.data(), product.a.data(), 3 * 64 * 4);
  marlin_gemm_desc g = *desc();
  g.a = memory.matrix<float>(3, 64);
  g.c = memory.matrix<float>(3, 10, 3 * 64 * 4);
  EXPECT_OK(marlin_gemm, nullptr, &g);
  EXPECT_OK(marlin_gemm, nullptr, desc());
  EXPECT_TRUE(std::equal(product.c.begin(), product.c.end(), static_cast<float*>(memory.data()) + 3 * 64));
  g.c.offset_bytes += 4;  // one element too far
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "the buffer holds", marlin_gemm, nullptr, &g);
  g.c.offset_bytes = UINT64_MAX - 3;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "the buffer holds", marlin_gemm, nullptr, &g);
  g.c = memory.matrix<float>(3, 10, 3 * 64 * 4);
  g.c.row_stride = 11;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "the buffer holds", marlin_gemm, nullptr, &g);
  g.c = memory.matrix<float>(3, 10);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c overlaps a", marlin_gemm, nullptr, &g);
  g.c.data = weights.get();
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "c is a marlin_weights, expected a marlin_buffer", marlin_gemm, nullptr, &g);
}

TEST_F(Rules, LifetimeHandlesAreDestroyedInAnyOrder) {
  for (int order = 0; order < 24; ++order) {
    mm::context c(kBackend);
    mm::weights w = quantized(c, 4, 32);
    mm::stream s(c);
    mm::buffer b(c, 64);
    int left = order, alive[4] = {0, 1, 2, 3};
    for (int n = 4; n > 0; --n) {
      const int pick = left % n;
      left /= n;
      switch (alive[pick]) {
        case 0:
          c.reset();
          break;
        case 1:
          w.reset();
          break;
        case 2:
          s.reset();
          break;
        default:
          b.reset();
          break;
      }
      std::swap(alive[pick], alive[n - 1]);
      if (!w) continue;
      Product p(w, 2);
      EXPECT_OK(marlin_gemm, for_host_memory(s), &p.desc);
      EXPECT_TRUE(p.right());
    }
  }
}

TEST_F(Rules, LifetimeOtherKindsAreNotDestroyed) {
  mm::stream stream(context);
  mm::buffer buffer(context, 64);
  marlin_context_destroy(reinterpret_cast<marlin_context*>(stream.get()));
  marlin_stream_destroy(reinterpret_cast<marlin_stream*>(buffer.get()));
  marlin_buffer_destroy(reinterpret_cast<marlin_buffer*>(weights.get()));
  marlin_weights_destroy(reinterpret_cast<marlin_weights*>(context.get()));
  marlin_checkpoint_destroy(reinterpret_cast<marlin_checkpoint*>(stream.get()));
  marlin_context_destroy(nullptr);
  marlin_stream_destroy(nullptr);
  marlin_buffer_destroy(nullptr);
  marlin_weights_destroy(nullptr);
  marlin_checkpoint_destroy(nullptr);
  EXPECT_OK(marlin_gemm, for_host_memory(stream), desc());
  EXPECT_NE(marlin_buffer_host(buffer.get()), nullptr);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is a marlin_buffer, expected a marlin_stream", marlin_gemm,
               reinterpret_cast<marlin_stream*>(buffer.get()), desc());
  double zeros[16] = {};
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "something else", marlin_gemm, reinterpret_cast<marlin_stream*>(zeros), desc());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "something else", marlin_gemm,
               reinterpret_cast<marlin_stream*>(reinterpret_cast<char*>(zeros) + 1), desc());
}

TEST_F(Rules, CpuWorkIsDoneOnReturnWithAndWithoutAStream) {
  if (!kOnCpu) GTEST_SKIP() << "work on a GPU's stream goes on after the call";
  mm::stream stream(context);
  EXPECT_OK(marlin_gemm, stream.get(), desc());
  EXPECT_TRUE(product.right());
  EXPECT_OK(marlin_stream_flush, stream.get());
  EXPECT_OK(marlin_stream_wait, stream.get(), uint64_t{0});
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is NULL", marlin_stream_wait, nullptr, uint64_t{0});
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "stream is NULL", marlin_stream_flush, nullptr);
}

TEST_F(Rules, ContextDescriptors) {
  mm::context none;
  auto d = mm::make<marlin_context_desc>();
  d.alloc = [](void*, size_t, size_t) -> void* { return nullptr; };
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "release is NULL", marlin_context_create, &d, none.out());
  d.alloc = nullptr;
  d.release = [](void*, void*, size_t) {};
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "alloc is NULL", marlin_context_create, &d, none.out());
  d.release = nullptr;
  d.device_index = -1;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "device_index is -1", marlin_context_create, &d, none.out());
  d.device_index = 1;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "device_index", marlin_context_create, &d, none.out());
  d.backend = MARLIN_BACKEND_CPU;
  EXPECT_FAILS(MARLIN_E_NO_DEVICE, "device_index", marlin_context_create, &d, none.out());
  d.device_index = 0;
  d.native_device = &d;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "native_device", marlin_context_create, &d, none.out());
  d.backend = MARLIN_BACKEND_AUTO;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "native_device", marlin_context_create, &d, none.out());
  EXPECT_OK(marlin_context_create, nullptr, none.out());
}

TEST_F(Rules, OnlyTheCpuHasThreadsAndSaysHowMany) {
  auto info = mm::make<marlin_device_info>();
  for (uint32_t index = 0; marlin_device_get(index, &info, nullptr) == MARLIN_OK; ++index) {
    EXPECT_EQ(info.reserved, 0u);
    if (info.backend != MARLIN_BACKEND_CPU) {
      EXPECT_EQ(info.threads, 0u) << info.name;
      continue;
    }
    const mm::context of_default(MARLIN_BACKEND_CPU);
    const mm::weights w = quantized(of_default, 10, 64);
    const Product p(w, 3);
    const std::string line = "\nthreads: " + std::to_string(info.threads) + "\n";
    EXPECT_TRUE(contains(mm::explain(p.desc), line.c_str())) << line;
  }
}

#ifdef __linux__
TEST_F(Rules, TheThreadsOfTheCpuFollowTheAffinityMask) {
  const auto threads = [] {
    uint32_t most = 0;
    for (const marlin_device_info& device : mm::devices()) most = std::max(most, device.threads);
    return most;
  };
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (size_t cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(threads(), 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(threads(), 1u);
}
#endif

TEST_F(Rules, DevicesAreListedUntilNotFoundAndTellWhyNot) {
  auto info = mm::make<marlin_device_info>();
  uint32_t index = 0, usable = 0;
  marlin_status status;
  for (; (status = marlin_device_get(index, &info, nullptr)) == MARLIN_OK; ++index) {
    EXPECT_NE(info.name[0], '\0');
    auto d = mm::make<marlin_context_desc>();
    d.backend = info.backend;
    d.device_index = info.index;
    mm::context c;
    const Outcome outcome = call(marlin_context_create, &d, c.out());
    EXPECT_EQ(outcome.status, info.why_not[0] == '\0' ? MARLIN_OK : MARLIN_E_NO_DEVICE) << outcome.message;
    if (info.why_not[0] != '\0') {
      EXPECT_TRUE(contains(outcome.message, info.why_not)) << outcome.message;
      continue;
    }
    ++usable;
    EXPECT_NE(info.memory_bytes, 0u);
    EXPECT_NE(info.isa_or_arch[0], '\0');
  }
  EXPECT_EQ(status, MARLIN_E_NOT_FOUND);
  EXPECT_GE(usable, 1u);
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "index is 4294967295, expected less than ", marlin_device_get, UINT32_MAX, &info);
}

TEST_F(Rules, AboutStatusesVersionAndTable) {
  EXPECT_STREQ(marlin_status_name(MARLIN_E_SHAPE), "MARLIN_E_SHAPE");
  for (int32_t status = -200; status < 200; ++status) ASSERT_NE(marlin_status_name(status), nullptr);
  EXPECT_NE(marlin_status_name(INT32_MIN), nullptr);
  ASSERT_NE(marlin_get_api(MARLIN_ABI_MAJOR), nullptr);
  EXPECT_EQ(marlin_get_api(MARLIN_ABI_MAJOR)->library_version, marlin_version());
  EXPECT_EQ(marlin_get_api(MARLIN_ABI_MAJOR + 1), nullptr);
  EXPECT_EQ(marlin_get_api(UINT32_MAX), nullptr);
}

TEST(Errors, AreAlwaysPrintable) {
  const mm::checkpoint file(MARLIN_TEST_DATA "/float-f32");
  auto error = mm::make<marlin_error>();
  marlin_matrix out{};
  EXPECT_EQ(marlin_checkpoint_tensor(file.get(), "a\x1b[2J\n\xff\xc2\x9b\xe2\x80\xae", &out, &error), MARLIN_E_NOT_FOUND);
  EXPECT_NE(std::string(error.message).find("'a\\x1b[2J\\x0a\\xff\\u009b\\u202e'"), std::string::npos) << error.message;
  const std::string all_escaped(1000, '\n');
  marlin_checkpoint* opened = nullptr;
  EXPECT_EQ(marlin_checkpoint_open(all_escaped.c_str(), nullptr, &opened, &error), MARLIN_E_FILE);
  const std::string message = error.message;
  EXPECT_LT(message.size(), sizeof error.message);
  EXPECT_EQ(message.substr(0, 8), "\\x0a\\x0a");
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace abi_test
