// Wrong dispatches of kernels that are right, and kernels of the wheel that are not: the checker reports the same of Apple's
// AIR and of our front-end's code, by kind, buffer and kernel. And what the modes of arithmetic change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "differential.h"
#include "wheel.h"

namespace metal_on_cpu::differential {
namespace {

// A case of the tables, and the group that it is of.
struct Found {
  Group group;
  Case c;
};
Found find(const std::string& kernel) {
  for (Group& group : all_groups()) {
    for (const Case& c : group.cases) {
      if (c.kernel == kernel) return {group, c};
    }
  }
  ADD_FAILURE() << "no table has " << kernel;
  return {};
}

struct Planted {
  const char* name;
  const char* kernel;
  void (*change)(Arguments&);
  const char* finding;
  int buffer;                                        // -1: none
  std::map<uint32_t, ConstantValue> constants = {};  // other than the table's
};
std::ostream& operator<<(std::ostream& out, const Planted& p) { return out << p.name; }

const Planted kPlanted[] = {
    {"BufferTooSmall", "affine_qmv_fast_float16_t_gs_64_b_4_batch_0_pr_0_hgs_0_r_4", [](Arguments& a) { a.shorten(0, 4); },
     "out-of-bounds-read", 0},
    {"OutputTooSmall", "affine_dequantize_float16_t_gs_32_b_4", [](Arguments& a) { a.shorten(3, 2); }, "out-of-bounds-write",
     3},
    {"SizeTooLarge", "affine_qmm_t_bfloat16_t_gs_128_b_1_alN_true_batch_0", [](Arguments& a) { a.value(5, 256); },
     "out-of-bounds-read", 3},
    {"TooFewThreads", "sdpa_vector_float16_t_64_64", [](Arguments& a) { a.threads(512); }, "uninitialized-threadgroup-read",
     -1},
    {"WrongConstant",
     "steel_gemm_fused_nn_float16_float16_bm32_bn32_bk16_wm2_wn2",
     [](Arguments&) {},
     "out-of-bounds-read",
     0,
     {{200, true}}},
    {"PartsOnTopOfEachOther", "steel_gemm_splitk_tt_float32_float32_bm32_bn32_bk16_wm2_wn2_MN_taligned_K_naligned",
     [](Arguments& a) {
       // M, N, K, lda, ldb, ldc, tiles, parts, and how far apart the parts' results are
       a.values(3, std::vector<int>{32, 32, 75, 32, 75, 32, 1, 1, 2, 0, 32, 0, 2});
     },
     "device-race", 2},
    // Kernels of the wheel as they are meant to be dispatched.
    {"ReadsBelowTheLastRow", "steel_gemm_fused_nn_float16_float16_bm32_bn32_bk16_wm2_wn2",
     [](Arguments& a) { a.shorten(2, 32 * 50 * 2); }, "out-of-bounds-read", 2},
    {"BarrierForOneLane", "gemv_float32_bm1_bn8_sm1_sn32_tm4_tn4_nc0_axpby1", [](Arguments&) {}, "divergent-barrier", -1},
    {"LanesBeyondTheLastColumn", "gemv_t_float32_bm1_bn2_sm8_sn4_tm4_tn4_nc0_axpby1", [](Arguments& a) { a.value(5, 50); },
     "divergent-barrier", -1},
};

class PlantedBug : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedBug, IsFoundByBothRoutes) {
  if (!air::wheel().absent.empty()) GTEST_SKIP() << air::wheel().absent;
  const Planted& p = GetParam();
  Found found = find(p.kernel);
  for (const auto& [index, value] : p.constants) found.c.constants[index] = value;
  found.c.arguments = [&, right = found.c.arguments] {
    Arguments a = right();
    p.change(a);
    return a;
  };
  const auto apple = wheel_library(), ours = source_library(found.group, {found.c});
  ASSERT_TRUE(apple.ok()) << apple.message();
  ASSERT_TRUE(ours.ok()) << ours.message();
  for (const bool air : {true, false}) {
    const auto report = run(found.c, air ? apple.value() : ours.value());
    ASSERT_TRUE(report.ok()) << report.message();
    const auto& all = report.value().findings;
    const auto found_it =
        std::find_if(all.begin(), all.end(), [&](const Finding& f) { return f.kind == p.finding && f.buffer == p.buffer; });
    ASSERT_NE(found_it, all.end()) << (air ? "AIR: " : "source: ") << report.value().text();
    EXPECT_EQ(found_it->kernel, p.kernel);
    EXPECT_EQ(found_it->file == std::string(p.kernel) + ".air", air) << found_it->file;
    EXPECT_NE(found_it->line, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Wheel, PlantedBug, ::testing::ValuesIn(kPlanted),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Refused, WhatMetalWouldRefuse) {
  if (!air::wheel().absent.empty()) GTEST_SKIP() << air::wheel().absent;
  const auto apple = wheel_library();
  ASSERT_TRUE(apple.ok()) << apple.message();
  Case gemm = find("steel_gemm_fused_nn_float16_float16_bm32_bn32_bk16_wm2_wn2").c;
  gemm.constants.erase(201);
  EXPECT_THAT(run(gemm, apple.value()).message(),
              ::testing::HasSubstr("function constant 'align_N' (201) of type bool has no value"));
  Case gemv = find("gemv_float16_bm4_bn1_sm1_sn32_tm4_tn4_nc0_axpby0").c;
  gemv.arguments = [right = gemv.arguments] { return right().threads(32, 1, 8); };
  EXPECT_THAT(run(gemv, apple.value()).message(), ::testing::HasSubstr("max_total_threads_per_threadgroup]] is 128"));
  gemv.arguments = [] { return Arguments().groups(1).threads(32, 1, 4); };
  EXPECT_THAT(run(gemv, apple.value()).message(), ::testing::HasSubstr("no buffer is given for 'mat' [[buffer(0)]]"));
}

// A kernel, and the buffers of float that get subnormal values.
struct Subnormal {
  const char* kernel;
  std::vector<int> inputs;
  int output;
};
std::ostream& operator<<(std::ostream& out, const Subnormal& s) { return out << s.kernel; }

class FlushToZero : public ::testing::TestWithParam<Subnormal> {};

TEST_P(FlushToZero, IsTheSameByBothRoutes) {
  if (!air::wheel().absent.empty()) GTEST_SKIP() << air::wheel().absent;
  const Subnormal& p = GetParam();
  Found found = find(p.kernel);
  const auto apple = wheel_library(), ours = source_library(found.group, {found.c});
  ASSERT_TRUE(apple.ok()) << apple.message();
  ASSERT_TRUE(ours.ok()) << ours.message();
  Bytes kept;
  for (const bool flush : {false, true}) {
    Case c = found.c;
    c.arguments = [&, usual = found.c.arguments] {
      Arguments a = usual();
      // Exponents from below the least of a normal number to just above it.
      for (const int buffer : p.inputs) a.input(buffer, random_values(kF32, a.size(buffer) / 4, 11, -127, -122));
      return a.flush_to_zero(flush);
    };
    const auto differences = compare(c, apple.value(), ours.value());
    ASSERT_TRUE(differences.ok()) << differences.message();
    for (const Difference& d : differences.value()) ADD_FAILURE() << d.what << ": " << d.text;
    const Bytes result = output(c, apple.value(), p.output);
    EXPECT_NE(result, kept) << "flushing has to change something";
    kept = result;
  }
}

const Subnormal kSubnormal[] = {
    {"gemv_float32_bm4_bn1_sm1_sn32_tm4_tn4_nc0_axpby0", {0}, 3},
    {"gemv_float32_bm1_bn1_sm8_sn4_tm4_tn4_nc1_axpby1", {0, 2}, 3},
    {"steel_gemm_fused_nt_float32_float32_bm64_bn64_bk16_wm2_wn2", {0}, 3},
    {"steel_gemm_splitk_accum_float32_float32", {0}, 1},
    {"all_reduce_sumfloat32", {0}, 1},
};
INSTANTIATE_TEST_SUITE_P(Wheel, FlushToZero, ::testing::ValuesIn(kSubnormal),
                         [](const auto& info) { return std::string(info.param.kernel); });

}  // namespace
}  // namespace metal_on_cpu::differential
