// Products over a 3-way covering array of everything a caller can choose, each element against its own float64 bound.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "covering.h"
#include "formats_under_test.h"
#include "trial.h"

namespace {

using covering::Row;
using trial::Case;

enum Factor {
  kFormat,
  kGroup,
  kScale,
  kOrder,
  kTensor,
  kCompute,
  kA,
  kC,
  kBias,
  kEpilogue,
  kAccumulate,
  kStrides,
  kM,
  kN,
  kK,
  kThreads,
  kInterleaved,
  kSparse,
  kFactors
};

struct Format {
  marlin_format format;
  trial::Zeros zeros;
};
constexpr Format kFormats[] = {{MARLIN_INT4, trial::Zeros::none},     {MARLIN_INT4, trial::Zeros::integer},
                               {MARLIN_INT4, trial::Zeros::additive}, {MARLIN_FP4, trial::Zeros::none},
                               {MARLIN_MXFP4, trial::Zeros::none},    {MARLIN_NVFP4, trial::Zeros::none},
                               {MARLIN_INT8, trial::Zeros::none},     {MARLIN_INT8, trial::Zeros::additive}};
constexpr const char* kFormatNames[] = {"int4",  "int4_zeros", "int4_additive", "fp4",
                                        "mxfp4", "nvfp4",      "int8",          "int8_additive"};
constexpr int64_t kGroups[] = {16, 32, 64, 128, 256, 0};
constexpr marlin_dtype kFloats[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16, 0};
constexpr int kOwnScale = 3;  // E8M0 or E4M3

const std::vector<int>& levels() {
  static const std::vector<int> all = {8, 6, 4, 3, 4, 2, 3, 3, 4, 7, 2, 3, 5, 4, 5, 3, 2, 2};
  return all;
}

/// A level that is not chosen yet (-1) forbids nothing.
bool allowed(const Row& r) {
  const auto fixed = [&](Factor f) { return r[f] >= 0; };
  if (fixed(kFormat)) {
    const Format f = kFormats[r[kFormat]];
    const bool mx = f.format == MARLIN_MXFP4, nv = f.format == MARLIN_NVFP4;
    if (fixed(kGroup) && ((mx && kGroups[r[kGroup]] != 32) || (nv && kGroups[r[kGroup]] != 16))) return false;
    if (r[kScale] == kOwnScale && !mx && !nv) return false;
    if (f.zeros == trial::Zeros::additive && r[kTensor] > 0) return false;
  }
  if (r[kSparse] == 1 && r[kOrder] > 0) return false;  // sparse weights are in order, and
  if (r[kSparse] == 1 && fixed(kFormat) && kFormats[r[kFormat]].format == MARLIN_INT8) return false;  // have 4 bits
  if (fixed(kGroup) && kGroups[r[kGroup]] == 0 && r[kOrder] > 0) return false;                        // one group has no order
  return true;
}

Case case_of(const Row& r, uint32_t seed) {
  std::mt19937 random(seed * 2654435761u + 1);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  Case c;
  c.seed = seed;
  c.format = kFormats[r[kFormat]].format;
  c.zeros = kFormats[r[kFormat]].zeros;
  c.group = kGroups[r[kGroup]];
  c.scale_type = r[kScale] != kOwnScale ? kFloats[r[kScale]] : c.format == MARLIN_MXFP4 ? MARLIN_E8M0 : MARLIN_E4M3;
  c.order = static_cast<trial::Order>(r[kOrder]);
  c.tensor = static_cast<trial::Tensor>(r[kTensor]);
  c.compute = r[kCompute] == 0 ? MARLIN_COMPUTE_DEFAULT : MARLIN_COMPUTE_INT8;
  c.a_type = kFloats[r[kA]];
  c.c_type = kFloats[r[kC]];
  c.bias_type = kFloats[3 - r[kBias]];
  c.epilogue = static_cast<marlin_epilogue>(r[kEpilogue]);
  c.accumulate = r[kAccumulate] == 1;
  c.strides = static_cast<trial::Strides>(r[kStrides]);
  c.threads = static_cast<uint32_t>(r[kThreads] + 1);
  c.interleaved = r[kInterleaved] == 1;
  constexpr int64_t kRows[][2] = {{1, 1}, {2, 4}, {5, 16}, {17, 40}, {70, 90}};
  c.m = between(kRows[r[kM]][0], kRows[r[kM]][1]);
  c.n = r[kN] == 0 ? 1 : r[kN] == 1 ? between(2, 63) : r[kN] == 2 ? 64 * between(1, 2) : between(65, 200);
  c.k = r[kK] == 0   ? 1
        : r[kK] == 1 ? between(2, 31)
        : r[kK] == 2 ? between(16, 63) * 2 + 1
        : r[kK] == 3 ? 128 * between(1, 2)
                     : between(129, 400);
  c.sparse = r[kSparse] == 1;
  if (c.sparse) c.k = (c.k + 3) / 4 * 4;
  // Gate and up come in pairs.
  if ((c.interleaved || c.epilogue >= MARLIN_EPILOGUE_SWIGLU) && c.n % 2 != 0) ++c.n;
  return c;
}

/// The array, six times with other shapes and numbers.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> out;
    for (uint32_t repeat = 0; repeat < 6; ++repeat) {
      for (const Row& r : covering::three_way(levels(), allowed, 20240601 + repeat)) {
        out.push_back(case_of(r, static_cast<uint32_t>(out.size()) + 1));
      }
    }
    return out;
  }();
  return all;
}

