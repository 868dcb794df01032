// Opening: which layout a file has, what is listed, what odd bytes mean, and paths.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint_files.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

std::unique_ptr<Checkpoint> opened(std::initializer_list<std::pair<std::string, std::string>> files,
                                   marlin_layout layout = MARLIN_LAYOUT_AUTO) {
  return must(open_memory(files, layout));
}

std::string zeros(size_t bytes) { return std::string(bytes, '\0'); }

/// One layer `m.l` with tensors of these suffixes.
std::string gptq_file(const std::string& n, const std::string& k8, const std::string& groups, size_t nn, size_t kk, size_t gg) {
  return safetensors({{"m.l.qweight", "I32", k8 + "," + n, zeros(nn * kk / 2)},
                      {"m.l.qzeros", "I32", groups + "," + std::to_string(nn / 8), zeros(gg * nn / 2)},
                      {"m.l.scales", "F16", groups + "," + n, zeros(gg * nn * 2)}});
}
std::string awq_file() {  // N = 16, K = 32, one group
  return safetensors({{"m.l.qweight", "I32", "32,2", zeros(256)},
                      {"m.l.qzeros", "I32", "1,2", zeros(8)},
                      {"m.l.scales", "F16", "1,16", zeros(32)}});
}

TEST(CheckpointDetection, QweightFromConfigShapesOrTheCaller) {
  const std::string gptq = gptq_file("16", "4", "1", 16, 32, 1);
  struct Case {
    const char* about;
    std::string file, config;
    marlin_layout given, expected;
  };
  const std::string v2 =
      R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32,"checkpoint_format":"gptq_v2"}})";
  const std::string v1 = R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32}})";
  const std::string gemm = R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":32,"version":"GEMM"}})";
  const std::string inner = R"({"text_config":{"quantization_config":{"quant_method":"gptq","checkpoint_format":"gptq_v2"}}})";
  const Case cases[] = {
      {"no checkpoint_format is v1", gptq, v1, MARLIN_LAYOUT_AUTO, MARLIN_LAYOUT_GPTQ_V1},
      {"v2", gptq, v2, MARLIN_LAYOUT_AUTO, MARLIN_LAYOUT_GPTQ_V2},
      {"text_config", gptq, inner, MARLIN_LAYOUT_AUTO, MARLIN_LAYOUT_GPTQ_V2},
      {"the caller wins", gptq, v2, MARLIN_LAYOUT_GPTQ_V1, MARLIN_LAYOUT_GPTQ_V1},
      {"gemm in capitals", awq_file(), gemm, MARLIN_LAYOUT_AUTO, MARLIN_LAYOUT_AWQ},
      {"no config: shapes of AWQ", awq_file(), "{}", MARLIN_LAYOUT_AUTO, MARLIN_LAYOUT_AWQ},
      {"no config: the caller tells v1 from v2", gptq, "{}", MARLIN_LAYOUT_GPTQ_V1, MARLIN_LAYOUT_GPTQ_V1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.about);
    const auto checkpoint = opened({{"model.safetensors", c.file}, {"config.json", c.config}}, c.given);
    ASSERT_NE(checkpoint, nullptr);
    ASSERT_EQ(checkpoint->layers().size(), 1u);
    const Layer& layer = checkpoint->layers()[0];
    EXPECT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.layout, c.expected);
    EXPECT_EQ(layer.name, "m.l");
    EXPECT_EQ(layer.n, 16);
    EXPECT_EQ(layer.k, 32);
  }
}

