// Files whose layers differ from each other: several config groups, ignored and excluded layers, experts in every form, and
// contradictions between config and tensors. Each layer says by its own tensors what it is.
#include "checkpoint_files.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

std::string fill(size_t bytes, char value = '\0') { return std::string(bytes, value); }
/// float16 ones.
std::string halves(size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) append<uint16_t>(out, 0x3c00);
  return out;
}

struct Expected {
  const char* name;
  marlin_status status;
  marlin_format format;
  int64_t group_size;
  uint32_t flags;
};

void expect_layers(const Checkpoint& checkpoint, std::initializer_list<Expected> expected) {
  EXPECT_EQ(checkpoint.layers().size(), expected.size());
  for (const Expected& e : expected) {
    SCOPED_TRACE(e.name);
    const size_t index = find_layer(checkpoint, e.name);
    ASSERT_NE(index, SIZE_MAX);
    const Layer& layer = checkpoint.layers()[index];
    EXPECT_EQ(layer.status.code(), e.status) << layer.status.message();
    if (e.status != MARLIN_OK) continue;
    EXPECT_EQ(layer.format, e.format);
    EXPECT_EQ(layer.group_size, e.group_size);
    EXPECT_EQ(layer.flags, e.flags);
    const auto source =
        must(checkpoint.source(index, 0, {e.format == MARLIN_FORMAT_NONE ? MARLIN_FORMAT_INT4 : MARLIN_FORMAT_NONE}));
    EXPECT_TRUE(decode_all(*source).ok());
  }
}

