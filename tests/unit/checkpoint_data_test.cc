// The checkpoints of tests/data, written by the tools that people write them with, decode to their true values bit for bit.
#include "checkpoint_files.h"
#include "fails.h"
#include "formats/format_table.h"
#include "layouts/source.h"
#include "sources/concat.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

struct DataRow {
  const char* name;
  size_t layers;
  marlin_format format;
  marlin_layout layout;
  int64_t group_size;
  uint32_t flags;
};
void PrintTo(const DataRow& f, std::ostream* out) { *out << f.name; }

constexpr uint32_t kZeros = MARLIN_LAYER_ZEROS, kActOrder = MARLIN_LAYER_ACT_ORDER, kAdditive = MARLIN_PACK_ADDITIVE_ZEROS,
                   kSparse = MARLIN_LAYER_SPARSE_2_4;

constexpr DataRow kFolders[] = {
    {"awq-gemm-g128", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_AWQ, 128, kZeros},
    {"awq-gemv-fast-g128", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_AWQ_GEMV_FAST, 128, kAdditive},
    {"awq-gemv-g64", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_AWQ_GEMV, 64, kZeros},
    {"ct-int4-asym-g32", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 32, kZeros},
    {"ct-int4-sym-channel", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 320, 0},
    {"ct-int4-sym-g128", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 128, 0},
    {"ct-int4-sym-g64-actorder", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 64, kActOrder},
    {"ct-int8-channel", 1, MARLIN_FORMAT_INT8, MARLIN_LAYOUT_ROWS, 96, 0},
    {"bnb-fp4-b64", 1, MARLIN_FORMAT_CODEBOOK4, MARLIN_LAYOUT_ROWS, 64, 0},
    {"bnb-nf4-b64", 1, MARLIN_FORMAT_NF4, MARLIN_LAYOUT_ROWS, 32, 0},
    {"ct-fp8-block128", 1, MARLIN_FORMAT_FP8, MARLIN_LAYOUT_ROWS, 128, 0},
    {"ct-fp8-channel", 1, MARLIN_FORMAT_FP8, MARLIN_LAYOUT_ROWS, 160, 0},
    {"ct-fp8-tensor", 1, MARLIN_FORMAT_FP8, MARLIN_LAYOUT_ROWS, 128, 0},
    {"ct-mxfp8", 1, MARLIN_FORMAT_FP8, MARLIN_LAYOUT_ROWS, 32, 0},
    {"ct-pack8-asym-g32", 1, MARLIN_FORMAT_UINT8, MARLIN_LAYOUT_ROWS, 32, kZeros},
    {"fp8-ue8m0-block32", 1, MARLIN_FORMAT_FP8, MARLIN_LAYOUT_ROWS, 32, 0},
    {"gptq-8bit-v2-asym-g32", 1, MARLIN_FORMAT_UINT8, MARLIN_LAYOUT_GPTQ_V2, 32, kZeros},
    {"mlx-affine-8bit-g32", 1, MARLIN_FORMAT_UINT8, MARLIN_LAYOUT_ROWS, 32, kAdditive},
    {"mlx-mxfp8-g32", 1, MARLIN_FORMAT_FP8, MARLIN_LAYOUT_ROWS, 32, 0},
    {"ct-pack3-dense-asym-g32", 1, MARLIN_FORMAT_INT3, MARLIN_LAYOUT_ROWS, 32, kZeros},
    {"ct-pack3-padded-sym-g32", 1, MARLIN_FORMAT_INT3, MARLIN_LAYOUT_ROWS, 32, 0},
    {"ct-pack8-sym-channel", 1, MARLIN_FORMAT_INT8, MARLIN_LAYOUT_ROWS, 130, 0},
    {"ct-mxfp4", 1, MARLIN_FORMAT_MXFP4, MARLIN_LAYOUT_ROWS, 32, 0},
    {"ct-nvfp4", 1, MARLIN_FORMAT_NVFP4, MARLIN_LAYOUT_ROWS, 16, MARLIN_PACK_DIVIDE_SCALE},
    {"gptq-2bit-v1-asym-g64-own-files", 1, MARLIN_FORMAT_INT2, MARLIN_LAYOUT_GPTQ_V1, 64, kZeros},
    {"gptq-2bit-v2-asym-column", 1, MARLIN_FORMAT_INT2, MARLIN_LAYOUT_GPTQ_V2, 96, kZeros},
    {"gptq-3bit-v1-asym-g64-actorder", 1, MARLIN_FORMAT_INT3, MARLIN_LAYOUT_GPTQ_V1, 64, kZeros | kActOrder},
    {"gptq-3bit-v2-asym-g32", 1, MARLIN_FORMAT_INT3, MARLIN_LAYOUT_GPTQ_V2, 32, kZeros},
    {"gptq-8bit-v1-sym-g128", 1, MARLIN_FORMAT_INT8, MARLIN_LAYOUT_GPTQ_V1, 128, 0},
    {"gptq-v1-asym-g64-actorder", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_GPTQ_V1, 64, kZeros | kActOrder},
    {"gptq-v1-sym-column", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_GPTQ_V1, 288, 0},
    {"gptq-v1-sym-g128", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_GPTQ_V1, 128, 0},
    {"gptq-v2-asym-g32", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_GPTQ_V2, 32, kZeros},
    {"hqq-4bit-g128-axis1", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 128, kAdditive},
    {"hqq-4bit-g64-axis1", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 64, kAdditive},
    {"bnb-fp4-b128-double", 1, MARLIN_FORMAT_CODEBOOK4, MARLIN_LAYOUT_ROWS, 32, 0},
    {"bnb-nf4-b64-bf16-storage", 1, MARLIN_FORMAT_NF4, MARLIN_LAYOUT_ROWS, 64, 0},
    {"torchao-int4-plain", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 64, kAdditive},
    {"torchao-intx-int4", 1, MARLIN_FORMAT_UINT8, MARLIN_LAYOUT_ROWS, 32, kZeros},
    {"ct-marlin-24-channel", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_MARLIN_24, 256, kSparse},
    {"ct-marlin-24-g128", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_MARLIN_24, 128, kSparse},
    {"marlin-column", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_MARLIN, 128, 0},
    {"marlin-g128", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_MARLIN, 128, 0},
    {"mlx-affine-g32", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 32, kAdditive},
    {"mlx-affine-g64", 1, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_ROWS, 64, kAdditive},
    {"mlx-affine-2bit-g64", 1, MARLIN_FORMAT_INT2, MARLIN_LAYOUT_ROWS, 64, kAdditive},
    {"mlx-affine-3bit-g32", 1, MARLIN_FORMAT_INT3, MARLIN_LAYOUT_ROWS, 32, kAdditive},
    {"mlx-affine-5bit-g128", 1, MARLIN_FORMAT_INT5, MARLIN_LAYOUT_ROWS, 128, kAdditive},
    {"mlx-affine-6bit-g64", 1, MARLIN_FORMAT_INT6, MARLIN_LAYOUT_ROWS, 64, kAdditive},
    {"mlx-mxfp4-g32", 1, MARLIN_FORMAT_MXFP4, MARLIN_LAYOUT_ROWS, 32, 0},
    {"mlx-nvfp4-g16", 1, MARLIN_FORMAT_NVFP4, MARLIN_LAYOUT_ROWS, 16, 0},
    {"mxfp4-quark", 1, MARLIN_FORMAT_MXFP4, MARLIN_LAYOUT_ROWS, 32, 0},
    {"nvfp4-modelopt", 2, MARLIN_FORMAT_NVFP4, MARLIN_LAYOUT_ROWS, 16, 0},
    {"sharded-gptq", 3, MARLIN_FORMAT_INT4, MARLIN_LAYOUT_GPTQ_V1, 32, 0},
};

