// Memory that runs out in the GPU backend: of a sequence of calls the n-th allocation fails, n = 1, 2, ... until all get
// through. Each failure must be MARLIN_E_MEMORY, leave the context usable and lose nothing. (tests/abi/memory_test.cc is that
// of the CPU.)
#pragma once

#include "abi/failing_new.h"
#include "test.h"
#include "world.h"

namespace gpu_memory_tests {

using namespace device_test;

inline constexpr int64_t kN = 70, kK = 64, kTokens = 5;

/// Operands in memory of the host, made before anything fails.
struct Operands {
  std::vector<float> values = abi_test::numbers(3 * kN * kK, 1), a = abi_test::numbers(kTokens * kK, 2);
  std::vector<float> c = std::vector<float>(2 * kTokens * kN), scales = std::vector<float>(2 * kTokens, 0.5f);
  std::vector<int32_t> ids = {0, 1, 2, 2, 1, 1, 0, -1, 2, 0};
  std::vector<marlin_pack_desc> parts;
  std::vector<const marlin_pack_desc*> pointers;
  Operands() {
    for (int64_t e = 0; e < 3; ++e) {
      parts.push_back(abi_test::pack_desc(values, kN, kK));
      parts.back().values = mm::matrix_view(values.data() + e * kN * kK, kN, kK);
    }
    for (const auto& part : parts) pointers.push_back(&part);
  }
};

/// The calls, until one fails: with operands of the host, and on a stream of their own with operands in a buffer. Their n-th
/// allocation fails.
inline marlin_status run_all(const mm::context& context, Operands& o, int64_t n) {
  mm::weights one, experts;
  mm::stream stream;
  mm::buffer buffer;
  auto d = mm::make<marlin_gemm_desc>(), mixture = d, inside = d;
  d.a = mm::matrix_view(o.a.data(), kTokens, kK);
  d.c = mm::matrix_view(o.c.data(), kTokens, kN);
  mixture = d;
  mixture.expert_ids = mm::matrix_view(o.ids.data(), kTokens, 2);
  mixture.expert_scales = mm::matrix_view(o.scales.data(), kTokens, 2);
  const marlin_gemm_desc* const both[] = {&d, &mixture};
  const marlin_matrix out = mm::matrix_view(o.c.data(), 2, kK);
  const auto on_buffer = [&] {
    inside = d;
    inside.a = {buffer.get(), 0, kTokens, kK, 0, MARLIN_F16, MARLIN_MEM_BUFFER};
    inside.c = {buffer.get(), 1024, kTokens, kN, 0, MARLIN_F32, MARLIN_MEM_BUFFER};
    return marlin_gemm(stream.get(), &inside, nullptr);
  };
  const std::pair<const char*, std::function<marlin_status()>> calls[] = {
      {"pack", [&] { return marlin_weights_pack(context.get(), o.pointers.data(), 1, 1, one.out(), nullptr); }},
      {"pack experts", [&] { return marlin_weights_pack(context.get(), o.pointers.data(), 3, 3, experts.out(), nullptr); }},
      {"many",
       [&] {
         d.weights = one.get(), mixture.weights = experts.get();
         mixture.c = mm::matrix_view(o.c.data() + kTokens * kN, kTokens, kN);
         return marlin_gemm_many(nullptr, both, 2, nullptr);
       }},
      {"prepare", [&] { return marlin_prepare(nullptr, both, 2, 40, nullptr, nullptr); }},
      {"unpack", [&] { return marlin_weights_unpack(nullptr, one.get(), nullptr, 0, &out, nullptr); }},
      {"stream", [&] { return marlin_stream_create(context.get(), nullptr, stream.out(), nullptr); }},
      {"buffer", [&] { return marlin_buffer_create(context.get(), 4096, buffer.out(), nullptr); }},
      {"gemm on the stream", on_buffer},
      {"wait", [&] { return marlin_stream_wait(stream.get(), UINT64_MAX, nullptr); }},
  };
  marlin_status status = MARLIN_OK;
  failing_new::until_failure = n;
  for (size_t i = 0; status == MARLIN_OK && i < std::size(calls); ++i) {
    status = calls[i].second();
    if (status == MARLIN_OK) continue;
    failing_new::until_failure = -1;
    EXPECT_STREQ(marlin_status_name(status), "MARLIN_E_MEMORY") << calls[i].first;
  }
  failing_new::until_failure = -1;
  return status;
}

/// Calls `attempt`, whose n-th allocation fails, for n = 1, 1 + step, ... until it gets through. If `counts`, each must give
/// back what it took.
template <typename Attempt>
void fail_allocations(const Attempt& attempt, int64_t step = 1, bool counts = true) {
  ASSERT_EQ(attempt(-1), MARLIN_OK);
  marlin_status status = MARLIN_E_MEMORY;
  int64_t n = 1, failed = 0;
  for (; status != MARLIN_OK; n += step, ++failed) {
    ASSERT_LT(n, 20000) << "never got through";
    const int64_t before = failing_new::live;
    status = attempt(n);
    if (counts) ASSERT_EQ(failing_new::live, before) << "allocation " << n;
    ASSERT_FALSE(testing::Test::HasFailure()) << "allocation " << n;
  }
  EXPECT_GT(n, 50);
  testing::Test::RecordProperty("allocations", static_cast<int>(failed - 1));
}

}  // namespace gpu_memory_tests