TEST(CheckpointDetection, OtherConfigFiles) {
  const std::string file = gptq_file("16", "8", "2", 16, 64, 2);
  const auto v2 =
      opened({{"model.safetensors", file}, {"quantize_config.json", R"({"bits":4,"checkpoint_format":"gptq_v2"})"}});
  EXPECT_EQ(v2->layers()[0].layout, MARLIN_LAYOUT_GPTQ_V2);
  EXPECT_EQ(v2->layers()[0].group_size, 32) << "from the number of scales";
  const auto awq =
      opened({{"model.safetensors", awq_file()}, {"quant_config.json", R"({"w_bit":4,"q_group_size":32,"version":"GEMM"})"}});
  EXPECT_EQ(awq->layers()[0].layout, MARLIN_LAYOUT_AWQ);
  const auto other = opened({{"model.safetensors", file}, {"quantize_config.json", R"({"bits":8})"}});
  EXPECT_EQ(other->layers()[0].format, MARLIN_FORMAT_INT4) << "the tensors have the last word";
  const auto eight = opened({{"model.safetensors", awq_file()}, {"quant_config.json", R"({"w_bit":8,"version":"GEMM"})"}});
  EXPECT_THAT(eight->layers()[0].status, Fails(MARLIN_E_UNSUPPORTED, HasSubstr("expected codes of 4 bits, found 8 bits")));
  const auto unknown = opened(
      {{"model.safetensors", file}, {"config.json", R"({"quantization_config":{"quant_method":"awq","version":"odd"}})"}});
  EXPECT_THAT(unknown->layers()[0].status, Fails(MARLIN_E_UNSUPPORTED, HasSubstr("odd")));
}

TEST(CheckpointDetection, ConfigsThatAreMalformed) {
  const std::string file = gptq_file("16", "4", "1", 16, 32, 1);
  for (const char* config : {"", "{", "[1,2", R"({"a":NaNs})", "\xff"}) {
    const auto result = open_memory({{"model.safetensors", file}, {"config.json", config}});
    EXPECT_THAT(result.status(), Fails(MARLIN_E_FORMAT, HasSubstr("config.json: byte"))) << config;
  }
  // Not what is expected, but harmless.
  for (const char* config : {"[]", "7", R"({"a":1,"a":2})", R"({"quantization_config":7})",
                             R"({"quantization_config":{"bits":"4","group_size":[]}})",
                             R"({"quantization_config":{"bits":1e300,"group_size":-1,"config_groups":[1]}})"}) {
    EXPECT_TRUE(open_memory({{"model.safetensors", file}, {"config.json", config}}).ok()) << config;
  }
}

TEST(CheckpointDetection, MissingParts) {
  const auto expect_missing = [](const std::string& file, const char* part) {
    const auto checkpoint = opened({{"model.safetensors", file}});
    ASSERT_NE(checkpoint, nullptr);
    ASSERT_EQ(checkpoint->layers().size(), 1u) << part;
    const Status& status = checkpoint->layers()[0].status;
    EXPECT_THAT(status, Fails(MARLIN_E_NOT_FOUND, HasSubstr(part)));
    EXPECT_THAT(status.message(), HasSubstr("model.safetensors: byte"));
  };
  expect_missing(safetensors({{"a.qweight", "I32", "4,16", zeros(256)}, {"a.g_idx", "I32", "32", zeros(128)}}), "a.scales");
  expect_missing(safetensors({{"a.weight", "U32", "2,8", zeros(64)}}), "a.scales");
  expect_missing(safetensors({{"a_blocks", "U8", "1,2,1,16", zeros(32)}}), "a_scales");
  expect_missing(safetensors({{"a.weight_packed", "I32", "2,4", zeros(32)}}), "a.weight_scale");
  expect_missing(safetensors({{"a.weight_packed", "U8", "2,8", zeros(16)}, {"a.weight_scale", "F8_E4M3", "2,1", zeros(2)}}),
                 "a.weight_global_scale");
}

