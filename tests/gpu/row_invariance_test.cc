// MARLIN_GEMM_ROW_INVARIANT on the real Metal shaders: one family of kernels and one split of K for every M.
#include "backends/gpu/choice.h"
#include "campaigns.h"
#include "gpu.h"
#include "kernels/formats_under_test.h"
#include "kernels/mixture.h"
#include "kernels/slice.h"
#include "test.h"

namespace {

using namespace device_test;
using trial::Case;
using trial::slice;
using trial::Trial;

class MetalRows : public testing::TestWithParam<int> {
 protected:
  static Case spec(marlin_compute compute, int64_t m, int64_t n, int64_t k) {
    Case c = trial::case_of(trial::kKinds[GetParam()], compute, m, n, k);
    constexpr marlin_dtype kTypes[] = {MARLIN_F16, MARLIN_BF16, MARLIN_F32};
    c.a_type = kTypes[GetParam() % 3];
    c.row_invariant = true;
    return c;
  }
  /// The short form gives every second kind INT8 activations, and the others theirs as they are. Each kernel has kinds of both.
  static bool is_run(marlin_compute compute) {
    return whole_campaigns() || (GetParam() % 2 != 0) == (compute == MARLIN_COMPUTE_INT8);
  }
  static void multiply(const Trial& t, int64_t first, int64_t count) {
    marlin_gemm_desc d = t.gemm_desc();
    d.a = slice(d.a, first, count);
    d.c = slice(d.c, first, count);
    marlin_error err{};
    err.struct_size = sizeof err;
    ASSERT_EQ(marlin_gemm(nullptr, &d, &err), MARLIN_OK) << err.message << " " << t.spec.describe();
  }
};

/// Many M against M = 1. Some kinds have threadgroups of less simdgroups, as large N have them.
TEST_P(MetalRows, GiveTheBitsOfOneRowForEveryM) {
  const auto device = std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}});
  const Gpu gpu(device, {.probe = false, .most_rows = mm::gpu::kMostRows});
  int products = 0;
  std::set<std::string> kernels;
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    if (!is_run(compute)) continue;
    const int64_t most = whole_campaigns() ? 70 : 34;
    const bool large = GetParam() % 5 == 0;
    Case c = spec(compute, most, large ? 2082 : 34, large ? 130 : 300);
    c.epilogue = compute == MARLIN_COMPUTE_INT8 ? MARLIN_EPILOGUE_SWIGLU : MARLIN_EPILOGUE_NONE;
    Trial t(c);
    ASSERT_TRUE(t.pack());
    if (!t.explain().starts_with("kernel: ")) continue;  // the GPU has no kernels for these weights
    EXPECT_THAT(t.explained("row_invariant"), testing::StartsWith("the same bits for any M, by gemv_"));
    EXPECT_THAT(t.explained("instead_of"), testing::StartsWith("regdecode_"));
    EXPECT_THAT(t.explained("grid"), testing::EndsWith(large ? "threadgroups of 128" : "threadgroups of 256"));
    for (int64_t r = 0; r < most; ++r) multiply(t, r, 1);
    const std::vector<uint8_t> alone = t.c.raw();
    for (int64_t m = 2; m <= most; ++m) {
      if (!whole_campaigns() && m > 3 && m % 8 > 1 && m != most) continue;
      device->set_seed(static_cast<uint64_t>(m));
      t.spec.m = m;
      ASSERT_TRUE(t.run());
      kernels.insert(t.explained("kernel"));
      const std::vector<uint8_t> together = t.c.raw();
      const auto bytes = static_cast<std::ptrdiff_t>(m * t.spec.columns() * oracle::bytes_of(t.spec.c_type));
      ASSERT_TRUE(std::equal(together.begin(), together.begin() + bytes, alone.begin())) << t.spec.describe();
      ++products;
    }
  }
  if (products == 0) GTEST_SKIP() << "the GPU has no kernels for these weights";
  std::printf("%s: %d products of %zu kernels\n", trial::kKinds[GetParam()].name, products, kernels.size());
}

