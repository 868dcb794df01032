// The whole C ABI on the real Metal shaders, run on the CPU with every access checked: products against the float64 oracle, the
// probe of kernels, and what it does about one that miscomputes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "abi/support.h"
#include "api/context.h"
#include "backends/gpu/gpu_backend.h"
#include "kernels/formats_under_test.h"
#include "kernels/product_factors.h"
#include "kernels/trial.h"
#include "testbed_device.h"

namespace {

using namespace device_test;
namespace mm = metal_marlin;

struct Log {
  std::vector<std::string> lines;
  static void write(void* user, int32_t, const char* message) { static_cast<Log*>(user)->lines.emplace_back(message); }
};

/// A context that passes for Metal, on which the trials run while it lives.
class Gpu {
 public:
  explicit Gpu(TestbedOptions options = {}, bool probe = true, std::string kernel = {})
      : device_(std::make_shared<TestbedDevice>(std::move(options))) {
    mm::BackendOptions backend;
    backend.threads = 1;
    backend.logger = {Log::write, &log};
    auto made = mm::gpu::make_gpu_backend(device_, backend, {std::move(kernel), probe});
    context = mm::context(new marlin_context(MARLIN_BACKEND_METAL, made.take(), backend.logger));
    trial::use_context(context.get());
  }
  ~Gpu() { trial::use_context(nullptr); }
  Gpu(const Gpu&) = delete;

  TestbedDevice& device() { return *device_; }
  Log log;
  mm::context context;

 private:
  std::shared_ptr<TestbedDevice> device_;
};

/// Every pair of choices, in two random orders of commands, threadgroups and lanes. METAL_MARLIN_PAIRS limits how many.
TEST(Pairs, StayWithinTheirBounds) {
  const char* most = std::getenv("METAL_MARLIN_PAIRS");
  const auto rows = trial::pairwise(covering::three_way(trial::factor_levels(), trial::allowed, 20240601));
  Gpu gpu({}, false);
  int count = 0;
  double worst = 0;
  for (const auto& row : rows) {
    if (most != nullptr && count >= std::atoi(most)) break;
    ++count;
    const trial::Case c = trial::case_of(row, static_cast<uint32_t>(count));
    for (const uint64_t seed : {2 * count, 2 * count + 1}) {
      gpu.device().set_seed(seed);
      EXPECT_TRUE(trial::holds(c, &worst)) << "order " << seed;
    }
  }
  std::printf("%d of %zu products in two orders each, nearest %.3f of its bound\n", count, rows.size(), worst);
}

/// One product of each kind of codes by each kernel, after the probe has passed it.
class Kinds : public testing::TestWithParam<int> {};
TEST_P(Kinds, PassTheProbe) {
  Gpu gpu;
  const trial::Kind& kind = trial::kKinds[GetParam()];
  EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_DEFAULT, 1, 70, 200)));
  EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_DEFAULT, 40, 70, 200)));
  EXPECT_TRUE(trial::holds(trial::case_of(kind, MARLIN_COMPUTE_INT8, 12, 70, 200)));
  for (const std::string& line : gpu.log.lines) ADD_FAILURE() << line;
}
INSTANTIATE_TEST_SUITE_P(Codes, Kinds, testing::Range(0, trial::kKindCount),
                         [](const auto& info) { return trial::kKinds[info.param].name; });

trial::Case small_product(int64_t m) { return trial::case_of(trial::kKinds[0], MARLIN_COMPUTE_DEFAULT, m, 70, 200); }

/// A kernel that computes wrongly on this device: found before it serves, named in the log and by explain, replaced.
TEST(APlantedMistake, IsFoundByTheProbeAndTheNextKernelServes) {
  Gpu gpu({.changes = {{"gemv.metal", "sum += shared[s][m][lane]", "sum += float(half(shared[s][m][lane]))"}}});
  trial::Trial t(small_product(1));
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_EQ(t.explained("kernel").find("gemm_u4_bf16_m16"), 0u) << t.explain();
  EXPECT_NE(t.explained("unusable_here").find("gemv_u4_bf16_m1"), std::string::npos) << t.explain();
  EXPECT_EQ(t.explained("probe"), "agrees with the CPU on this device");
  ASSERT_FALSE(gpu.log.lines.empty());
  EXPECT_NE(gpu.log.lines[0].find("gemv_u4_bf16_m1 is not used on this device"), std::string::npos) << gpu.log.lines[0];
}