std::unique_ptr<Checkpoint> open_data(const std::string& name) {
  SCOPED_TRACE(name);
  return must(Checkpoint::open(data_path(name), MARLIN_LAYOUT_AUTO));
}

/// The true values of one layer (of one expert).
std::vector<float> true_values(const std::string& folder, const std::string& layer, uint32_t expert, int64_t n, int64_t k) {
  const auto decoded = must(Checkpoint::open(data_path(folder) + "/decoded.safetensors", MARLIN_LAYOUT_AUTO));
  const auto tensor = must(decoded->tensor(layer));
  std::vector<float> values(static_cast<size_t>(n * k));
  const uint64_t bytes = values.size() * sizeof(float);
  EXPECT_LE((expert + 1) * bytes, tensor.bytes);
  std::memcpy(values.data(), tensor.data + expert * bytes, bytes);
  return values;
}

/// Where two matrices of floats differ in any bit, in words; "" when they do not.
std::string difference(const std::vector<float>& found, const std::vector<float>& expected, int64_t k) {
  if (found.size() != expected.size()) return "sizes differ";
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<uint32_t>(found[i]) != std::bit_cast<uint32_t>(expected[i])) {
      std::ostringstream text;
      text << "[" << i / static_cast<size_t>(k) << ", " << i % static_cast<size_t>(k) << "]: expected " << expected[i]
           << ", found " << found[i];
      return text.str();
    }
  }
  return "";
}