TEST_P(MetalRows, DoNotSeeTheRowsBesideThem) {
  const Gpu gpu(std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}}), {.probe = false});
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
    for (const int64_t place : {0, 5, 18}) {
      if (!is_run(compute)) continue;
      Trial t(spec(compute, 19, 34, 150));
      for (int64_t r = 0; r < t.spec.m; ++r)
        for (int64_t k = 0; r != place && k < t.spec.k; ++k) t.a.set(r, k, r % 2 == 0 ? NAN : INFINITY);
      ASSERT_TRUE(t.pack());
      if (!t.explain().starts_with("kernel: ")) continue;
      multiply(t, place, 1);
      const std::vector<uint8_t> alone = t.c.raw();
      ASSERT_TRUE(t.run());
      const std::vector<uint8_t> together = t.c.raw();
      const auto bytes = static_cast<std::ptrdiff_t>(t.spec.n * oracle::bytes_of(t.spec.c_type));
      EXPECT_TRUE(
          std::equal(alone.begin() + place * bytes, alone.begin() + (place + 1) * bytes, together.begin() + place * bytes))
          << t.spec.describe();
    }
}

/// A mixture's tokens together and one by one.
TEST_P(MetalRows, DoNotSeeTheRoutingOfOtherTokens) {
  const Gpu gpu(std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}}), {.probe = false});
  for (const trial::Mix& mix :
       {trial::Mix{12, 3, 2, trial::Pick::random, false, MARLIN_F32}, trial::Mix{11, 4, 3, trial::Pick::outside, true, 0}}) {
    Case c = spec(mix.experts == 3 ? MARLIN_COMPUTE_DEFAULT : MARLIN_COMPUTE_INT8, 1, 34, 150);
    if (!is_run(c.compute)) continue;
    trial::Mixture m(c, mix);
    if (m.pack(1) != MARLIN_OK || !m.run()) continue;
    const std::vector<uint8_t> together = m.result();
    const marlin_gemm_desc d = m.desc();
    const int64_t a_rows = d.a.rows / mix.tokens, c_rows = d.c.rows / mix.tokens;
    for (int64_t token = 0; token < mix.tokens; ++token) {
      marlin_gemm_desc one = d;
      one.a = slice(d.a, token * a_rows, a_rows);
      one.c = slice(d.c, token * c_rows, c_rows);
      one.expert_ids = slice(d.expert_ids, token, 1);
      if (d.expert_scales.data != nullptr) one.expert_scales = slice(d.expert_scales, token, 1);
      ASSERT_EQ(marlin_gemm(nullptr, &one, nullptr), MARLIN_OK);
    }
    EXPECT_EQ(m.result(), together) << c.describe();
  }
}

/// The short form takes two kinds for each kernel.
std::vector<int> kinds_to_run() {
  std::vector<int> numbers;
  for (int i = 0; i < trial::kKindCount; ++i)
    if (whole_campaigns() || trial::stands_for_its_kernel(trial::kKinds[i])) numbers.push_back(i);
  return numbers;
}

INSTANTIATE_TEST_SUITE_P(Format, MetalRows, testing::ValuesIn(kinds_to_run()),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

/// A kernel of another order is refused where METAL_MARLIN_KERNEL asks for it, and not taken silently.
TEST(MetalRowsForced, RefuseAnotherOrder) {
  const Gpu gpu(std::make_shared<TestbedDevice>(TestbedOptions{.check = false, .changes = {}}), {.probe = false},
                {.kernel = "regdecode_u4_f16_m16_n32_direct"});
  Case c = trial::case_of(trial::kKinds[0], MARLIN_COMPUTE_DEFAULT, 9, 34, 150);
  c.a_type = MARLIN_F16;
  Trial free(c);
  ASSERT_TRUE(free.pack());
  EXPECT_TRUE(free.run());
  c.row_invariant = true;
  Trial t(c);
  ASSERT_TRUE(t.pack());
  const marlin_gemm_desc d = t.gemm_desc();
  marlin_error err{};
  err.struct_size = sizeof err;
  EXPECT_EQ(marlin_gemm(nullptr, &d, &err), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(err.message, testing::HasSubstr("serves no product with MARLIN_GEMM_ROW_INVARIANT"));
}

}  // namespace
