// Experts that a file stores one by one: gathered by number into one layer, or not, and what is refused.
#include "abi/support.h"
#include "api/checkpoint.h"
#include "checkpoint_files.h"
#include "convert_files.h"
#include "fails.h"
#include "kernels/guarded_stream.h"
#include "sources/concat.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

std::unique_ptr<Checkpoint> opened(const std::vector<TestTensor>& tensors, const std::string& config = "{}") {
  return must(open_memory({{"f.safetensors", safetensors(tensors)}, {"config.json", config}}));
}

std::string expert(const std::string& number, const std::string& part = "up_proj") {
  return "m.0.mlp.experts." + number + "." + part;
}

/// Floats [2, 4], all of this value.
TestTensor floats(const std::string& layer, float value, const std::string& shape = "2,4") {
  std::string data;
  for (int i = 0; i < 8; ++i) append(data, value);
  return {layer + ".weight", "F32", shape, data};
}

/// MXFP4 [1, 32] of codes 2 (the value 1) times 2^(scale - 127).
std::vector<TestTensor> mxfp4(const std::string& layer, uint8_t scale) {
  return {{layer + ".weight", "U8", "1,16", std::string(16, '\x22')},
          {layer + ".weight_scale", "U8", "1,1", std::string(1, static_cast<char>(scale))}};
}

void add(std::vector<TestTensor>& all, const std::vector<TestTensor>& more) { all.insert(all.end(), more.begin(), more.end()); }

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const Layer& layer : checkpoint.layers()) names.push_back(layer.name);
  return names;
}

TEST(CheckpointExperts, AreGatheredByNumberAtThePlaceOfTheFirst) {
  std::vector<TestTensor> tensors;
  add(tensors, mxfp4("m.0.q_proj", 127));
  // As texts, the numbers would have another order: 10, 2.
  for (const int e : {10, 2, 0, 1, 3, 11, 9, 8, 4, 5, 6, 7}) {
    add(tensors, mxfp4(expert(std::to_string(e)), static_cast<uint8_t>(127 + e)));
    add(tensors, mxfp4(expert(std::to_string(e), "down_proj"), static_cast<uint8_t>(107 - e)));
  }
  add(tensors, mxfp4("m.0.mlp.shared_experts.up_proj", 127));
  const auto checkpoint = opened(tensors, R"({"num_experts":12})");
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(names_of(*checkpoint), (std::vector<std::string>{"m.0.q_proj", "m.0.mlp.experts.up_proj",
                                                             "m.0.mlp.experts.down_proj", "m.0.mlp.shared_experts.up_proj"}));
  for (size_t i = 0; i < checkpoint->layer_count(); ++i) EXPECT_EQ(checkpoint->find_layer(checkpoint->layer_name(i)), i);
  const Layer up = checkpoint->layers()[1];
  ASSERT_TRUE(up.status.ok()) << up.status.message();
  EXPECT_EQ(up.experts, 12u);
  EXPECT_EQ(up.n, 1);
  EXPECT_EQ(up.k, 32);
  EXPECT_EQ(up.format, MARLIN_FORMAT_MXFP4);
  EXPECT_EQ(up.bytes, 12u * 17);
  EXPECT_EQ(checkpoint->parts(1).size(), 24u);
  for (uint32_t e = 0; e < 12; ++e) {
    EXPECT_EQ(decode_all(*checkpoint->source(1, e, {}).value()).value()[0], std::ldexp(1.0f, static_cast<int>(e)));
    EXPECT_EQ(decode_all(*checkpoint->source(2, e, {}).value()).value()[0], std::ldexp(1.0f, -20 - static_cast<int>(e)));
  }
  EXPECT_EQ(checkpoint->source(1, 12, {}).status().code(), MARLIN_E_ARGUMENT);
}