TEST(CheckpointDetection, MlxModes) {
  const auto file = [](const std::string& scales_type, const std::string& groups, size_t bytes, bool biases) {
    std::vector<TestTensor> tensors{{"m.weight", "U32", "2,8", zeros(64)},
                                    {"m.scales", scales_type, "2," + groups, zeros(bytes)}};
    if (biases) tensors.push_back({"m.biases", scales_type, "2," + groups, zeros(bytes)});
    return safetensors(tensors);
  };
  EXPECT_EQ(opened({{"model.safetensors", file("U8", "2", 4, false)}})->layers()[0].format, MARLIN_FORMAT_MXFP4);
  EXPECT_EQ(opened({{"model.safetensors", file("U8", "4", 8, false)}})->layers()[0].format, MARLIN_FORMAT_NVFP4);
  const auto affine = opened(
      {{"model.safetensors", file("BF16", "2", 8, true)}, {"config.json", R"({"quantization_config":{"group_size":32}})"}});
  EXPECT_EQ(affine->layers()[0].format, MARLIN_FORMAT_INT4);
  EXPECT_EQ(affine->layers()[0].group_size, 32);
  EXPECT_EQ(affine->layers()[0].dtype, MARLIN_BF16);
  const std::string config = R"({"quantization":{"group_size":32,"bits":4,"m":{"group_size":32,"bits":8}}})";
  const auto eight = opened({{"model.safetensors", file("F16", "1", 4, true)}, {"config.json", config}});
  EXPECT_EQ(eight->layers()[0].format, MARLIN_FORMAT_UINT8) << "this layer alone has 8 bits";
  const auto bytes = opened({{"model.safetensors", file("U8", "1", 2, false)}});
  EXPECT_EQ(bytes->layers()[0].format, MARLIN_FORMAT_FP8);
  EXPECT_EQ(bytes->layers()[0].k, 32);
  const auto odd =
      opened({{"model.safetensors", file("F16", "1", 4, false)}, {"config.json", R"({"quantization":{"mode":"mxfp8"}})"}});
  EXPECT_EQ(odd->layers()[0].status.code(), MARLIN_E_UNSUPPORTED);
}

TEST(CheckpointDetection, MlxScaleBytes) {
  std::string codes = zeros(16);
  codes[0] = 0x22;  // 1.0, 1.0
  codes[8] = 0x22;
  const auto value = [&](const std::string& type, const std::string& bytes) {
    const auto checkpoint = opened(
        {{"model.safetensors",
          safetensors({{"m.weight", "U32", "1,4", codes}, {"m.scales", "U8", "1," + std::to_string(bytes.size()), bytes}})}});
    EXPECT_EQ(checkpoint->layers()[0].format, type == "mxfp4" ? MARLIN_FORMAT_MXFP4 : MARLIN_FORMAT_NVFP4);
    return must(decode_all(*must(checkpoint->source(0, 0, {}))));
  };
  EXPECT_EQ(value("mxfp4", "\x80")[0], 2.0f);
  EXPECT_EQ(value("mxfp4", std::string(1, '\0'))[0], 0x1p-127f);
  EXPECT_EQ(value("mxfp4", "\xff")[0], INFINITY);
  EXPECT_EQ(value("nvfp4", "\x38\x7f")[0], 1.0f);
  EXPECT_EQ(value("nvfp4", "\x38\x7f")[16], 480.0f);
  EXPECT_EQ(value("nvfp4", "\x38\xff")[16], -480.0f);
  EXPECT_EQ(value("nvfp4", "\x7f\x01")[16], 0x1p-9f);
  EXPECT_EQ(value("nvfp4", "\x7f\xb8")[16], -1.0f);
}

TEST(CheckpointDetection, MlxExpertsAreStacks) {
  const auto checkpoint =
      opened({{"model.safetensors",
               safetensors({{"x.switch_mlp.up_proj.weight", "U32", "3,2,4", zeros(96)},
                            {"x.switch_mlp.up_proj.scales", "U8", "3,2,1", std::string("\x7f\x7f\x80\x80\x81\x81")}})}});
  const Layer& layer = checkpoint->layers()[0];
  ASSERT_TRUE(layer.status.ok()) << layer.status.message();
  EXPECT_EQ(layer.experts, 3u);
  for (uint32_t e = 0; e < 3; ++e) {
    Stripe stripe;
    ASSERT_TRUE(checkpoint->source(0, e, {}).value()->read(0, 2, stripe).ok());
    EXPECT_EQ(stripe.scales, std::vector<uint8_t>(2, static_cast<uint8_t>(0x7f + e)));
  }
}