void expect_true_values(const std::string& folder, const Checkpoint& checkpoint, size_t index) {
  const Layer& layer = checkpoint.layers()[index];
  ASSERT_TRUE(layer.status.ok()) << layer.status.message();
  for (uint32_t e = 0; e < layer.experts; ++e) {
    const auto expected = true_values(folder, layer.name, e, layer.n, layer.k);
    const auto source = must(checkpoint.source(index, e, {}));
    for (const int64_t stripe : {int64_t{1}, int64_t{7}, int64_t{64}, layer.n}) {
      const auto found = must(decode_all(*source, stripe));
      EXPECT_EQ(difference(found, expected, layer.k), "") << layer.name << " expert " << e << " stripe " << stripe;
    }
  }
}

class DataFolder : public ::testing::TestWithParam<DataRow> {};

TEST_P(DataFolder, DecodesBitForBit) {
  const DataRow& folder = GetParam();
  const auto checkpoint = open_data(folder.name);
  ASSERT_EQ(checkpoint->layers().size(), folder.layers);
  for (size_t i = 0; i < folder.layers; ++i) {
    const Layer& layer = checkpoint->layers()[i];
    SCOPED_TRACE(layer.name);
    EXPECT_EQ(layer.format, folder.format);
    EXPECT_EQ(layer.layout, folder.layout);
    EXPECT_EQ(layer.group_size, folder.group_size);
    EXPECT_EQ(layer.flags, folder.flags);
    EXPECT_EQ(layer.experts, 1u);
    const bool sparse = (layer.flags & MARLIN_LAYER_SPARSE_2_4) != 0;  // 3 bits per weight instead of 4
    const int bits = format_row(folder.format)->code_bits;
    EXPECT_GT(layer.bytes, static_cast<uint64_t>(layer.n * layer.k / 8 * (sparse ? 3 : bits)));
    expect_true_values(folder.name, *checkpoint, i);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DataFolder, ::testing::ValuesIn(kFolders), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(CheckpointData, GptOssExpertStacks) {
  for (const auto& [folder, experts] : {std::pair{"mxfp4-gpt-oss-experts", 4u}, {"mxfp4-gpt-oss-original", 3u}}) {
    SCOPED_TRACE(folder);
    const auto checkpoint = open_data(folder);
    size_t stacks = 0;
    for (size_t i = 0; i < checkpoint->layers().size(); ++i) {
      const Layer& layer = checkpoint->layers()[i];
      if (layer.format == MARLIN_FORMAT_NONE) continue;  // the router
      ++stacks;
      EXPECT_EQ(layer.experts, experts);
      EXPECT_EQ(layer.format, MARLIN_FORMAT_MXFP4);
      const bool gate_up = layer.name.ends_with("gate_up_proj") || layer.name.ends_with("mlp1_weight");
      EXPECT_EQ(layer.flags, gate_up ? MARLIN_PACK_GATE_UP_INTERLEAVED : 0u);
      expect_true_values(folder, *checkpoint, i);
      EXPECT_EQ(checkpoint->source(i, experts, {}).status().code(), MARLIN_E_ARGUMENT);
    }
    EXPECT_EQ(stacks, 2u);
  }
}

TEST(CheckpointData, GgufMixed) {
  const auto checkpoint = open_data("gguf-mixed");
  const std::pair<const char*, marlin_format> expected[] = {
      {"blk.0.ffn_down.weight", MARLIN_FORMAT_INT4},  {"blk.1.ffn_down.weight", MARLIN_FORMAT_INT4},
      {"blk.2.ffn_down.weight", MARLIN_FORMAT_INT8},  {"blk.3.ffn_down.weight", MARLIN_FORMAT_MXFP4},
      {"blk.4.ffn_down.weight", MARLIN_FORMAT_NVFP4},
  };
  for (const auto& [name, format] : expected) {
    const size_t i = find_layer(*checkpoint, name);
    ASSERT_NE(i, SIZE_MAX) << name;
    EXPECT_EQ(checkpoint->layers()[i].format, format) << name;
    EXPECT_EQ(checkpoint->layers()[i].layout, MARLIN_LAYOUT_GGUF);
    expect_true_values("gguf-mixed", *checkpoint, i);
  }
  const size_t experts = find_layer(*checkpoint, "blk.9.ffn_up_exps.weight");
  ASSERT_NE(experts, SIZE_MAX);
  EXPECT_EQ(checkpoint->layers()[experts].experts, 3u);
  expect_true_values("gguf-mixed", *checkpoint, experts);

  const size_t floats = find_layer(*checkpoint, "output.weight");
  ASSERT_NE(floats, SIZE_MAX);
  EXPECT_EQ(checkpoint->layers()[floats].format, MARLIN_FORMAT_NONE);
  EXPECT_EQ(checkpoint->layers()[floats].dtype, MARLIN_F16);
  const auto kept = must(checkpoint->source(floats, 0, {}));
  EXPECT_EQ(kept->meta().format, MARLIN_FORMAT_FLOAT16);
  EXPECT_TRUE(checkpoint->source(floats, 0, {MARLIN_FORMAT_NVFP4}).ok());
}

/// Folders whose layers have several formats: every layer that is quantized is read, with its true values.
TEST(CheckpointData, LayersOfSeveralFormats) {
  const std::pair<const char*, size_t> folders[] = {{"gguf-kquants", 9},
                                                    {"gguf-kquants-extreme", 9},
                                                    {"gguf-experts-q4k", 3},
                                                    {"gguf-llama-q4km", 8},
                                                    {"gguf-split", 3},
                                                    {"mlx-mixed-3-6", 9},
                                                    {"mlx-mixed-modes", 8},
                                                    {"fp8-deepseek-block128", 3},
                                                    {"qwen3moe-gptq-experts", 3},
                                                    {"bnb-llama-nf4-double", 7},
                                                    {"bnb-nf4-b64-double", 1},
                                                    {"bnb-nf4-b128-double", 1}};
  for (const auto& [folder, quantized] : folders) {
    SCOPED_TRACE(folder);
    const auto checkpoint = open_data(folder);
    size_t read = 0;
    for (size_t i = 0; i < checkpoint->layers().size(); ++i) {
      const Layer& layer = checkpoint->layers()[i];
      if (!layer.status.ok() || layer.format == MARLIN_FORMAT_NONE) continue;
      ++read;
      expect_true_values(folder, *checkpoint, i);
    }
    EXPECT_EQ(read, quantized);
  }
}

TEST(CheckpointData, FloatsAreListedAndQuantized) {
  const std::pair<const char*, marlin_dtype> folders[] = {
      {"float-f32", MARLIN_F32}, {"float-f16", MARLIN_F16}, {"float-bf16", MARLIN_BF16}};
  for (const auto& [name, dtype] : folders) {
    SCOPED_TRACE(name);
    const auto checkpoint = open_data(name);
    ASSERT_EQ(checkpoint->layers().size(), 1u);
    const Layer& layer = checkpoint->layers()[0];
    EXPECT_EQ(layer.name, "encoder.layer.0.attention.self.query");
    EXPECT_EQ(layer.format, MARLIN_FORMAT_NONE);
    EXPECT_EQ(layer.dtype, dtype);
    EXPECT_EQ(layer.n, 96);
    EXPECT_EQ(layer.k, 384);
    const auto expected = true_values(name, layer.name, 0, layer.n, layer.k);
    for (const marlin_format format :
         {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT8}) {
      const auto source = must(checkpoint->source(0, 0, {format}));
      const auto found = must(decode_all(*source));
      double error = 0, square = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        error += (found[i] - expected[i]) * (found[i] - expected[i]);
        square += expected[i] * expected[i];
      }
      EXPECT_LT(error / square, format == MARLIN_FORMAT_INT8 ? 1e-4 : 0.03) << "format " << format;
    }
    EXPECT_TRUE(checkpoint->tensor(layer.name + ".bias").ok());
  }
}

TEST(CheckpointData, PrunedFloatsAreQuantizedWithTheirPattern) {
  const char* const folder = "ct-sparse-24-bitmask";
  const auto checkpoint = open_data(folder);
  ASSERT_EQ(checkpoint->layers().size(), 1u);
  const Layer& layer = checkpoint->layers()[0];
  ASSERT_TRUE(layer.status.ok()) << layer.status.message();
  EXPECT_EQ(layer.name, "model.layers.0.mlp.down_proj");
  EXPECT_EQ(layer.format, MARLIN_FORMAT_NONE);
  EXPECT_EQ(layer.dtype, MARLIN_BF16);
  EXPECT_EQ(layer.flags, MARLIN_LAYER_SPARSE_2_4);
  EXPECT_EQ(layer.n, 64);
  EXPECT_EQ(layer.k, 256);
  EXPECT_EQ(layer.bytes, 64u * 128 * 2 + 64 * 32);
  EXPECT_EQ(checkpoint->source(0, 0, {}).status().code(), MARLIN_E_UNSUPPORTED);
  const auto truth = true_values(folder, layer.name, 0, layer.n, layer.k);
  const auto bitmask = must(checkpoint->tensor(layer.name + ".bitmask"));
  // The same floats without a pattern: scales and codes must not depend on it.
  LayoutOperands dense;
  dense.n = layer.n;
  dense.k = layer.k;
  dense.values = checkpoint->tensor(layer.name + ".compressed").value();
  dense.values.dtype = MARLIN_F32;
  dense.values.dims = {layer.n, layer.k};
  dense.values.row_stride = layer.k;
  dense.values.data = reinterpret_cast<const std::byte*>(truth.data());
  for (const marlin_format format :
       {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT8}) {
    SCOPED_TRACE(format);
    const auto source = must(checkpoint->source(0, 0, {format}));
    EXPECT_EQ(source->meta().sparse, format != MARLIN_FORMAT_INT8) << "INT8 has no sparse form";
    dense.format = format;
    const auto found = decode_all(*source), expected = decode_all(*make_source(dense).value());
    ASSERT_TRUE(found.ok() && expected.ok());
    for (size_t i = 0; i < truth.size(); ++i) ASSERT_EQ(found.value()[i], expected.value()[i]) << i;
    if (format == MARLIN_FORMAT_INT8) continue;
    Stripe stripe;
    ASSERT_TRUE(source->read(0, layer.n, stripe).ok());
    for (size_t b = 0; b < stripe.kept.size(); ++b) {
      ASSERT_EQ(stripe.kept[b], std::to_integer<unsigned>(bitmask.data[b / 2]) >> b % 2 * 4 & 15u) << b;
    }
  }
}

TEST(CheckpointData, LayerListsAgreeWithTheDecodedFiles) {
  for (const auto& entry : std::filesystem::directory_iterator(MARLIN_TEST_DATA)) {
    if (!entry.is_directory()) continue;
    const std::string folder = entry.path().filename().string();
    SCOPED_TRACE(folder);
    const auto checkpoint = open_data(folder);
    auto decoded = must(Checkpoint::open(data_path(folder) + "/decoded.safetensors", MARLIN_LAYOUT_AUTO));
    for (const Layer& layer : checkpoint->layers()) {
      const bool known = layer.format != MARLIN_FORMAT_NONE || folder.starts_with("float-") || folder == "gguf-floats";
      if (!known || !layer.status.ok()) continue;
      EXPECT_TRUE(decoded->tensor(layer.name).ok()) << layer.name;
    }
  }
}

TEST(CheckpointData, ShardsAreTheSamePartsOfTheMatrix) {
  struct Cut {
    int64_t first_n, count_n, first_k, count_k;
  };
  constexpr Cut kCuts[] = {{0, 16, 0, 64}, {16, 16, 128, 128}, {3, 5, 0, 1}, {1, 1, 100, 37}, {8, 24, 65, 64}, {0, 48, 17, 31}};
  for (const DataRow& folder : kFolders) {
    SCOPED_TRACE(folder.name);
    const auto checkpoint = open_data(folder.name);
    const Layer& layer = checkpoint->layers()[0];
    const auto whole = true_values(folder.name, layer.name, 0, layer.n, layer.k);
    for (const Cut& cut : kCuts) {
      if (cut.first_k + cut.count_k > layer.k || cut.first_n + cut.count_n > layer.n) continue;
      auto source = must(checkpoint->source(0, 0, {}));
      const auto shard = make_shard(std::move(source), cut.first_n, cut.count_n, cut.first_k, cut.count_k);
      const bool aligned = layer.group_size == layer.k || cut.first_k % layer.group_size == 0;
      const bool whole_blocks = cut.first_k % 4 == 0 && cut.count_k % 4 == 0;
      if ((layer.flags & kSparse) != 0 && !(aligned && whole_blocks)) {
        EXPECT_EQ(shard.status().code(), MARLIN_E_SHAPE) << shard.status().message();
        continue;
      }
      ASSERT_TRUE(shard.ok()) << shard.status().message();
      const WeightMeta& meta = shard.value()->meta();
      const bool one_group = cut.first_k / layer.group_size == (cut.first_k + cut.count_k - 1) / layer.group_size;
      const bool act_order = (layer.flags & MARLIN_LAYER_ACT_ORDER) != 0;
      if (act_order || (!aligned && !one_group)) EXPECT_FALSE(meta.group_index.empty());
      if (!act_order && aligned) EXPECT_TRUE(meta.group_index.empty());
      std::vector<float> expected;
      for (int64_t n = cut.first_n; n < cut.first_n + cut.count_n; ++n) {
        const auto row = whole.begin() + n * layer.k + cut.first_k;
        expected.insert(expected.end(), row, row + cut.count_k);
      }
      const auto found = must(decode_all(*shard.value(), 3));
      EXPECT_EQ(difference(found, expected, cut.count_k), "");
    }
  }
}

TEST(CheckpointData, LayersWithDifferentTensorScalesConcatenate) {
  const auto checkpoint = open_data("nvfp4-modelopt");
  std::vector<std::unique_ptr<WeightSource>> parts;
  std::vector<float> expected;
  for (size_t i = 0; i < 2; ++i) {
    const Layer& layer = checkpoint->layers()[i];
    auto source = must(checkpoint->source(i, 0, {}));
    parts.push_back(std::move(source));
    const auto values = true_values("nvfp4-modelopt", layer.name, 0, layer.n, layer.k);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  auto both = must(make_concat(std::move(parts)));
  EXPECT_EQ(both->meta().n, 160);
  EXPECT_EQ(both->meta().tensor_scales.size(), 2u);
  for (const int64_t stripe : {1, 64, 160}) {
    const auto found = must(decode_all(*both, stripe));
    EXPECT_EQ(difference(found, expected, 240), "");
  }
  const auto middle = must(make_shard(std::move(both), 70, 20, 0, 240));
  EXPECT_EQ(middle->meta().tensor_scales.size(), 2u);
  EXPECT_EQ(middle->meta().tensor_scales[1].first_row, 10);
  const auto found = must(decode_all(*middle));
  EXPECT_EQ(difference(found, {expected.begin() + 70 * 240, expected.begin() + 90 * 240}, 240), "");
}

TEST(CheckpointData, TensorsAreBorrowed) {
  const auto checkpoint = open_data("sharded-gptq");
  const auto norm = must(checkpoint->tensor("model.layers.2.input_layernorm.weight"));
  EXPECT_EQ(norm.dims, std::vector<int64_t>{128});
  EXPECT_EQ(norm.dtype, MARLIN_F16);
  EXPECT_EQ(norm.bytes, 256u);
  const auto none = checkpoint->tensor("model.norm");
  EXPECT_THAT(none.status(), Fails(MARLIN_E_NOT_FOUND, HasSubstr("model.norm")));
}

}  // namespace
}  // namespace metal_marlin::testing
