// Checkpoints of very many layers: a layer is found by its name without a look at the others.
#include "checkpoint_files.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

constexpr size_t kMany = 100'000;

/// What is done for each layer takes far below a millisecond. Looking at all layers for each one takes minutes.
void expect_quick(const char* what, const std::function<void()>& work) {
  const std::clock_t begin = std::clock();  // of this process, so that other programs do not count
  work();
  EXPECT_LT(std::clock() - begin, 20 * std::clock_t{CLOCKS_PER_SEC}) << what;
}

std::unique_ptr<Checkpoint> open_many(const std::string& file, const std::string& content) {
  std::unique_ptr<Checkpoint> checkpoint;
  expect_quick("open", [&] {
    auto opened = must(open_memory({{file, content}}));
    checkpoint = std::move(opened);
  });
  return checkpoint;
}

/// Lists all layers, and finds and reads each by its name.
void use_all(const Checkpoint& checkpoint, bool loads) {
  ASSERT_EQ(checkpoint.layer_count(), kMany);
  expect_quick("list", [&] {
    for (const Layer& layer : checkpoint.layers()) ASSERT_EQ(layer.status.ok(), loads) << layer.status.message();
  });
  expect_quick("find", [&] {
    for (size_t i = 0; i < kMany; ++i) ASSERT_EQ(checkpoint.find_layer(checkpoint.layer_name(i)), i);
  });
  expect_quick("read", [&] {
    for (size_t i = 0; i < kMany; ++i) ASSERT_EQ(checkpoint.source(i, 0, {}).ok(), loads);
  });
}

/// The longest common beginning makes names hard to tell apart.
std::string name_of(size_t i) { return "model.layers.mlp.down_proj." + std::to_string(i); }

TEST(CheckpointManyLayers, GgufWithTensorScales) {
  GgufWriter writer;
  writer.alignment = 1;
  writer.key("general.alignment", 4, bytes_of<uint32_t>({1}));
  const std::string block(36, '\x38'), one = bytes_of<float>({1});
  for (size_t i = 0; i < kMany; ++i) {
    writer.tensor(name_of(i) + ".weight", {64, 1}, 40, block);
    writer.tensor(name_of(i) + ".scale", {1}, 0, one);
  }
  const auto checkpoint = open_many("m.gguf", writer.file());
  ASSERT_NE(checkpoint, nullptr);
  use_all(*checkpoint, true);
}

TEST(CheckpointManyLayers, EmptyGguf) {
  GgufWriter writer;
  for (size_t i = 0; i < kMany; ++i) writer.tensor(name_of(i), {0, 0}, 2, "");
  const auto checkpoint = open_many("m.gguf", writer.file());
  ASSERT_NE(checkpoint, nullptr);
  use_all(*checkpoint, false);
}

TEST(CheckpointManyLayers, Safetensors) {
  std::vector<TestTensor> tensors;
  for (size_t i = 0; i < kMany; ++i) {
    tensors.push_back({name_of(i) + ".weight_packed", "U8", "1, 16", std::string(16, '\x11')});
    tensors.push_back({name_of(i) + ".weight_scale", "U8", "1, 1", "\x7f"});
  }
  const auto checkpoint = open_many("m.safetensors", safetensors(tensors));
  ASSERT_NE(checkpoint, nullptr);
  use_all(*checkpoint, true);
}

/// Experts that are stored one by one, of one layer and of very many.
TEST(CheckpointManyLayers, Experts) {
  for (const size_t experts : {kMany, size_t{2}}) {
    std::vector<TestTensor> tensors;
    for (size_t i = 0; i < kMany; ++i) {
      const std::string name = "m." + std::to_string(i / experts) + ".experts." + std::to_string(i % experts) + ".w";
      tensors.push_back({name + ".weight_packed", "U8", "1, 16", std::string(16, '\x11')});
      tensors.push_back({name + ".weight_scale", "U8", "1, 1", "\x7f"});
    }
    const auto checkpoint = open_many("m.safetensors", safetensors(tensors));
    ASSERT_NE(checkpoint, nullptr);
    ASSERT_EQ(checkpoint->layer_count(), kMany / experts);
    expect_quick("list", [&] {
      for (const Layer& layer : checkpoint->layers()) ASSERT_TRUE(layer.status.ok()) << layer.status.message();
    });
    expect_quick("ask for one layer as often as it may have experts", [&] {
      for (int i = 0; i < 2000; ++i) ASSERT_EQ(checkpoint->layer(0).experts, experts);
    });
    expect_quick("find", [&] {
      for (size_t i = 0; i < kMany; ++i) {
        if (i < checkpoint->layer_count()) {
          ASSERT_EQ(checkpoint->find_layer(checkpoint->layer_name(i)), i);
        }
        ASSERT_TRUE(checkpoint->find_layer(checkpoint->singles().layer_name(i)).has_value());
      }
    });
    expect_quick("read", [&] {
      for (size_t i = 0; i < kMany; ++i)
        ASSERT_TRUE(checkpoint->source(i / experts, static_cast<uint32_t>(i % experts), {}).ok());
    });
  }
}

TEST(CheckpointManyLayers, NamesThatTwoLayersShareStandForTheFirst) {
  const auto checkpoint = must(open_memory({{"m.safetensors", safetensors(std::vector<TestTensor>{
                                                                  {"b.weight", "F16", "1, 2", "abcd"},
                                                                  {"a.compressed", "F16", "1, 2", "abcd"},
                                                                  {"a.bitmask", "U8", "1, 1", "\x03"},
                                                                  {"a.weight", "F16", "1, 3", "abcdef"},
                                                              })}}));
  ASSERT_EQ(checkpoint->layer_count(), 3u);
  EXPECT_EQ(checkpoint->find_layer("a"), 1u);
  EXPECT_EQ(checkpoint->find_layer("b"), 0u);
  for (const char* none : {"", "a.weight", "aa", "c"}) EXPECT_EQ(checkpoint->find_layer(none), std::nullopt) << none;
  EXPECT_STREQ(checkpoint->layer_name(0), "b");
  EXPECT_STREQ(checkpoint->layer_name(2), "a");
  EXPECT_EQ(checkpoint->layer(2).k, 3);
}

}  // namespace
}  // namespace metal_marlin::testing