TEST(CoveringArray, MissesNothing) {
  const auto rows = covering::three_way({3, 2, 4, 2}, [](const Row& r) { return r[0] != 1 || r[2] != 3; }, 1);
  EXPECT_EQ(covering::missing({3, 2, 4, 2}, [](const Row& r) { return r[0] != 1 || r[2] != 3; }, rows), 0);
  EXPECT_LT(rows.size(), 48u);
  EXPECT_EQ(covering::missing(levels(), allowed, covering::three_way(levels(), allowed, 20240601)), 0);
  EXPECT_GT(cases().size(), 2300u);
}

class Products : public testing::TestWithParam<int> {};

TEST_P(Products, StayWithinTheirBounds) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  int count = 0;
  double worst = 0;
  for (const Case& c : cases()) {
    if (c.format != kFormats[GetParam()].format || c.zeros != kFormats[GetParam()].zeros) continue;
    ASSERT_TRUE(trial::holds(c, &worst));
    ++count;
  }
  std::printf("%s: %d products on %s, 0 outside their bounds, nearest %.3f of it\n", kFormatNames[GetParam()], count,
              trial::isa().c_str(), worst);
}

INSTANTIATE_TEST_SUITE_P(Format, Products, testing::Range(0, 8), [](const auto& info) { return kFormatNames[info.param]; });

/// Shapes that are worked through in several blocks of rows: activations of K = 8200 fill the scratch long before M = 300, and
/// so do the sums of 9000 gate and up columns before M = 1000.
TEST(LargeProducts, StayWithinTheirBounds) {
  if (const std::string why = trial::unreachable_isa(); !why.empty()) GTEST_SKIP() << why;
  for (const trial::Kind& kind : trial::kKinds) {
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
      // Half of the pairs, each kind and each compute often enough.
      if ((&kind - trial::kKinds + (compute == MARLIN_COMPUTE_INT8)) % 2 != 0) continue;
      Case c = trial::case_of(kind, compute, 300, 66, 8200);
      c.a_type = compute == MARLIN_COMPUTE_INT8 ? MARLIN_BF16 : MARLIN_F32;
      c.threads = 2;
      ASSERT_TRUE(trial::holds(c));
    }
  }
  Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1000, 9000, 17);
  c.epilogue = MARLIN_EPILOGUE_SWIGLU;
  c.c_type = MARLIN_F16;
  c.threads = 2;
  EXPECT_TRUE(trial::holds(c));
}

/// Any combination, for as long as METAL_MARLIN_SOAK_SECONDS says; METAL_MARLIN_SOAK_SEED repeats a run.
TEST(RandomProducts, StayWithinTheirBounds) {
  const char *seconds = std::getenv("METAL_MARLIN_SOAK_SECONDS"), *chosen = std::getenv("METAL_MARLIN_SOAK_SEED");
  if (seconds == nullptr) GTEST_SKIP() << "METAL_MARLIN_SOAK_SECONDS is not set";
  const auto start = std::chrono::steady_clock::now();
  const auto seed = chosen != nullptr ? static_cast<uint32_t>(std::strtoul(chosen, nullptr, 10)) : std::random_device()();
  std::printf("METAL_MARLIN_SOAK_SEED=%u\n", seed);
  std::mt19937 random(seed);
  int count = 0;
  while (std::chrono::steady_clock::now() - start < std::chrono::seconds(std::atoi(seconds))) {
    Row r(kFactors);
    for (size_t f = 0; f < r.size(); ++f) r[f] = static_cast<int>(random() % static_cast<uint32_t>(levels()[f]));
    if (!allowed(r)) continue;
    ASSERT_TRUE(trial::holds(case_of(r, static_cast<uint32_t>(random()))));
    ++count;
  }
  std::printf("%d products, 0 outside their bounds\n", count);
}

}  // namespace