TEST(CheckpointDetection, CompressedTensorsOptions) {
  // K = 20 is no multiple of 8: three words a row; groups of 16 and 4; a g_idx of -1 means none.
  std::string index;
  for (int i = 0; i < 20; ++i) append(index, int32_t{-1});
  const std::string packed = bytes_of<uint32_t>({0x76543210u, 0xfedcba98u, 0xffff3210u});
  const auto file = [&](const std::string& shape) {
    return safetensors({{"m.weight_packed", "I32", "1,3", packed},
                        {"m.weight_scale", "F32", "1,2", bytes_of<float>({1.0f, 2.0f})},
                        {"m.weight_zero_point", "I32", "1,2", bytes_of<uint32_t>({0xfffffff1u, 0xfffffff2u})},
                        {"m.weight_g_idx", "I32", "20", index},
                        {"m.weight_shape", "I64", "2", shape}});
  };
  const std::string config = R"({"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",
      "config_groups":{"a":{"weights":{"group_size":128}},"b":{"weights":{"group_size":16}}}}})";
  const auto checkpoint = opened({{"model.safetensors", file(bytes_of<int64_t>({1, 20}))}, {"config.json", config}});
  ASSERT_TRUE(checkpoint->layers()[0].status.ok()) << checkpoint->layers()[0].status.message();
  EXPECT_EQ(checkpoint->layers()[0].k, 20);
  EXPECT_EQ(checkpoint->layers()[0].group_size, 16);
  const auto source = must(checkpoint->source(0, 0, {}));
  EXPECT_TRUE(source->meta().group_index.empty());
  const auto values = decode_all(*source).value();
  EXPECT_EQ(values[0], -1.0f);
  EXPECT_EQ(values[15], 14.0f);
  EXPECT_EQ(values[16], -4.0f);
  EXPECT_EQ(values[19], 2.0f);
  const std::pair<std::string, marlin_status> shapes[] = {{bytes_of<int64_t>({1, 12}), MARLIN_E_SHAPE},
                                                          {bytes_of<int64_t>({2, 20}), MARLIN_E_FORMAT},
                                                          {bytes_of<int64_t>({1, 49}), MARLIN_E_FORMAT},
                                                          {bytes_of<int64_t>({1, -1}), MARLIN_E_FORMAT},
                                                          {bytes_of<int64_t>({1, INT64_MAX}), MARLIN_E_FORMAT}};
  for (const auto& [shape, code] : shapes) {
    const auto bad = opened({{"model.safetensors", file(shape)}, {"config.json", config}});
    EXPECT_EQ(bad->layers()[0].status.code(), code) << bad->layers()[0].status.message();
  }
}

TEST(CheckpointDetection, SymmetricGptqWithOtherZerosKeepsThem) {
  const std::string config =
      R"({"quantization_config":{"quant_method":"gptq","bits":4,"sym":true,"checkpoint_format":"gptq_v2"}})";
  for (const uint32_t zero : {0x88888888u, 0x88888788u}) {
    const auto checkpoint = opened(
        {{"model.safetensors",
          safetensors({{"m.qweight", "I32", "2,8", zeros(64)},
                       {"m.qzeros", "I32", "1,1", bytes_of({zero})},
                       {"m.scales", "F16", "1,8", std::string("\0\x3c\0\x3c\0\x3c\0\x3c\0\x3c\0\x3c\0\x3c\0\x3c", 16)}})},
         {"config.json", config}});
    const auto source = must(checkpoint->source(0, 0, {}));
    EXPECT_EQ(source->meta().zero_kind, zero == 0x88888888u ? ZeroKind::none : ZeroKind::integer);
    const auto values = decode_all(*source).value();
    EXPECT_EQ(values[0], -8.0f);
    EXPECT_EQ(values[2 * 16], zero == 0x88888888u ? -8.0f : -7.0f);
  }
}

