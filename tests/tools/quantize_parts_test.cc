// What `quantize` decides before the library works: norms of columns, and the types of recipes.
#include <sys/stat.h>

#include "run_command.h"
#include "test.h"
#include "tools/command.h"
#include "tools/library.h"
#include "tools/norms.h"
#include "tools/output_file.h"
#include "tools/recipes.h"
#include "tools/safetensors_writer.h"

namespace metal_marlin::tools {
namespace {

/// A layer as a checkpoint lists it.
marlin_layer_info layer_of(const char* name, int64_t n, int64_t k, uint32_t experts = 1) {
  auto layer = make<marlin_layer_info>();
  layer.name = name;
  layer.n = n;
  layer.k = k;
  layer.experts = experts;
  return layer;
}

/// The older form of importance matrices.
std::string imatrix_of(const std::vector<std::pair<std::string, std::vector<float>>>& entries) {
  std::string file;
  const auto add = [&](int32_t number) { file.append(reinterpret_cast<const char*>(&number), 4); };
  add(static_cast<int32_t>(entries.size()));
  for (const auto& [name, values] : entries) {
    add(static_cast<int32_t>(name.size()));
    file += name;
    add(7);
    add(static_cast<int32_t>(values.size()));
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  add(3);
  add(4);
  return file + "wiki";
}

TEST(Norms, WaitForNoPipe) {
  const test::ScratchFolder scratch;
  for (const char* name : {"pipe", "pipe.json", "pipe.safetensors", "pipe.gguf"}) {
    ASSERT_EQ(mkfifo(scratch.at(name).c_str(), 0600), 0);
    EXPECT_THROW(Norms(scratch.at(name)), Failure) << name;
  }
  EXPECT_THROW(Norms(scratch.at("none")), Failure);
}

TEST(Norms, AreRootsOfAnImportanceMatrix) {
  const test::ScratchFolder scratch;
  const std::string whole = imatrix_of({{"a.weight", {4, 9, 0, 1}}, {"e.weight", {1, 4, 9, 16, 8, 5, 7, 9}}});
  test::write_file(scratch.at("imatrix.dat"), whole);
  const Norms file(scratch.at("imatrix.dat"));
  EXPECT_EQ(file.of(layer_of("a.weight", 2, 4)), (std::vector<float>{2, 3, 0, 1}));
  EXPECT_EQ(file.of(layer_of("a", 2, 4)), (std::vector<float>{2, 3, 0, 1})) << "as safetensors name it";
  EXPECT_EQ(file.of(layer_of("e.weight", 2, 4, 2)), (std::vector<float>{3, 3, 4, 5})) << "over both experts";
  EXPECT_TRUE(file.of(layer_of("token_embd.weight", 2, 4)).empty());
  EXPECT_THROW(file.of(layer_of("a.weight", 2, 5)), Failure) << "another length";
  for (size_t cut = 0; cut + 12 < whole.size(); ++cut) {
    test::write_file(scratch.at("cut.dat"), whole.substr(0, cut));
    EXPECT_THROW(Norms(scratch.at("cut.dat")), Failure) << cut;
  }
  std::string bad = whole;
  bad[3] = '\x7f';
  test::write_file(scratch.at("bad.dat"), bad);
  try {
    const Norms read(scratch.at("bad.dat"));
    FAIL() << "two billion entries";
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), HasSubstr("byte 0: expected 1.."));
  }
}

std::vector<std::string> recipe(const char* name, const std::vector<marlin_layer_info>& layers) {
  std::vector<std::string> types;
  for (const char* type : recipe_types(name, layers)) types.emplace_back(type == nullptr ? "" : type);
  return types;
}

/// tests/data has a model that llama-quantize made Q4_K_M; its types of blocks say what it chose.
TEST(Recipes, ChooseWhatLlamaQuantizeChose) {
  const Checkpoint file = open_checkpoint(test::data("gguf-llama-q4km"));
  const std::vector<marlin_layer_info> layers = layers_of(file.get());
  const std::vector<std::string> types = recipe("q4_k_m", layers);
  ASSERT_GE(types.size(), 8u);
  const auto blocks_of = [](const marlin_layer_info& layer) -> std::string {
    const bool two_level = (layer.flags & MARLIN_PACK_TWO_LEVEL_SCALES) != 0;
    if (layer.format == MARLIN_FORMAT_INT4 && two_level) return "Q4_K";
    if (layer.format == MARLIN_FORMAT_INT6 && two_level) return "Q6_K";
    if (layer.format == MARLIN_FORMAT_INT5 && !two_level) return "Q5_0";
    return layer.format == MARLIN_FORMAT_INT8 ? "Q8_0" : "another";
  };
  for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(types[i], blocks_of(layers[i])) << layers[i].name;
}

TEST(Recipes, GiveMoreBitsToTheFirstAndLastEighthAndEveryThirdBetween) {
  std::vector<std::string> names;
  for (int block = 0; block < 32; ++block) names.push_back("blk." + std::to_string(block) + ".ffn_down.weight");
  names.emplace_back("output.weight");
  names.emplace_back("token_embd.weight");
  std::vector<marlin_layer_info> layers;
  for (const std::string& name : names) layers.push_back(layer_of(name.c_str(), 8, 512));
  std::swap(layers[0], layers[31]);  // files have them in any order
  const std::vector<std::string> types = recipe("q4_k_m", layers);
  const std::set<int> more = {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31};
  for (int block = 0; block < 32; ++block) {
    const int at = block == 0 ? 31 : block == 31 ? 0 : block;
    EXPECT_EQ(types[at], more.contains(block) ? "Q6_K" : "Q4_K") << block;
  }
  EXPECT_EQ(types[32], "Q6_K");
  EXPECT_EQ(types[33], "Q4_K") << "there is an output layer";
  EXPECT_EQ(recipe("q4_k_m", {layers[33]})[0], "Q6_K") << "the embeddings are the output";
  EXPECT_EQ(recipe("q5_k_m", layers)[33], "Q5_K");
  EXPECT_EQ(recipe("q4_k_s", layers)[31], "Q5_K") << "block 0, of the first eighth";
  EXPECT_EQ(recipe("q4_k_s", layers)[4], "Q4_K");
  EXPECT_EQ(recipe("q8_0", layers)[0], "Q8_0");
}

TEST(Recipes, RowsThatAreNoWholeBlocksGetOtherTypes) {
  const auto type = [](const char* name, int64_t k) { return recipe(name, {layer_of("blk.0.ffn_up.weight", 8, k)})[0]; };
  EXPECT_EQ(type("q4_k_m", 96), "Q5_0");
  EXPECT_EQ(type("q5_k_m", 96), "Q5_1");
  EXPECT_EQ(type("q6_k", 96), "Q8_0");
  EXPECT_EQ(type("q3_k_m", 96), "IQ4_NL");
  EXPECT_EQ(type("q8_0", 96), "Q8_0");
  EXPECT_EQ(type("q4_k_m", 100), "") << "no type at all";
  EXPECT_THROW(recipe("q9", {}), Failure);
}

TEST(Recipes, KnowModelsOfEightExpertsAndOfEightyBlocks) {
  const std::vector<std::string> types =
      recipe("q4_k_m", {layer_of("blk.0.attn_v.weight", 8, 256), layer_of("blk.0.attn_k.weight", 8, 256),
                        layer_of("blk.0.attn_output.weight", 8, 256), layer_of("blk.0.ffn_up_exps.weight", 8, 256, 8)});
  EXPECT_EQ(types, (std::vector<std::string>{"Q8_0", "Q8_0", "Q5_K", "Q4_K"}));
  std::vector<std::string> names;
  for (int block = 0; block < 80; ++block) names.push_back("model.layers." + std::to_string(block) + ".self_attn.v_proj");
  for (const int64_t n : {256, 2048}) {
    std::vector<marlin_layer_info> layers;
    for (const std::string& name : names) layers.push_back(layer_of(name.c_str(), n, 2048));
    EXPECT_EQ(recipe("q4_k_m", layers)[10], n < 2048 ? "Q5_K" : "Q4_K");
    EXPECT_EQ(recipe("q4_k_m", layers)[0], "Q6_K");
  }
}

TEST(Norms, AreReadByTheLayersName) {
  const test::ScratchFolder scratch;
  const std::vector<float> norms = {1, 2, 3, 0.5f};
  {
    OutputFile output(scratch.at("norms.safetensors"));
    SafetensorsWriter writer(output, {{"a", {4}}, {"b", {2, 2}}});
    writer.write(norms.data(), norms.size());
    writer.write(norms.data(), norms.size());
    writer.commit();
  }
  const Norms file(scratch.at("norms.safetensors"));
  auto layer = make<marlin_layer_info>();
  layer.name = "a";
  layer.k = 4;
  EXPECT_EQ(file.of(layer), norms);
  layer.k = 3;
  EXPECT_THROW(file.of(layer), Failure) << "another length";
  layer.k = 4;
  layer.name = "b";
  EXPECT_THROW(file.of(layer), Failure) << "another shape";
  layer.name = "c";
  EXPECT_THROW(file.of(layer), Failure) << "no such layer";
  EXPECT_THROW(Norms(scratch.at("none.safetensors")), Failure);
}

}  // namespace
}  // namespace metal_marlin::tools