TEST(APlantedMistake, InMatrixKernelsLeavesTheOthers) {
  Gpu gpu({.changes = {{"gemm.metal", "w[t][i].thread_elements()[0] = value.x", "w[t][i].thread_elements()[1] = value.x"}}});
  trial::Trial t(small_product(20));
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  EXPECT_EQ(t.explained("kernel"), "gemv_u4_bf16_m8");
}

TEST(APlantedMistake, OfSyntaxIsTheCompilersMessage) {
  Gpu gpu({.changes = {{"gemv.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);", "threadgroup_barrier(;"}}});
  trial::Trial t(small_product(1));
  ASSERT_TRUE(t.pack());
  const auto ran = t.run();
  EXPECT_FALSE(ran);
  EXPECT_NE(std::string(ran.message()).find("MARLIN_E_DEVICE: gemv.metal:"), std::string::npos) << ran.message();
}

/// Without a stream and on one, the same bits; a second call on the stream sees what the first wrote.
TEST(Streams, GiveTheBitsOfCallsWithoutOne) {
  Gpu gpu({.seed = 7, .changes = {}}, false);
  trial::Case c = trial::case_of(trial::kKinds[0], MARLIN_COMPUTE_INT8, 3, 96, 96);
  c.order = trial::Order::permuted;
  c.group = 32;
  c.c_type = MARLIN_BF16;
  c.epilogue = MARLIN_EPILOGUE_SWIGLU;
  trial::Trial t(c);
  ASSERT_TRUE(t.pack());
  ASSERT_TRUE(t.run());
  EXPECT_TRUE(t.check());
  const auto expected = t.c.raw();

  mm::buffer a(gpu.context, 3 * 96 * 2), out(gpu.context, 3 * 48 * 2);
  std::memcpy(marlin_buffer_host(a.get()), t.a.raw().data(), 3 * 96 * 2);
  const mm::stream stream(gpu.context);
  marlin_gemm_desc d = t.gemm_desc();
  d.a = {a.get(), 0, 3, 96, 0, MARLIN_BF16, MARLIN_MEM_BUFFER};
  d.c = {out.get(), 0, 3, 48, 0, MARLIN_BF16, MARLIN_MEM_BUFFER};
  const marlin_gemm_desc* const descs[] = {&d};
  EXPECT_OK(marlin_gemm_many, stream.get(), descs, 1u);
  EXPECT_OK(marlin_gemm_many, stream.get(), descs, 1u);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  EXPECT_EQ(std::memcmp(marlin_buffer_host(out.get()), expected.data(), expected.size()), 0);
}

/// On a stream nobody reads listed ids before the device does: a row of a bad one is NaN, the others are what they should be.
TEST(Unpack, RowsOfBadIdsAreNaN) {
  Gpu gpu({}, false);
  const mm::weights w = abi_test::quantised(gpu.context, 40, 64);
  const mm::stream stream(gpu.context);
  mm::buffer ids(gpu.context, 4 * 4), out(gpu.context, 4 * 64 * 4);
  const int32_t list[] = {39, 40, -1, 0};
  std::memcpy(marlin_buffer_host(ids.get()), list, sizeof list);
  const marlin_matrix rows = {ids.get(), 0, 4, 1, 0, MARLIN_I32, MARLIN_MEM_BUFFER};
  const marlin_matrix to = {out.get(), 0, 4, 64, 0, MARLIN_F32, MARLIN_MEM_BUFFER};
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "row id 40", marlin_weights_unpack, nullptr, w.get(), &rows, int64_t{0}, &to);
  EXPECT_OK(marlin_weights_unpack, stream.get(), w.get(), &rows, int64_t{0}, &to);
  EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
  std::vector<float> all(40 * 64);
  const marlin_matrix host = mm::matrix_view(all.data(), 40, 64);
  EXPECT_OK(marlin_weights_unpack, nullptr, w.get(), nullptr, int64_t{0}, &host);
  const auto* got = static_cast<const float*>(marlin_buffer_host(out.get()));
  for (int k = 0; k < 64; ++k) {
    EXPECT_EQ(got[k], all[39 * 64 + k]);
    EXPECT_TRUE(std::isnan(got[64 + k]) && std::isnan(got[128 + k])) << k;
    EXPECT_EQ(got[192 + k], all[k]);
  }
}

}  // namespace