TEST(CheckpointDetection, FloatsEightBitsAndOthers) {
  const auto checkpoint = opened({{"model.safetensors", safetensors({{"norm.weight", "F32", "4", zeros(16)},
                                                                     {"conv.weight", "F32", "2,1,2", zeros(16)},
                                                                     {"x.experts.up.weight", "BF16", "2,1,2", zeros(8)},
                                                                     {"fp8.weight", "F8_E4M3", "2,2", zeros(4)},
                                                                     {"lin.weight", "F16", "1,2", zeros(4)},
                                                                     {"lin.bias", "F16", "1", zeros(2)}})}});
  ASSERT_EQ(checkpoint->layers().size(), 4u);
  EXPECT_EQ(checkpoint->layers()[0].name, "conv");
  EXPECT_THAT(checkpoint->layers()[0].status.message(), HasSubstr("no reader takes floats, F32 in 3 dimensions"));
  EXPECT_EQ(checkpoint->layers()[1].name, "x.experts.up");
  EXPECT_EQ(checkpoint->layers()[1].experts, 2u);
  EXPECT_EQ(checkpoint->layers()[2].name, "fp8");
  EXPECT_TRUE(checkpoint->layers()[2].status.ok()) << "no scale and no config: a cast";
  EXPECT_EQ(checkpoint->layers()[3].name, "lin");
  EXPECT_EQ(checkpoint->layers()[3].format, MARLIN_FORMAT_NONE);
}

TEST(CheckpointDetection, GgufTypesThatAreNotReadAreListed) {
  GgufWriter writer;
  writer.tensor("blk.0.q.weight", {256, 2}, 21, zeros(220));  // IQ3_S
  writer.tensor("blk.0.norm.weight", {256}, 0, zeros(1024));
  writer.tensor("blk.0.k.weight", {32, 1}, 3, zeros(20));  // Q4_1 with a scale: two zeros' worth of rounding
  writer.tensor("blk.0.k.scale", {1}, 0, zeros(4));
  const auto checkpoint = opened({{"model.gguf", writer.file()}});
  ASSERT_NE(checkpoint, nullptr);
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  EXPECT_THAT(checkpoint->layers()[0].status, Fails(MARLIN_E_UNSUPPORTED, HasSubstr("IQ3_S")));
  EXPECT_EQ(checkpoint->layers()[1].status.code(), MARLIN_E_UNSUPPORTED);
}

TEST(CheckpointDetection, GgufExpertsHaveTheirOwnScales) {
  std::string blocks;
  for (int e = 0; e < 2; ++e) {
    std::string block = zeros(36);
    std::fill_n(block.begin(), 4, '\x38');
    block[4] = 0x22;
    blocks += block;
  }
  GgufWriter writer;
  writer.tensor("blk.0.up_exps.weight", {64, 1, 2}, 40, blocks);
  writer.tensor("blk.0.up_exps.scale", {2}, 0, bytes_of<float>({3.0f, 5.0f}));
  const auto checkpoint = opened({{"model.gguf", writer.file()}});
  ASSERT_TRUE(checkpoint->layers()[0].status.ok()) << checkpoint->layers()[0].status.message();
  EXPECT_EQ(decode_all(*checkpoint->source(0, 0, {}).value()).value()[0], 3.0f);
  EXPECT_EQ(decode_all(*checkpoint->source(0, 1, {}).value()).value()[0], 5.0f);
}

// --- paths --------------------------------------------------------------------------------------------------------------

class CheckpointPaths : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/marlin-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
  }
  static Status open_status(const std::string& path) { return Checkpoint::open(path, MARLIN_LAYOUT_AUTO).status(); }
  std::string folder_;
};