/// Whoever has read a part of a large file says so, and the pages go back to the system.
TEST(CheckpointExperts, ReleasePartsToTheFolder) {
  std::vector<TestTensor> tensors;
  for (const char* e : {"0", "1"}) add(tensors, mxfp4(expert(e), 127));
  std::vector<const std::byte*> released;
  auto folder = std::make_unique<MemoryFolder>();
  folder->add("f.safetensors", safetensors(tensors));
  folder->released = &released;
  const auto checkpoint = open_checkpoint(std::move(folder), "f.safetensors", MARLIN_LAYOUT_AUTO).take();
  ASSERT_EQ(checkpoint->layers()[0].experts, 2u);
  const std::vector<TensorView> parts = checkpoint->parts(0);
  ASSERT_EQ(parts.size(), 4u);
  released.clear();
  for (const TensorView& part : parts) checkpoint->release({part.data, part.bytes});
  ASSERT_EQ(released.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(released[i], parts[i].data);
}

/// A host that loads one layer for each expert names them as before.
TEST(CheckpointExperts, HaveTheirOwnNamesToo) {
  std::vector<TestTensor> tensors;
  for (const char* e : {"1", "0"}) add(tensors, mxfp4(expert(e), static_cast<uint8_t>(127 + e[0] - '0')));
  const auto checkpoint = opened(tensors);
  EXPECT_EQ(checkpoint->layer_count(), 1u);
  for (const uint32_t e : {0u, 1u}) {
    const std::string name = expert(std::to_string(e));
    const auto index = checkpoint->find_layer(name);
    ASSERT_TRUE(index.has_value());
    EXPECT_GE(*index, checkpoint->layer_count());
    EXPECT_EQ(checkpoint->layer_name(*index), name);
    EXPECT_EQ(checkpoint->layer(*index).name, name);
    EXPECT_EQ(checkpoint->layer(*index).experts, 1u);
    EXPECT_EQ(checkpoint->parts(*index).size(), 2u);
    EXPECT_EQ(decode_all(*checkpoint->source(*index, 0, {}).value()).value()[0], std::ldexp(1.0f, static_cast<int>(e)));
  }
  EXPECT_FALSE(checkpoint->find_layer(expert("2")).has_value());
  EXPECT_FALSE(checkpoint->find_layer("").has_value());
}

TEST(CheckpointExperts, FaultsNameTheExpert) {
  const auto refused = [](const std::vector<std::string>& numbers, const std::string& config, marlin_status code,
                          const std::string& what) {
    std::vector<TestTensor> tensors{floats("m.0.mlp.gate", 1)};
    for (const std::string& e : numbers) add(tensors, mxfp4(expert(e), 127));
    const auto checkpoint = opened(tensors, config);
    ASSERT_EQ(checkpoint->layer_count(), 2u);
    EXPECT_TRUE(checkpoint->layers()[0].status.ok()) << "the rest of the file is there";
    const Layer layer = checkpoint->layers()[1];
    EXPECT_EQ(layer.name, "m.0.mlp.experts.up_proj");
    EXPECT_THAT(layer.status, Fails(code, HasSubstr(what))) << what;
    EXPECT_STREQ(checkpoint->source(1, 0, {}).status().message(), layer.status.message());
    EXPECT_TRUE(checkpoint->source(*checkpoint->find_layer(expert(numbers[0])), 0, {}).ok()) << "each expert alone is there";
  };
  refused({"0", "1", "3"}, "{}", MARLIN_E_NOT_FOUND, "expert 2: 'm.0.mlp.experts.2.up_proj' is in none of the files");
  refused({"1", "2"}, "{}", MARLIN_E_NOT_FOUND, "expert 0: 'm.0.mlp.experts.0.up_proj'");
  refused({"999999999", "0"}, "{}", MARLIN_E_NOT_FOUND, "expert 1: 'm.0.mlp.experts.1.up_proj'");
  refused({"0", "1", "01"}, "{}", MARLIN_E_FORMAT,
          "expert 1: expected it once in the files, found 'm.0.mlp.experts.1.up_proj' and 'm.0.mlp.experts.01.up_proj'");
  refused({"0", "1", "2"}, R"({"num_local_experts":3})", MARLIN_E_FORMAT,
          "experts: expected 2 as the router has rows, found 3");
}

TEST(CheckpointExperts, AFaultOfOneExpertIsOneOfTheLayer) {
  std::vector<TestTensor> tensors;
  for (const char* e : {"0", "1", "2"})
    add(tensors, {{expert(e) + ".qweight", "I32", "4,8", std::string(128, '\0')},
                  {expert(e) + ".scales", "F16", "1,8", std::string(16, '\0')}});
  tensors[3].name = "elsewhere";
  const auto checkpoint = opened(tensors, R"({"quantization_config":{"quant_method":"gptq","bits":4}})");
  ASSERT_EQ(checkpoint->layer_count(), 1u);
  const Layer layer = checkpoint->layers()[0];
  EXPECT_EQ(layer.n, 8);
  EXPECT_EQ(layer.experts, 3u);
  EXPECT_THAT(layer.status, Fails(MARLIN_E_NOT_FOUND, HasSubstr("'m.0.mlp.experts.1.up_proj.scales' is in none of the files")));
  EXPECT_TRUE(checkpoint->source(0, 2, {}).ok());
  EXPECT_FALSE(checkpoint->source(0, 1, {}).ok());
}

TEST(CheckpointExperts, ThoseThatDifferStaySingle) {
  const auto expect_single = [](const std::vector<TestTensor>& tensors, const char* what) {
    const auto checkpoint = opened(tensors, R"({"num_experts":8})");
    EXPECT_EQ(names_of(*checkpoint), (std::vector<std::string>{expert("0"), expert("1")})) << what;
    for (const Layer& layer : checkpoint->layers()) EXPECT_TRUE(layer.status.ok()) << layer.status.message();
  };
  expect_single({floats(expert("0"), 1), floats(expert("1"), 1, "4,2")}, "the shape");
  auto mixed = mxfp4(expert("0"), 127);
  mixed.push_back(floats(expert("1"), 1, "1,8"));
  expect_single(mixed, "the format");
  EXPECT_EQ(names_of(*opened({floats(expert("0"), 1), floats(expert("0", "down_proj"), 1)})).size(), 2u) << "one expert alone";
  const auto others =
      opened({floats("a.experts.0", 1), floats("a.experts.1", 1), floats("a.experts.x.w", 1), floats("a.my_experts.0.w", 1),
              floats("a.my_experts.1.w", 1), floats("a.experts.0123456789.w", 1)});
  EXPECT_EQ(others->layer_count(), 6u) << "names of another form";
}

TEST(CheckpointExperts, OfEachLayoutHaveTheirOwnScalesZerosAndGroups) {
  // GPTQ with act-order: each expert has its own g_idx and zeros.
  std::vector<TestTensor> tensors;
  for (int e = 0; e < 3; ++e) {
    const std::string name = "experts." + std::to_string(e) + ".w";
    std::string index, scales, zeros;
    for (int k = 0; k < 32; ++k) append<int32_t>(index, (k + e) % 2);
    for (int i = 0; i < 16; ++i) append<uint16_t>(scales, static_cast<uint16_t>(i < 8 ? 0x3c00 : 0x4000));
    for (int g = 0; g < 2; ++g) append(zeros, 0x11111111u * static_cast<uint32_t>(e + 1));
    add(tensors, {{name + ".qweight", "I32", "4,8", std::string(128, '\x55')},
                  {name + ".scales", "F16", "2,8", scales},
                  {name + ".qzeros", "I32", "2,1", zeros},
                  {name + ".g_idx", "I32", "32", index}});
  }
  const auto checkpoint = opened(
      tensors, R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16,"checkpoint_format":"gptq_v2"}})");
  EXPECT_EQ(names_of(*checkpoint), std::vector<std::string>{"experts.w"});
  std::vector<std::unique_ptr<WeightSource>> sources;
  for (uint32_t e = 0; e < 3; ++e) {
    auto source = must(checkpoint->source(0, e, {}));
    const auto values = decode_all(*source).value();
    for (uint32_t k = 0; k < 32; ++k)
      EXPECT_EQ(values[k], static_cast<float>(5 - static_cast<int>(e + 1)) * ((k + e) % 2 == 0 ? 1 : 2)) << e << " " << k;
    sources.push_back(std::move(source));
  }
  EXPECT_TRUE(make_alike(sources).ok());

  // NVFP4: each expert has its own tensor scale.
  tensors.clear();
  for (int e = 0; e < 2; ++e) {
    const std::string name = "experts." + std::to_string(e) + ".w";
    add(tensors, {{name + ".weight", "U8", "1,8", std::string(8, '\x22')},
                  {name + ".weight_scale", "F8_E4M3", "1,1", "\x38"},
                  {name + ".weight_scale_2", "F32", "", bytes_of<float>({static_cast<float>(e + 3)})}});
  }
  const auto nvfp4 = opened(tensors);
  ASSERT_EQ(nvfp4->layer_count(), 1u);
  for (uint32_t e = 0; e < 2; ++e)
    EXPECT_EQ(decode_all(*nvfp4->source(0, e, {}).value()).value()[0], static_cast<float>(e + 3));
}