TEST(CheckpointMixed, CompressedTensorsWithSeveralGroupsAndIgnoredLayers) {
  const char* config = R"({"quantization_config":{"quant_method":"compressed-tensors","format":"mixed-precision",
    "ignore":["lm_head","re:.*gate$"],
    "config_groups":{
      "group_0":{"targets":["re:.*q_proj.*"],"format":"pack-quantized","weights":{"num_bits":4,"type":"int","group_size":128}},
      "group_1":{"targets":["re:.*(down|up)_proj","Linear"],"format":"pack-quantized","weights":{"num_bits":4,"group_size":32}},
      "group_2":{"targets":["m.v_proj"],"format":"nvfp4-pack-quantized","weights":{"num_bits":4,"type":"float","group_size":16}},
      "group_3":{"targets":["m.k_proj"],"format":"pack-quantized","weights":{"num_bits":8,"strategy":"channel"}},
      "group_4":{"targets":["m.x_proj"],"format":"float-quantized","weights":{"num_bits":8,"type":"float"}}}}})";
  const auto opened =
      open_memory({{"f.safetensors", safetensors({{"m.q_proj.weight_packed", "I32", "2,20", fill(160)},
                                                  {"m.q_proj.weight_scale", "F16", "2,2", halves(4)},
                                                  {"m.q_proj.weight_shape", "I64", "2", bytes_of<int64_t>({2, 160})},
                                                  {"m.down_proj.weight_packed", "I32", "2,20", fill(160)},
                                                  {"m.down_proj.weight_scale", "F16", "2,5", halves(10)},
                                                  {"m.v_proj.weight_packed", "U8", "2,16", fill(32)},
                                                  {"m.v_proj.weight_scale", "F8_E4M3", "2,2", fill(4, '\x38')},
                                                  {"m.v_proj.weight_global_scale", "F32", "1", bytes_of<float>({2})},
                                                  {"m.k_proj.weight_packed", "I32", "2,8", fill(64)},
                                                  {"m.k_proj.weight_scale", "F16", "2,1", halves(2)},
                                                  {"m.k_proj.weight_shape", "I64", "2", bytes_of<int64_t>({2, 32})},
                                                  {"m.x_proj.weight", "F8_E4M3", "2,32", fill(64)},
                                                  {"m.x_proj.weight_scale", "F32", "1", bytes_of<float>({1})},
                                                  {"m.gate.weight", "F16", "2,32", halves(64)},
                                                  {"lm_head.weight", "BF16", "2,32", fill(128)}})},
                   {"config.json", config}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  expect_layers(*opened.value(), {{"m.q_proj", MARLIN_OK, MARLIN_FORMAT_INT4, 128, 0},
                                  {"m.down_proj", MARLIN_OK, MARLIN_FORMAT_INT4, 32, 0},
                                  {"m.v_proj", MARLIN_OK, MARLIN_FORMAT_NVFP4, 16, MARLIN_PACK_DIVIDE_SCALE},
                                  {"m.k_proj", MARLIN_OK, MARLIN_FORMAT_INT8, 32, 0},
                                  {"m.x_proj", MARLIN_OK, MARLIN_FORMAT_FP8, 32, 0},
                                  {"m.gate", MARLIN_OK, MARLIN_FORMAT_NONE, 32, 0},
                                  {"lm_head", MARLIN_OK, MARLIN_FORMAT_NONE, 32, 0}});
}

TEST(CheckpointMixed, ModelOptWithExcludedAndOtherwiseQuantizedLayers) {
  const char* config = R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"MIXED_PRECISION",
    "exclude_modules":["lm_head","*.router*"],
    "quantized_layers":{"m.a":{"quant_algo":"NVFP4","group_size":16},"m.b":{"quant_algo":"FP8"},
                        "m.c":{"quant_algo":"W4A16_AWQ","group_size":128}}}})";
  const auto opened = open_memory({{"f.safetensors", safetensors({{"m.a.weight", "U8", "2,16", fill(32)},
                                                                  {"m.a.weight_scale", "F8_E4M3", "2,2", fill(4, '\x38')},
                                                                  {"m.a.weight_scale_2", "F32", "", bytes_of<float>({0.5f})},
                                                                  {"m.a.input_scale", "F32", "", bytes_of<float>({1})},
                                                                  {"m.b.weight", "F8_E4M3", "2,32", fill(64)},
                                                                  {"m.b.weight_scale", "F32", "", bytes_of<float>({1})},
                                                                  {"m.c.weight", "U8", "1,128", fill(128)},
                                                                  {"m.c.weight_scale", "F16", "2,1", halves(2)},
                                                                  {"m.router.weight", "F16", "2,32", halves(64)},
                                                                  {"lm_head.weight", "F32", "2,32", fill(256)}})},
                                   {"hf_quant_config.json", config}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  expect_layers(*opened.value(), {{"m.a", MARLIN_OK, MARLIN_FORMAT_NVFP4, 16, 0},
                                  {"m.b", MARLIN_OK, MARLIN_FORMAT_FP8, 32, 0},
                                  {"m.c", MARLIN_E_UNSUPPORTED, 0, 0, 0},
                                  {"m.router", MARLIN_OK, MARLIN_FORMAT_NONE, 32, 0},
                                  {"lm_head", MARLIN_OK, MARLIN_FORMAT_NONE, 32, 0}});
  EXPECT_THAT(opened.value()->layers()[find_layer(*opened.value(), "m.c")].status.message(), HasSubstr("F16 scales"));
}

TEST(CheckpointMixed, GptOssUnderItsOriginalNames) {
  std::string blocks = fill(2 * 4 * 2 * 16), scales = fill(2 * 4 * 2, '\x7f');
  blocks[4 * 2 * 16] = 0x72;  // expert 1, row 0: 1 and 6
  const auto opened =
      open_memory({{"f.safetensors", safetensors({{"block.3.mlp.mlp1_weight.blocks", "U8", "2,4,2,16", blocks},
                                                  {"block.3.mlp.mlp1_weight.scales", "U8", "2,4,2", scales},
                                                  {"block.3.mlp.mlp1_bias", "BF16", "2,4", fill(16)},
                                                  {"block.3.mlp.mlp2_weight.blocks", "U8", "2,4,2,16", blocks},
                                                  {"block.3.mlp.mlp2_weight.scales", "U8", "2,4,2", scales},
                                                  {"block.4.mlp.mlp2_weight.blocks", "U8", "2,4,2,16", blocks}})}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  expect_layers(*opened.value(),
                {{"block.3.mlp.mlp1_weight", MARLIN_OK, MARLIN_FORMAT_MXFP4, 32, MARLIN_PACK_GATE_UP_INTERLEAVED},
                 {"block.3.mlp.mlp2_weight", MARLIN_OK, MARLIN_FORMAT_MXFP4, 32, 0},
                 {"block.4.mlp.mlp2_weight", MARLIN_E_NOT_FOUND, 0, 0, 0}});
  EXPECT_EQ(opened.value()->layers()[0].experts, 2u);
  const auto source = must(opened.value()->source(0, 1, {}));
  const auto values = decode_all(*source);
  EXPECT_EQ(values.value()[0], 1.0f);
  EXPECT_EQ(values.value()[1], 6.0f);
}

TEST(CheckpointMixed, GgufExpertStacksWithAScaleAnExpert) {
  GgufWriter writer;
  std::string block = fill(36, '\x38');  // scales 1, codes 3 and 8
  writer.tensor("blk.0.ffn_up_exps.weight", {64, 1, 3}, 40, block + block + block);
  writer.tensor("blk.0.ffn_up_exps.scale", {3}, 0, bytes_of<float>({1, 2, 4}));
  const auto opened = must(open_memory({{"f.gguf", writer.file()}}));
  ASSERT_EQ(opened->layers().size(), 1u);
  EXPECT_EQ(opened->layers()[0].experts, 3u);
  for (uint32_t e = 0; e < 3; ++e) {
    const auto source = must(opened->source(0, e, {}));
    EXPECT_EQ(decode_all(*source).value()[8], 1.5f * static_cast<float>(1 << e)) << e;
  }
}

// --- contradictions ---------------------------------------------------------------------------------------------------------

struct Refused {
  const char* why;
  std::vector<TestTensor> tensors;
  marlin_status status;
  const char *tensor, *what;
};

TEST(CheckpointMixed, WhatIsWrongWithALayerNamesItsTensor) {
  const std::string meta = fill(4 * 128 * 2, '\x44');
  const Refused rows[] = {
      {"marlin-24 without scales",
       {{"l.weight_packed", "I32", "4,128", fill(2048)}, {"l.meta", "I16", "4,128", meta}},
       MARLIN_E_NOT_FOUND,
       "l.weight_packed",
       "l.scale_packed"},
      {"marlin-24 with metadata of another shape",
       {{"l.weight_packed", "I32", "4,128", fill(2048)},
        {"l.meta", "I16", "8,64", meta},
        {"l.scale_packed", "F16", "1,64", halves(64)}},
       MARLIN_E_SHAPE,
       "l.meta",
       "[4, 128]"},
      {"marlin-24 with metadata of another type",
       {{"l.weight_packed", "I32", "4,128", fill(2048)},
        {"l.meta", "I32", "4,64", meta},
        {"l.scale_packed", "F16", "1,64", halves(64)}},
       MARLIN_E_UNSUPPORTED,
       "l.meta",
       "I16"},
      {"marlin-24 of 8 bits",
       {{"l.weight_packed", "I32", "4,256", fill(4096)},
        {"l.meta", "I16", "4,128", meta},
        {"l.scale_packed", "F16", "1,64", halves(64)}},
       MARLIN_E_UNSUPPORTED,
       "l.weight_packed",
       "8 bits"},
      {"marlin-24 with an invalid nibble",
       {{"l.weight_packed", "I32", "4,128", fill(2048)},
        {"l.meta", "I16", "4,128", meta.substr(2) + "\x45\x44"},
        {"l.scale_packed", "F16", "1,64", halves(64)}},
       MARLIN_E_FORMAT,
       "l.meta",
       "found 5"},
      {"Marlin without a whole tile",
       {{"l.B", "I32", "1,64", fill(256)}, {"l.s", "F16", "1,32", halves(32)}},
       MARLIN_E_SHAPE,
       "l.B",
       "multiple of 64"},
      {"Marlin with groups that do not divide K",
       {{"l.B", "I32", "9,128", fill(4608)}, {"l.s", "F16", "5,64", halves(320)}},
       MARLIN_E_SHAPE,
       "l.s",
       "divisor of k = 144"},
      {"a bitmask of three in four",
       {{"l.compressed", "F16", "1,4", halves(4)}, {"l.bitmask", "U8", "1,1", "\x37"}},
       MARLIN_E_FORMAT,
       "l.bitmask",
       "row 0, block 0"},
      {"a bitmask that is too short",
       {{"l.compressed", "F16", "1,8", halves(8)}, {"l.bitmask", "U8", "1,1", "\x33"}},
       MARLIN_E_SHAPE,
       "l.bitmask",
       "[1, 2]"},
      {"a shape of another matrix",
       {{"l.compressed", "F16", "1,4", halves(4)},
        {"l.bitmask", "U8", "1,1", "\x33"},
        {"l.shape", "I64", "2,1", bytes_of<int64_t>({1, 16})}},
       MARLIN_E_FORMAT,
       "l.shape",
       "[1, 16]"},
      {"kept integers",
       {{"l.compressed", "I32", "1,4", fill(16)}, {"l.bitmask", "U8", "1,1", "\x33"}},
       MARLIN_E_UNSUPPORTED,
       "l.compressed",
       "dtype"},
      {"an odd number of kept floats",
       {{"l.compressed", "F16", "1,3", halves(3)}, {"l.bitmask", "U8", "1,1", "\x33"}},
       MARLIN_E_SHAPE,
       "l.compressed",
       "multiple of 4"},
      {"llm-awq without zeros",
       {{"l.qweight", "I16", "1,64", fill(128)}, {"l.scales", "F16", "1,4", halves(4)}},
       MARLIN_E_NOT_FOUND,
       "l.qweight",
       "l.qzeros"},
      {"a tensor scale of 0",
       {{"l.weight", "U8", "1,8", fill(8)},
        {"l.weight_scale", "F8_E4M3", "1,1", "\x38"},
        {"l.weight_scale_2", "F32", "", bytes_of<float>({0})}},
       MARLIN_E_FORMAT,
       "l.weight_scale_2",
       "other than 0"},
      {"an infinite tensor scale",
       {{"l.weight_packed", "U8", "1,8", fill(8)},
        {"l.weight_scale", "F8_E4M3", "1,1", "\x38"},
        {"l.weight_global_scale", "F32", "1", bytes_of<uint32_t>({0x7f800000u})}},
       MARLIN_E_FORMAT,
       "l.weight_global_scale",
       "found inf"},
      {"a group index below 0",
       {{"l.qweight", "I32", "1,8", fill(32)},
        {"l.scales", "F16", "1,8", halves(8)},
        {"l.g_idx", "I32", "8", bytes_of<int32_t>({0, 0, 0, 0, 0, -3, 0, 0})}},
       MARLIN_E_FORMAT,
       "l.g_idx",
       "entry 5"},
  };
  for (const Refused& row : rows) {
    SCOPED_TRACE(row.why);
    const auto opened = must(open_memory({{"f.safetensors", safetensors(row.tensors)}}));
    ASSERT_EQ(opened->layers().size(), 1u);
    const marlin_format format = opened->layers()[0].format == MARLIN_FORMAT_NONE ? MARLIN_FORMAT_INT4 : MARLIN_FORMAT_NONE;
    const auto source = opened->source(0, 0, {format});
    const Status status = source.ok() ? decode_all(*source.value()).status() : source.status();
    EXPECT_THAT(status,
                Fails(row.status, AllOf(HasSubstr("f.safetensors: byte "), HasSubstr(row.tensor), HasSubstr(row.what))));
  }
}

}  // namespace
}  // namespace metal_marlin::testing
