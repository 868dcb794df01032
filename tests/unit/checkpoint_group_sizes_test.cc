// The group sizes of a config: the first that fits counts, and many cost no more than a few.
#include "checkpoint_files.h"
#include "checkpoints/config.h"
#include "checkpoints/group_sizes.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

TEST(CheckpointGroupSizes, None) {
  const GroupSizes none;
  EXPECT_EQ(none.first(), std::nullopt);
  EXPECT_EQ(none.first_between(1, INT64_MAX), std::nullopt);
  EXPECT_EQ(none.place_of(1), std::nullopt);
  EXPECT_EQ(GroupSizes(std::vector<int64_t>{}).first(), std::nullopt);
}

TEST(CheckpointGroupSizes, OfARowWithoutGroupsIsNone) {
  const QuantConfig config;
  EXPECT_EQ(group_size_of(config, 64, 1), 64);
  EXPECT_EQ(group_size_of(config, 64, 2), 32);
  EXPECT_EQ(group_size_of(config, 64, 3), std::nullopt);
  for (const auto& [k, groups] : {std::pair<int64_t, int64_t>{64, 0}, {64, -1}, {0, 1}, {-64, 2}, {0, 0}})
    EXPECT_EQ(group_size_of(config, k, groups), std::nullopt) << k << ", " << groups;
}

TEST(CheckpointGroupSizes, FirstOfARangeAsAScanFindsIt) {
  std::mt19937 random(7);
  for (int count = 1; count <= 40; ++count) {
    std::vector<int64_t> sizes(static_cast<size_t>(count));
    for (int64_t& size : sizes) size = 1 + static_cast<int64_t>(random() % 30);
    const GroupSizes groups(sizes);
    EXPECT_EQ(groups.first(), sizes[0]);
    for (int64_t least = 0; least <= 32; ++least) {
      for (int64_t most = least - 1; most <= 32; ++most) {
        const auto at = std::find_if(sizes.begin(), sizes.end(), [&](int64_t s) { return s >= least && s <= most; });
        const auto expected = at == sizes.end() ? std::nullopt : std::optional(*at);
        ASSERT_EQ(groups.first_between(least, most), expected) << least << ".." << most << " of " << count;
      }
      const auto at = std::find(sizes.begin(), sizes.end(), least);
      const auto place = at == sizes.end() ? std::nullopt : std::optional<uint32_t>(at - sizes.begin());
      ASSERT_EQ(groups.place_of(least), place);
    }
  }
}

/// 300,000 groups, and as many layers as need a while if each looks through all of them: without an order by size the groups
/// alone take 10 seconds, the layers minutes.
TEST(CheckpointGroupSizes, ManyConfigGroupsAndManyLayers) {
  std::string config = R"({"quantization_config":{"quant_method":"gptq","bits":4,"config_groups":{)";
  for (int64_t i = 0; i < 300'000; ++i) {
    // Rows of 4096 in three groups allow 1366..2047. All others are too large.
    const int64_t size = i == 100'000 ? 1920 : i == 200'000 ? 1408 : i + 10'000;
    config += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{\"weights\":{\"group_size\":" + std::to_string(size) + "}}";
  }
  std::vector<TestTensor> tensors;
  for (int64_t i = 0; i < 20'000; ++i) {
    const std::string name = "l" + std::to_string(i);
    tensors.push_back({name + ".qweight", "I32", "512, 0", ""});
    tensors.push_back({name + ".scales", "F16", i % 2 == 0 ? "3, 0" : "4, 0", ""});
  }
  tensors.push_back({"one.qweight", "I32", "512, 8", std::string(512 * 8 * 4, '\0')});
  tensors.push_back({"one.scales", "F16", "3, 8", std::string(48, '\0')});
  const auto begin = std::chrono::steady_clock::now();
  const auto opened = must(open_memory({{"m.safetensors", safetensors(tensors)}, {"config.json", config + "}}}"}}));
  EXPECT_EQ(opened->layers().size(), 20'001u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << "thirty times the usual";
  const Layer one = opened->layer(*opened->find_layer("one"));
  EXPECT_TRUE(one.status.ok()) << one.status.message();
  EXPECT_EQ(one.group_size, 1920) << "1920 comes first";
}

}  // namespace
}  // namespace metal_marlin::testing