/// Each expert of GPTQ has its own order of columns: that of the file, groups of equal lengths or of any. Their plans differ.
TEST(CheckpointExperts, OfGptqAreMultipliedInAnyOrderOfColumns) {
  constexpr int64_t kN = 72, kK = 256, kGroups = 16, kTokens = 9;
  const metal_marlin::context context{MARLIN_BACKEND_CPU};
  std::mt19937 random(20261128);
  for (int round = 0; round < 12; ++round) {
    const auto experts = static_cast<uint32_t>(2 + random() % 3);
    std::vector<TestTensor> tensors;
    for (uint32_t e = 0; e < experts; ++e) {
      const std::string name = "experts." + std::to_string(e) + ".w";
      const auto order = e == 0 ? 0 : e == 1 ? 2 : random() % 3;
      std::string index, codes, scales;
      for (int64_t k = 0; k < kK; ++k)
        append(index, static_cast<int32_t>(order == 0   ? k / (kK / kGroups)
                                           : order == 1 ? k % kGroups
                                                        : static_cast<int64_t>(random() % kGroups)));
      for (int64_t i = 0; i < kK / 8 * kN; ++i) append(codes, static_cast<uint32_t>(random()));
      for (int64_t i = 0; i < kGroups * kN; ++i) append(scales, static_cast<uint16_t>(0x3000 + random() % 0x800));
      add(tensors, {{name + ".qweight", "I32", "32,72", codes},
                    {name + ".scales", "F16", "16,72", scales},
                    {name + ".qzeros", "I32", "16,9", std::string(16 * 9 * 4, '\x87')},
                    {name + ".g_idx", "I32", "256", index}});
    }
    const marlin_checkpoint checkpoint(
        opened(tensors, R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":16}})"));
    ASSERT_EQ(checkpoint.files->layer_count(), 1u);
    const char* const layers[] = {"experts.w"};
    auto load = metal_marlin::make<marlin_load_desc>();
    load.layers = layers;
    load.layer_count = 1;
    metal_marlin::weights weights;
    EXPECT_OK(marlin_weights_load, context.get(), &checkpoint, &load, weights.out());
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<int32_t>(random() % experts));
    abi_test::Product product(weights, kTokens);
    product.desc.expert_ids = matrix_view(ids.data(), kTokens, 1);
    const guarded::Stream stream(context.get(), product.desc, kTokens);
    EXPECT_OK(marlin_gemm, stream.get(), &product.desc);
    for (int64_t t = 0; t < kTokens; ++t) {
      const auto w = decode_all(*checkpoint.files->source(0, static_cast<uint32_t>(ids[t]), {}).value()).value();
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < kK; ++k) {
          const double term = double{product.a[t * kK + k]} * double{w[n * kK + k]};
          sum += term;
          size += std::fabs(term);
        }
        ASSERT_NEAR(product.c[t * kN + n], sum, 1e-5 * size) << "expert " << ids[t] << " of " << experts;
      }
    }
  }
}

