// Mixtures of experts through the C ABI on the real Metal shaders, over a covering array of everything a caller can choose and
// of the kernel that does the work; every routed row against its own float64 bound.
#include "campaigns.h"
#include "gpu.h"
#include "kernels/mixture.h"
#include "kernels/product_factors.h"
#include "test.h"

namespace {

using namespace device_test;
using covering::Row;
using trial::Mix;
using trial::Pick;

/// The factors of a product, and these.
enum Factor { kKernel = trial::kFactors, kSums, kPick, kTokens, kTopK, kExperts, kRowASlot, kBlocks, kFactors };
constexpr marlin_dtype kScales[] = {0, MARLIN_F32, MARLIN_F16, MARLIN_BF16};
constexpr Pick kPicks[] = {Pick::random, Pick::last, Pick::repeated, Pick::outside, Pick::ends, Pick::skewed};
constexpr int64_t kTokenCounts[][2] = {{1, 1}, {2, 5}, {6, 20}, {21, 70}};
constexpr int64_t kTopKs[][2] = {{1, 1}, {2, 3}, {4, 8}};
constexpr int64_t kExpertCounts[][2] = {{3, 4}, {1, 1}, {5, 12}, {33, 40}};
constexpr int64_t kRowsOfBlock[] = {mm::gpu::kMostRows, 1, 24};

std::span<const mm::gpu::ProductKernel> kernels() { return mm::gpu::simdgroup_policy().kernels; }

bool allowed(const Row& row) {
  if (row[trial::kFormat] >= 0 && trial::kFormats[row[trial::kFormat]].format > MARLIN_FORMAT_IQ4) return false;
  if (row[trial::kOrder] == static_cast<int>(trial::Order::unequal)) return false;  // layouts may differ, which is refused
  if (row[kPick] >= 0 && kPicks[row[kPick]] == Pick::ends && row[kExperts] == 1) return false;
  const int kernel = row[kKernel];
  return trial::allowed(row) && (kernel < 0 || trial::takes(kernels()[static_cast<size_t>(kernel)], row));
}

std::vector<Row> pairs() {
  std::vector<int> levels = trial::factor_levels();
  for (const int fixed : {trial::kM, trial::kThreads, trial::kTogether}) levels[static_cast<size_t>(fixed)] = 1;
  levels.push_back(static_cast<int>(kernels().size()));
  for (const size_t count : {std::size(kScales), std::size(kPicks), std::size(kTokenCounts), std::size(kTopKs),
                             std::size(kExpertCounts), size_t{2}, std::size(kRowsOfBlock)})
    levels.push_back(static_cast<int>(count));
  return covering::two_way(levels, allowed, 20261124);
}

Mix mix_of(const Row& row, std::mt19937& random) {
  const auto between = [&](const int64_t(&range)[2]) {
    return range[0] + static_cast<int64_t>(random() % static_cast<uint32_t>(range[1] - range[0] + 1));
  };
  return {between(kTokenCounts[row[kTokens]]),
          between(kExpertCounts[row[kExperts]]),
          between(kTopKs[row[kTopK]]),
          kPicks[row[kPick]],
          row[kRowASlot] == 1,
          kScales[row[kSums]]};
}

/// Every access is checked, in an order of commands, threadgroups and lanes that the row's number seeds.
void run_row(const Row& row, uint32_t seed) {
  std::mt19937 random(seed);
  const trial::Case c = trial::case_of(row, seed);
  const Mix mix = mix_of(row, random);
  const mm::gpu::ProductKernel& kernel = kernels()[static_cast<size_t>(row[kKernel])];
  const std::string name = trial::kernel_name(kernel, c);
  const Gpu gpu(std::make_shared<TestbedDevice>(TestbedOptions{.seed = seed, .changes = {}}),
                {.probe = false, .most_rows = kRowsOfBlock[row[kBlocks]]}, {.kernel = name});
  trial::Mixture mixture(c, mix);
  if (seed % 3 == 0) mixture.put_special_values();
  const auto describe = [&] {
    return c.describe() + " by " + name + ", " + std::to_string(mix.tokens) + " tokens with " + std::to_string(mix.top_k) +
           " of " + std::to_string(mix.experts) + " experts, pick " + std::to_string(static_cast<int>(mix.pick));
  };
  ASSERT_EQ(mixture.pack(1), MARLIN_OK) << describe();
  ASSERT_TRUE(mixture.run()) << describe();
  EXPECT_TRUE(mixture.check()) << describe();
}

/// Every pair of choices in a long campaign; else the first row of each kernel.
TEST(MixturePairs, StayWithinTheirBounds) {
  const std::vector<Row> rows = pairs();
  int done = 0;
  std::set<int> seen;
  for (uint32_t i = 1; i <= rows.size(); ++i) {
    const bool first = seen.insert(rows[i - 1][kKernel]).second;
    if (!first && !whole_campaigns()) continue;
    run_row(rows[i - 1], i);
    ++done;
  }
  EXPECT_EQ(seen.size(), kernels().size());
  std::printf("%d products of experts of an array of %zu rows\n", done, rows.size());
}

}  // namespace