TEST_F(CheckpointPaths, WhatTheSystemRefuses) {
  EXPECT_EQ(open_status(path("none.safetensors")).code(), MARLIN_E_FILE);
  EXPECT_EQ(open_status(path("none.safetensors")).native_code(), ENOENT);
  EXPECT_EQ(open_status("").code(), MARLIN_E_FILE);
  EXPECT_EQ(open_status(folder_).code(), MARLIN_E_FILE) << "an empty folder";
  ASSERT_EQ(::mkfifo(path("pipe.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(open_status(path("pipe.safetensors")).code(), MARLIN_E_FILE) << "and does not wait for a writer";
  EXPECT_EQ(open_status("/dev/null").code(), MARLIN_E_FILE);
  write("empty.safetensors", "");
  EXPECT_EQ(open_status(path("empty.safetensors")).code(), MARLIN_E_FORMAT);
  std::filesystem::create_directory(path("model.gguf"));
  EXPECT_EQ(open_status(folder_).native_code(), EISDIR);
  EXPECT_EQ(open_status(path("none.safetensors") + std::string("\0.gguf", 6)).code(), MARLIN_E_FILE);
  EXPECT_EQ(Checkpoint::open(data_path("float-f16"), 99).status().code(), MARLIN_E_ARGUMENT);
}

TEST_F(CheckpointPaths, WhichFileOfAFolder) {
  const std::string a = safetensors({{"a.weight", "F32", "1,1", zeros(4)}}),
                    b = safetensors({{"b.weight", "F32", "1,1", zeros(4)}});
  const auto first = [&] { return Checkpoint::open(folder_, MARLIN_LAYOUT_AUTO).value()->layers()[0].name; };
  write("x.safetensors", a);
  EXPECT_EQ(first(), "a") << "the only one";
  write("y.safetensors", b);
  EXPECT_EQ(open_status(folder_).code(), MARLIN_E_FILE) << "which?";
  write("gptq_model-4bit-128g.safetensors", a);
  EXPECT_EQ(first(), "a") << "the name that AutoGPTQ gives";
  write("gptq_model-2bit.safetensors", a);
  EXPECT_EQ(open_status(folder_).code(), MARLIN_E_FILE) << "which of the two?";
  write("model.safetensors", b);
  EXPECT_EQ(first(), "b");
  write("model.safetensors.index.json", R"({"weight_map":{"a.weight":"x.safetensors"}})");
  EXPECT_EQ(first(), "a") << "an index comes first";
}

TEST_F(CheckpointPaths, IndexThatPointsElsewhere) {
  write("a.safetensors", safetensors({{"a.weight", "F32", "1,1", zeros(4)}}));
  const auto status_of = [&](const std::string& index) {
    write("model.safetensors.index.json", index);
    return open_status(folder_);
  };
  for (const char* shard : {"../a.safetensors", "/etc/passwd", "x/a.safetensors", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    EXPECT_THAT(status_of(std::string(R"({"weight_map":{"a.weight":")") + shard + "\"}}"),
                Fails(MARLIN_E_FORMAT, HasSubstr("model.safetensors.index.json: byte")))
        << shard;
  }
  EXPECT_EQ(status_of(R"({"weight_map":{"a.weight":"none.safetensors"}})").native_code(), ENOENT);
  EXPECT_EQ(status_of(R"({"weight_map":{"b.weight":"a.safetensors"}})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"({"weight_map":{"a.weight":7}})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"({"weight_map":[]})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"({"weight_map":"a"})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"({"weight_map":{"a.weight":{}}})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"({"weight_map":{"a.weight":["a.safetensors"]}})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"({})").code(), MARLIN_E_FORMAT);
  EXPECT_EQ(status_of(R"([])").code(), MARLIN_E_FORMAT);
  EXPECT_TRUE(status_of(R"({"metadata":{"x":[1,{}]},"weight_map":{"a.weight":"a.safetensors"}})").ok());
  std::filesystem::copy_file(path("a.safetensors"), path("b.safetensors"));
  EXPECT_EQ(status_of(R"({"weight_map":{"a.weight":"a.safetensors","c":"b.safetensors"}})").code(), MARLIN_E_FORMAT)
      << "a tensor in two files";
}

TEST_F(CheckpointPaths, PagesGivenBackAreReadAgain) {
  std::string data = zeros(1 << 20);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  std::string scales(65536, '\x7f');
  write("model.safetensors", safetensors({{"m.weight", "U8", "64,16384", data}, {"m.weight_scale", "U8", "64,1024", scales}}));
  const auto checkpoint = must(Checkpoint::open(folder_, MARLIN_LAYOUT_AUTO));
  const auto once = decode_all(*checkpoint->source(0, 0, {}).value()).value();
  const auto again = decode_all(*checkpoint->source(0, 0, {}).value()).value();
  EXPECT_EQ(once, again);
}

}  // namespace
}  // namespace metal_marlin::testing