/// Converting writes the experts as they were stored, so that other readers find the names that they know.
TEST(CheckpointExperts, AreConvertedOneByOne) {
  std::vector<TestTensor> tensors;
  for (int e = 0; e < 2; ++e) {
    tensors.push_back(
        {expert(std::to_string(e)) + ".weight", "F32", "32,64", random_floats(32, 64, "F32", static_cast<uint32_t>(e))});
  }
  const ScratchFolder scratch;
  write_file(scratch.at("in.safetensors"), safetensors(tensors));
  const auto input = must(Checkpoint::open(scratch.at("in.safetensors"), MARLIN_LAYOUT_AUTO));
  ASSERT_EQ(input->layer_count(), 1u);
  ConvertOptions options;
  options.format = MARLIN_FORMAT_INT4;
  options.group_size = 32;
  options.scheme = MARLIN_SCHEME_COMPRESSED_TENSORS;
  options.layers = input->singles_of(0);
  EXPECT_EQ(options.layers, (std::vector<size_t>{0, 1}));
  const Status status = convert_checkpoint(input->singles(), scratch.at("out"), options);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto output = must(Checkpoint::open(scratch.at("out"), MARLIN_LAYOUT_AUTO));
  EXPECT_TRUE(output->tensor(expert("1") + ".weight_packed").ok());
  ASSERT_EQ(output->layer_count(), 1u);
  const Layer layer = output->layers()[0];
  EXPECT_TRUE(layer.status.ok()) << layer.status.message();
  EXPECT_EQ(layer.name, "m.0.mlp.experts.up_proj");
  EXPECT_EQ(layer.experts, 2u);
  EXPECT_EQ(layer.format, MARLIN_FORMAT_INT4);
}

}  // namespace
}  // namespace metal_marlin::testing
