// metal-marlin quantize: what it writes, and that whatever goes wrong leaves the disk as it was.
#include "model_files.h"
#include "run_command.h"
#include "safetensors.h"
#include "test.h"
#include "tools/json.h"

namespace metal_marlin::test {
namespace {

namespace fs = std::filesystem;
using tools::Json;

constexpr const char* kLayer = "encoder.layer.0.attention.self.query";

/// A float16 model of random layers [n, k].
void write_model(const std::string& path, const std::vector<std::string>& layers, int64_t n, int64_t k) {
  std::vector<model_files::TestTensor> tensors;
  uint32_t seed = 1;
  for (const std::string& name : layers) {
    std::string bytes;
    for (int64_t i = 0; i < n * k; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const auto half = static_cast<uint16_t>(seed >> 31 << 15 | (0x2400u + (seed >> 16 & 0xfffu)));  // 2^-6 .. 2^-2
      model_files::append(bytes, half);
    }
    tensors.push_back({name + ".weight", "F16", std::to_string(n) + "," + std::to_string(k), bytes});
  }
  write_file(path, model_files::safetensors(tensors));
}

Json inspect(const std::string& path) { return Json::parse(run_command({"inspect", "--json", path}).out); }

TEST(Quantize, TheFilesAreWorthWhatQuantizingOnLoadGives) {
  for (const std::vector<std::string>& how : {std::vector<std::string>{"--format", "mxfp4"},
                                              {"--format", "int4"},
                                              {"--format", "int4", "--group", "64", "--layout", "gptq"}}) {
    const ScratchFolder scratch;
    std::vector<std::string> arguments = {"quantize", data("float-f32"), scratch.at("out")};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Ran ran = run_command(arguments);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("1 layer quantized, 147 kB -> "));
    EXPECT_EQ(ran.out.find("the names of"), std::string::npos) << "one container";
    EXPECT_THAT(ran.err, IsEmpty());
    ASSERT_EQ(run_command({"unpack", scratch.at("out"), "-o", scratch.at("written")}).exit_code, 0);
    arguments = {"unpack", data("float-f32"), "-o", scratch.at("loaded"), "--format", how[1]};
    if (how.size() > 2) arguments.insert(arguments.end(), {"--group", "64"});
    ASSERT_EQ(run_command(arguments).exit_code, 0);
    EXPECT_TRUE(read_safetensors(scratch.at("written")).at(kLayer) == read_safetensors(scratch.at("loaded")).at(kLayer));
    EXPECT_EQ(run_command({"verify", scratch.at("out")}).exit_code, 0);
  }
}

TEST(Quantize, JsonSaysWhatTheTableSays) {
  const ScratchFolder scratch;
  const Ran ran = run_command({"quantize", data("float-bf16"), scratch.at("model.gguf"), "--format", "nvfp4", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const Json said = Json::parse(ran.out);
  EXPECT_EQ(said.at("layers").at(0).at("name"), kLayer);
  EXPECT_EQ(said.at("layers").at(0).at("format"), "nvfp4");
  EXPECT_EQ(said.at("totals").at("bytes_after"), 96 * 384 * 36 / 64 + 4);
  EXPECT_GT(said.at("totals").at("squared_norm").number(), 50 * said.at("totals").at("squared_error").number());
  const Json listed = inspect(scratch.at("model.gguf"));
  EXPECT_EQ(listed.at("layers").at(0).at("format"), "nvfp4");
}

TEST(Quantize, TypesOfBlocks) {
  const ScratchFolder scratch;
  write_model(scratch.at("in.safetensors"), {"blk.0.ffn_up"}, 6, 512);
  struct Type {
    const char* name;
    const char* format;
    double bits;
  };
  for (const Type& type : {Type{"q4_k", "int4", 4.5}, Type{"q6_k", "int6", 6.5625}, Type{"q8_0", "int8", 8.5},
                           Type{"iq4_nl", "iq4", 4.5}, Type{"q5_1", "int5", 6}}) {
    const Ran ran = run_command(
        {"quantize", scratch.at("in.safetensors"), scratch.at("out.gguf"), "--format", type.name, "--json", "--force"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const Json layer = Json::parse(ran.out).at("layers").at(0);
    EXPECT_EQ(layer.at("format"), type.format);
    EXPECT_EQ(layer.at("bits_per_weight"), type.bits);
    EXPECT_GT(layer.at("squared_norm").number(), 50 * layer.at("squared_error").number()) << type.name;
    EXPECT_EQ(run_command({"verify", scratch.at("out.gguf")}).exit_code, 0);
  }
  const Ran named =
      run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out.gguf"), "--format", "q4_k", "--force"});
  EXPECT_THAT(named.out, HasSubstr("names no architecture: this library reads it, llama.cpp does not"));
  const Ran other = run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out"), "--format", "q4_k"});
  EXPECT_EQ(other.exit_code, 3);
  EXPECT_THAT(other.err, HasSubstr("Q4_K is a type of GGUF, and compressed-tensors has none"));
  const Ran unknown = run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out"), "--format", "q9_k"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("'q9_k' is none of {int4, mxfp4, nvfp4, int2, int3, int5, int6, uint8, q2_k"));
  write_model(scratch.at("narrow.safetensors"), {"blk.0.ffn_up"}, 6, 96);
  const Ran narrow = run_command({"quantize", scratch.at("narrow.safetensors"), scratch.at("narrow.gguf"), "--format", "q4_k"});
  EXPECT_THAT(narrow.err, HasSubstr("layer 'blk.0.ffn_up': k: GGUF's Q4_K wants multiples of 256, found 96"));
}

TEST(Quantize, WithoutAFormatNoValueChanges) {
  const ScratchFolder scratch;
  for (const char* out : {"out.gguf", "mlx"}) {
    std::vector<std::string> arguments = {"quantize", data("awq-gemm-g128"), scratch.at(out), "--json"};
    if (out == std::string("mlx")) arguments.insert(arguments.end(), {"--layout", "mlx"});
    const Ran ran = run_command(arguments);
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_THAT(ran.err, IsEmpty());
    const Json said = Json::parse(ran.out);
    EXPECT_EQ(said.at("layers").at(0).at("exact"), true);
    EXPECT_EQ(said.at("totals").at("exact"), 1);
    EXPECT_EQ(said.at("totals").at("squared_error"), 0);
    EXPECT_EQ(run_command({"verify", scratch.at(out)}).exit_code, 0);
  }
  const Json config = Json::parse(read_file(scratch.at("mlx/config.json")));
  EXPECT_EQ(config.at("quantization"), (Json{{"group_size", 128}, {"bits", 4}, {"mode", "affine"}}));
  EXPECT_FALSE(config.contains("quantization_config"));
  const Ran table = run_command({"quantize", data("gptq-v1-sym-g128"), scratch.at("again.gguf")});
  EXPECT_THAT(table.out,
              HasSubstr("1 layer quantized (1 without changing a value), 20.7 kB -> 20.7 kB, 4.50 bits per weight, exact\n"));
  const Ran floats = run_command({"quantize", data("float-f32"), scratch.at("floats.gguf")});
  EXPECT_EQ(floats.exit_code, 3);
  EXPECT_THAT(floats.err, HasSubstr("no layer is quantized; --format or --recipe says what to quantize floats to"));
  const Ran none = run_command({"quantize", data("bnb-nf4-b64"), scratch.at("none.gguf")});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("GGUF: no type holds these values of NF4 exactly; name a format to quantize them again"));
  const Ran gptq = run_command({"quantize", data("awq-gemm-g128"), scratch.at("gptq"), "--layout", "gptq"});
  EXPECT_THAT(gptq.err, HasSubstr("GPTQ: a format has to be named"));
  const Ran named = run_command({"quantize", data("awq-gemm-g128"), scratch.at("gptq"), "--layout", "gptq", "--format", "int4",
                                 "--group", "128", "--asymmetric", "--requantize", "--json"});
  ASSERT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(Json::parse(named.out).at("layers").at(0).at("exact"), true);
}

TEST(Quantize, RecipesChooseATypeForEachLayer) {
  const ScratchFolder scratch;
  write_model(
      scratch.at("in.safetensors"),
      {"model.embed_tokens", "model.layers.0.mlp.gate", "model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.q_proj"},
      8, 256);
  const Ran ran =
      run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out.gguf"), "--recipe", "q4_k_m", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::map<std::string, std::string> formats;
  const Json said = Json::parse(ran.out);
  for (const Json& layer : said.at("layers").items()) formats[layer.at("name").text()] = layer.at("format").text();
  EXPECT_EQ(formats, (std::map<std::string, std::string>{{"model.embed_tokens", "int6"},
                                                         {"model.layers.0.self_attn.v_proj", "int6"},
                                                         {"model.layers.0.self_attn.q_proj", "int4"}}));
  const Ran both =
      run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out"), "--recipe", "q6_k", "--format", "int4"});
  EXPECT_EQ(both.exit_code, 2);
  const Ran unknown = run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out"), "--recipe", "q9"});
  EXPECT_THAT(unknown.err, HasSubstr("'q9' is none of {q3_k_m, q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k, q8_0}"));
}

TEST(Quantize, PatternsAndDefaultsChooseLayers) {
  const ScratchFolder scratch;
  const std::vector<std::string> names = {"model.embed_tokens",           "model.layers.0.mlp.gate",
                                          "model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.q_proj",
                                          "model.layers.1.mlp.gate_proj", "lm_head"};
  write_model(scratch.at("in.safetensors"), names, 4, 64);
  const auto chosen = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {
        "quantize", scratch.at("in.safetensors"), scratch.at("out"), "--format", "mxfp4", "--dry-run", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    std::vector<std::string> found;
    const Ran ran = run_command(arguments);
    if (ran.exit_code != 0) return std::vector<std::string>{ran.err};
    const Json said = Json::parse(ran.out);
    for (const Json& layer : said.at("layers").items()) found.push_back(layer.at("name").text());
    std::sort(found.begin(), found.end());
    return found;
  };
  EXPECT_EQ(chosen({}), (std::vector<std::string>{names[2], names[3], names[4]}));
  EXPECT_EQ(chosen({"--exclude", "*.self_attn.*", "--exclude", "model.layers.1.*"}), std::vector<std::string>{names[2]});
  EXPECT_EQ(chosen({"--include", "lm_head", "--include", "*.q_proj"}), (std::vector<std::string>{names[5], names[3]}));
  EXPECT_THAT(chosen({"--include", "nothing*"})[0], HasSubstr("--include 'nothing*' matches no layer"));
  EXPECT_EQ(scratch.entries(), 1u) << "a dry run wrote something";
}

TEST(Quantize, OtherTensorsAndTheConfigGoAlong) {
  const ScratchFolder scratch;
  ASSERT_EQ(run_command({"quantize", data("sharded-gptq"), scratch.at("out"), "--format", "nvfp4", "--requantize"}).exit_code,
            0);
  const Json config = Json::parse(read_file(scratch.at("out/config.json")));
  EXPECT_EQ(config.at("quantization_config").at("quant_method"), "compressed-tensors");
  EXPECT_EQ(config.at("quantization_config").at("format"), "nvfp4-pack-quantized");
  EXPECT_EQ(config.at("model_type"), "test");
  const Json index = Json::parse(read_file(scratch.at("out/model.safetensors.index.json")));
  for (const auto& [tensor, file] : index.at("weight_map").members()) {
    EXPECT_TRUE(fs::exists(scratch.at("out/" + file.text()))) << tensor;
    EXPECT_THAT(tensor, Not(HasSubstr("qweight")));
  }
  EXPECT_EQ(inspect(scratch.at("out")).at("totals").at("loadable"), inspect(data("sharded-gptq")).at("totals").at("loadable"));
}

TEST(Quantize, ShardSizeSplits) {
  const ScratchFolder scratch;
  write_model(scratch.at("in.safetensors"), {"a", "b", "c", "d"}, 64, 64);  // 2176 bytes each as mxfp4
  ASSERT_EQ(
      run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out"), "--format", "mxfp4", "--shard-size", "5kB"})
          .exit_code,
      0);
  EXPECT_TRUE(fs::exists(scratch.at("out/model-00001-of-00002.safetensors")));
  EXPECT_TRUE(fs::exists(scratch.at("out/model-00002-of-00002.safetensors")));
  EXPECT_EQ(inspect(scratch.at("out")).at("totals").at("loadable"), 4);
}

TEST(Quantize, WhatIsThereIsReplacedOnlyByForce) {
  const ScratchFolder scratch;
  write_file(scratch.at("model.gguf"), "precious");
  std::vector<std::string> arguments = {"quantize", data("float-f16"), scratch.at("model.gguf"), "--format", "int4"};
  const Ran refused = run_command(arguments);
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(read_file(scratch.at("model.gguf")), "precious");
  arguments.push_back("--force");
  EXPECT_EQ(run_command(arguments).exit_code, 0);
  EXPECT_EQ(inspect(scratch.at("model.gguf")).at("totals").at("loadable"), 1);
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(Quantize, TheInputIsNeverWrittenOnto) {
  const ScratchFolder scratch;
  fs::copy(data("float-f16"), scratch.at("model"));
  const std::string before = read_file(scratch.at("model/model.safetensors"));
  for (const char* out : {"model", "model/model.safetensors", "model/other.safetensors"}) {
    const Ran ran = run_command({"quantize", scratch.at("model"), scratch.at(out), "--format", "mxfp4", "--force"});
    EXPECT_EQ(ran.exit_code, 3) << out;
    EXPECT_THAT(ran.err, HasSubstr("the input")) << out;
  }
  EXPECT_EQ(read_file(scratch.at("model/model.safetensors")), before);
}

TEST(Quantize, TheNormsAreNeverWrittenOnto) {
  const ScratchFolder scratch;
  write_model(scratch.at("in.safetensors"), {"a"}, 64, 128);
  std::string ones;
  for (int k = 0; k < 128; ++k) model_files::append(ones, 1.0f);
  const std::string norms = model_files::safetensors({{"a", "F32", "128", ones}});
  fs::create_directory(scratch.at("out"));
  write_file(scratch.at("out/model.safetensors"), norms);
  fs::create_hard_link(scratch.at("out/model.safetensors"), scratch.at("norms.safetensors"));
  for (const char* out : {"out", "out/model.safetensors", "norms.safetensors"}) {
    const Ran ran = run_command({"quantize", scratch.at("in.safetensors"), scratch.at(out), "--format", "int4", "--sparse",
                                 "2:4", "--norms", scratch.at("norms.safetensors"), "--force"});
    EXPECT_EQ(ran.exit_code, 3) << out;
    EXPECT_THAT(ran.err, HasSubstr("is part of the norms")) << out;
    EXPECT_EQ(read_file(scratch.at("norms.safetensors")), norms);
  }
}

TEST(Quantize, AFullDiskAnUnwritableFolderAndAFolderInTheWayAreErrors) {
  const ScratchFolder scratch;
  write_file(scratch.at("old.gguf"), "precious");
  Ran ran =
      run_command({"quantize", data("float-f16"), scratch.at("old.gguf"), "--format", "int4", "--force"}, {.file_limit = 4096});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("File too large"));
  EXPECT_EQ(read_file(scratch.at("old.gguf")), "precious");
  EXPECT_EQ(scratch.entries(), 1u);
  ran = run_command({"quantize", data("float-f16"), scratch.at("new"), "--format", "int4"}, {.file_limit = 4096});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_EQ(scratch.entries(), 1u) << "the new folder was left";
  for (const char* out : {"/proc/model", "/proc/model.gguf", "/nonexistent/folder/model", "/dev/null"}) {
    ran = run_command({"quantize", data("float-f16"), out, "--format", "int4"});
    EXPECT_EQ(ran.exit_code, 3) << out;
    EXPECT_THAT(ran.err, HasSubstr(out));
  }
  fs::create_directories(scratch.at("folder/model.gguf"));
  ran = run_command({"quantize", data("float-f16"), scratch.at("folder"), "--format", "int4", "--layout", "gguf", "--force"});
  EXPECT_EQ(ran.exit_code, 3) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("directory"));
}

TEST(Quantize, InterruptedItLeavesNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const ScratchFolder scratch;
    write_model(scratch.at("in.safetensors"), {"a", "b", "c", "d"}, 1024, 4096);
    write_file(scratch.at("out.gguf"), "precious");
    const Ran ran = run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out.gguf"), "--format", "int4",
                                 "--scales", "mse", "--force", "--threads", "1"},
                                {.signal = signal, .signal_ms = 150});
    EXPECT_EQ(ran.exit_code, 128 + signal) << ran.err;
    EXPECT_EQ(read_file(scratch.at("out.gguf")), "precious");
    EXPECT_EQ(scratch.entries(), 2u);
  }
}

TEST(Quantize, PruningIsReportedAndFollowsTheNorms) {
  const ScratchFolder scratch;
  write_model(scratch.at("in.safetensors"), {"a"}, 64, 128);
  const auto pruned = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"quantize",
                                          scratch.at("in.safetensors"),
                                          scratch.at("out"),
                                          "--format",
                                          "int4",
                                          "--layout",
                                          "marlin-24",
                                          "--sparse",
                                          "2:4",
                                          "--force"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Ran ran = run_command(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("kept"));
    EXPECT_EQ(run_command({"unpack", scratch.at("out"), "-o", scratch.at("values"), "--force"}).exit_code, 0);
    const FloatTensor values = read_safetensors(scratch.at("values")).at("a");
    std::vector<float> w(64 * 128);
    std::memcpy(w.data(), values.bytes.data(), values.bytes.size());
    return w;
  };
  const std::vector<float> by_magnitude = pruned({});
  // Norms that leave nothing of the first two columns of each four.
  std::string norms;
  for (int k = 0; k < 128; ++k) {
    const float norm = k % 4 < 2 ? 0.0f : 1.0f;
    norms.append(reinterpret_cast<const char*>(&norm), 4);
  }
  const std::string header = R"({"a":{"dtype":"F32","shape":[128],"data_offsets":[0,512]}})";
  const uint64_t length = header.size();
  write_file(scratch.at("norms.safetensors"), std::string(reinterpret_cast<const char*>(&length), 8) + header + norms);
  const std::vector<float> by_norms = pruned({"--norms", scratch.at("norms.safetensors")});
  size_t kept = 0, elsewhere = 0;
  for (size_t i = 0; i < by_norms.size(); ++i) {
    kept += by_magnitude[i] != 0;
    if (i % 4 < 2) {
      EXPECT_EQ(by_norms[i], 0.0f) << i;
      elsewhere += by_magnitude[i] != 0;
    }
  }
  EXPECT_LE(kept, by_norms.size() / 2);
  EXPECT_GT(elsewhere, by_norms.size() / 8);
}

TEST(Quantize, LayersThatDoNotFitAreNamed) {
  const ScratchFolder scratch;
  write_model(scratch.at("in.safetensors"), {"odd"}, 6, 48);
  const std::vector<std::vector<std::string>> hows = {{"--format", "mxfp4"},
                                                      {"--format", "int4", "--layout", "gptq", "--group", "16"},
                                                      {"--format", "nvfp4", "--layout", "gguf"}};
  for (const auto& how : hows) {
    std::vector<std::string> arguments = {"quantize", scratch.at("in.safetensors"), scratch.at("out")};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Ran ran = run_command(arguments);
    EXPECT_EQ(ran.exit_code, 3);
    EXPECT_THAT(ran.err, HasSubstr("'odd': "));
    EXPECT_EQ(scratch.entries(), 1u);
  }
  for (const char* format : {"fp4", "int8"}) {
    const Ran ran = run_command({"quantize", scratch.at("in.safetensors"), scratch.at("out"), "--format", format});
    EXPECT_NE(ran.exit_code, 0);
    EXPECT_THAT(ran.err, HasSubstr("int4"));
  }
}

}  // namespace
}  // namespace metal_marlin::test
