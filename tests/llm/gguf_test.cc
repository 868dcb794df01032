// The key-values of GGUF files as the chat asks for them, and the hyper-parameters among them.
#include "examples/llm/gguf.h"

#include "examples/llm/architecture.h"
#include "llm/gguf_builder.h"
#include "test.h"

namespace llm {
namespace {

GgufBuilder small() {
  GgufBuilder file;
  file.number<uint8_t>("u8", 0, 200).number<int8_t>("i8", 1, -100).number<uint16_t>("u16", 2, 60000);
  file.number<int16_t>("i16", 3, -30000).number<uint32_t>("u32", 4, 4000000000u).number<int32_t>("i32", 5, -2000000000);
  file.number<float>("f32", 6, 0.5f).number<uint8_t>("bool", 7, 1).number<uint64_t>("u64", 10, uint64_t{1} << 52);
  file.number<int64_t>("i64", 11, -5).number<double>("f64", 12, 1e300);
  return file.text("text", "gr\xC3\xBC\xC3\x9F").texts("texts", {"a", "", "bc"}).numbers("numbers", {1, -2, 3});
}

std::string failure(const std::function<void()>& of) {
  try {
    of();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing failed";
}

TEST(Gguf, ReadsEveryType) {
  const Metadata file = small().read();
  const std::pair<const char*, double> numbers[] = {{"u8", 200},     {"i8", -100},  {"u16", 60000}, {"i16", -30000},
                                                    {"u32", 4e9},    {"i32", -2e9}, {"f32", 0.5},   {"bool", 1},
                                                    {"u64", 0x1p52}, {"i64", -5},   {"f64", 1e300}};
  for (const auto& [key, value] : numbers) EXPECT_EQ(file.number(key), value) << key;
  EXPECT_EQ(file.text("text"), "gr\xC3\xBC\xC3\x9F");
  EXPECT_THAT(file.texts("texts"), ElementsAre("a", "", "bc"));
  EXPECT_THAT(file.numbers("numbers"), ElementsAre(1, -2, 3));
  EXPECT_FALSE(file.has("other"));
}

TEST(Gguf, SaysWhichKeyIsMissingOrOfAnotherType) {
  const Metadata file = small().read();
  EXPECT_THAT(failure([&] { file.number("other"); }), HasSubstr("test.gguf: has no key 'other'"));
  EXPECT_THAT(failure([&] { file.number("text"); }), HasSubstr("key 'text': expected a number"));
  EXPECT_THAT(failure([&] { file.text("u8"); }), HasSubstr("expected a string"));
  EXPECT_THAT(failure([&] { file.texts("numbers"); }), HasSubstr("expected strings"));
  EXPECT_THAT(failure([&] { file.numbers("texts"); }), HasSubstr("expected numbers"));
}

TEST(Gguf, OtherFilesAreNamed) {
  EXPECT_THAT(failure([] { GgufBuilder::parse("PK\x03\x04 and more"); }), HasSubstr("test.gguf: byte 0: magic"));
  EXPECT_THAT(failure([] { Metadata("/nowhere/model.gguf"); }), HasSubstr("/nowhere/model.gguf: cannot open"));
}

GgufBuilder llama(uint32_t heads = 9, uint32_t key_value_heads = 3, const std::string& name = "llama") {
  GgufBuilder file;
  file.text("general.architecture", name);
  const std::pair<const char*, uint32_t> numbers[] = {
      {"block_count", 30},           {"embedding_length", 576},       {"context_length", 8192},
      {"feed_forward_length", 1536}, {"attention.head_count", heads}, {"attention.head_count_kv", key_value_heads}};
  for (const auto& [key, value] : numbers) file.number(name + "." + key, 4, value);
  return file.number(name + ".attention.layer_norm_rms_epsilon", 6, 1e-5f);
}

TEST(HyperParameters, ComeFromTheKeys) {
  const HyperParameters found = hyper_parameters(llama().read());
  EXPECT_EQ(found.layers, 30);
  EXPECT_EQ(found.head_size, 64);
  EXPECT_EQ(found.key_value_heads, 3);
  EXPECT_EQ(found.rotation_base, 10000);
}

TEST(HyperParameters, BadOnesAreNamed) {
  const auto fails = [](GgufBuilder file) { return failure([&] { hyper_parameters(file.read()); }); };
  EXPECT_THAT(
      fails(llama(9, 3, "mamba")),
      HasSubstr(
          "expected one of the architectures that are known (llama, qwen2, qwen3, qwen3moe, gemma3, gpt-oss), found 'mamba'"));
  EXPECT_THAT(fails(GgufBuilder()), HasSubstr("has no key 'general.architecture'"));
  EXPECT_THAT(fails(GgufBuilder().text("general.architecture", "llama")), HasSubstr("has no key 'llama.block_count'"));
  EXPECT_THAT(fails(llama(0)), HasSubstr("llama.attention.head_count: expected a whole number from 1 to 16777216, found 0"));
  EXPECT_THAT(fails(llama(9, 4)), HasSubstr("do not fit each other: 9, 4, 64"));
  EXPECT_THAT(fails(llama().number("llama.rope.freq_base", 6, -1.0f)),
              HasSubstr("llama.rope.freq_base: expected a number above 0 and below 1e12, found -1"));
  EXPECT_THAT(fails(llama().text("llama.rope.scaling.type", "yarn")),
              HasSubstr("llama.rope.scaling.type: expected none or linear, found 'yarn'"));
  EXPECT_THAT(fails(llama().number("llama.rope.dimension_count", 4, uint32_t{32})),
              HasSubstr("rope.dimension_count: expected 64, found 32"));
  EXPECT_THAT(fails(llama().number("llama.attention.value_length", 4, uint32_t{48})),
              HasSubstr("attention.value_length: expected 64, found 48"));
  EXPECT_THAT(fails(llama(9, 3, "gemma3").number("gemma3.final_logit_softcapping", 6, 30.0f)),
              HasSubstr("gemma3.final_logit_softcapping: expected none, found 30"));
  EXPECT_THAT(fails(llama(9, 3, "qwen3").number("qwen3.expert_count", 4, uint32_t{8})),
              HasSubstr("qwen3.expert_count: expected none, found 8"));
  EXPECT_THAT(fails(llama(9, 3, "gemma3").numbers("gemma3.attention.sliding_window_pattern", {1, 0})),
              HasSubstr("sliding_window_pattern': expected a number"));
  EXPECT_THAT(fails(llama(9, 3, "gemma3").number("gemma3.attention.sliding_window", 4, uint32_t{1} << 25)),
              HasSubstr("gemma3.attention.sliding_window: expected a whole number from 1 to 16777216, found 33554432"));
}

GgufBuilder mixture(uint32_t experts = 8, uint32_t used = 2) {
  GgufBuilder file = llama(9, 3, "qwen3moe");
  file.number("qwen3moe.expert_count", 4, experts).number("qwen3moe.expert_used_count", 4, used);
  return file.number("qwen3moe.expert_feed_forward_length", 4, uint32_t{768});
}

TEST(HyperParameters, OfMixtures) {
  const HyperParameters found = hyper_parameters(mixture().read());
  EXPECT_EQ(found.feed_forward, 768) << "of one expert, and not of the layers without experts, which such models lack";
  EXPECT_EQ(found.experts, 8);
  EXPECT_EQ(found.experts_used, 2);
  EXPECT_EQ(hyper_parameters(mixture(8, 8).read()).experts_used, 8);
  const HyperParameters without = hyper_parameters(llama().read());
  EXPECT_EQ(without.feed_forward, 1536);
  EXPECT_EQ(without.experts_used, 1) << "a token has one MLP";
}

TEST(HyperParameters, NoKeyIsOverlooked) {
  const auto fails = [](GgufBuilder file) { return failure([&] { hyper_parameters(file.read()); }); };
  // What ordinary files have beside the hyper-parameters.
  GgufBuilder ordinary = llama().text("general.name", "x").number("llama.vocab_size", 4, uint32_t{9});
  ordinary.number("llama.rope.dimension_count", 4, uint32_t{64}).text("llama.tensor_data_layout", "Meta AI original pth");
  ordinary.number("llama.expert_count", 4, uint32_t{0}).number("llama.rope.scaling.attn_factor", 6, 1.0f);
  ordinary.number("llama.attention.causal", 7, uint8_t{1}).number("llama.attention.sliding_window", 4, uint32_t{8192});
  EXPECT_EQ(fails(ordinary), "nothing failed");
  // Keys of llama.cpp that would change the result, and some that nobody knows.
  const std::pair<const char*, const char*> numbers[] = {{"attention.causal", "expected 1"},
                                                         {"attention.clamp_kqv", "expected none"},
                                                         {"attention.scale", "expected none"},
                                                         {"attn_logit_softcapping", "expected none"},
                                                         {"embedding_scale", "expected 1"},
                                                         {"expert_count", "expected none"},
                                                         {"expert_shared_count", "expected none"},
                                                         {"final_logit_softcapping", "expected none"},
                                                         {"logit_scale", "expected 1"},
                                                         {"nextn_predict_layers", "expected none"},
                                                         {"residual_scale", "expected 1"},
                                                         {"rope.scale_linear", "expected 1"},
                                                         {"rope.scaling.attn_factor", "expected 1"},
                                                         {"rope.scaling.yarn_ext_factor", "expected none"},
                                                         {"use_parallel_residual", "expected none"},
                                                         {"attention.sliding_window", "expected none"},
                                                         {"attention.temperature_scale", "does not know"},
                                                         {"swin_norm", "does not know"}};
  for (const auto& [key, words] : numbers) {
    const std::string found = fails(llama().number(std::string("llama.") + key, 6, 7.0f));
    EXPECT_THAT(found, AllOf(HasSubstr(std::string("llama.") + key + ": "), HasSubstr(words)));
  }
  uint32_t random = 1;
  for (int i = 0; i < 50; ++i) {
    std::string key = "llama.";
    for (int letter = 0; letter < 8; ++letter) key += static_cast<char>('a' + (random = random * 1664525 + 1013904223) % 26);
    EXPECT_THAT(fails(llama().number(key, 4, random)), HasSubstr(key + ": this program does not know what it means"));
    EXPECT_THAT(fails(llama().texts(key, {"x"})), HasSubstr(key + ": this program does not know what it means"));
  }
  EXPECT_EQ(fails(llama().number("other.logit_scale", 6, 7.0f)), "nothing failed") << "of another architecture";
}

TEST(HyperParameters, MixturesOfAnotherKindAreNamed) {
  const auto fails = [](GgufBuilder file) { return failure([&] { hyper_parameters(file.read()); }); };
  EXPECT_THAT(fails(llama(9, 3, "qwen3moe")), HasSubstr("has no key 'qwen3moe.expert_feed_forward_length'"));
  EXPECT_THAT(fails(mixture(0)), HasSubstr("qwen3moe.expert_count: expected a whole number from 1 to 16777216, found 0"));
  EXPECT_THAT(fails(mixture(8, 0)),
              HasSubstr("qwen3moe.expert_used_count: expected a whole number from 1 to 16777216, found 0"));
  EXPECT_THAT(fails(mixture(8, 9)), HasSubstr("a token has 9 experts, expected at most as many as there are, 8"));
  for (const char* key : {"expert_shared_count", "leading_dense_block_count", "expert_group_count"}) {
    const std::string name = std::string("qwen3moe.") + key;
    EXPECT_THAT(fails(mixture().number(name, 4, uint32_t{1})), HasSubstr(name + ": expected none, found 1"));
    EXPECT_EQ(fails(mixture().number(name, 4, uint32_t{0})), "nothing failed");
  }
  for (const char* key : {"expert_gating_func", "expert_weights_norm", "expert_weights_scale"}) {
    const std::string name = std::string("qwen3moe.") + key;
    EXPECT_THAT(fails(mixture().number(name, 4, uint32_t{2})), HasSubstr(name + ": expected 1, found 2"));
    EXPECT_EQ(fails(mixture().number(name, 4, uint32_t{1})), "nothing failed");
  }
  EXPECT_EQ(fails(mixture().number("qwen3moe.expert_gating_func", 4, uint32_t{3})), "nothing failed") << "the same shares";
}

GgufBuilder oss(const std::string& scaling) {
  GgufBuilder file = llama(9, 3, "gpt-oss");
  file.number("gpt-oss.expert_count", 4, uint32_t{32}).number("gpt-oss.expert_used_count", 4, uint32_t{4});
  file.number("gpt-oss.expert_feed_forward_length", 4, uint32_t{2880})
      .number("gpt-oss.attention.sliding_window", 4, uint32_t{128});
  file.number("gpt-oss.rope.freq_base", 6, 150000.0f).number("gpt-oss.rope.scaling.factor", 6, 32.0f);
  return file.text("gpt-oss.rope.scaling.type", scaling);
}

TEST(HyperParameters, OfGptOss) {
  const auto yarn = [] { return oss("yarn").number("gpt-oss.rope.scaling.original_context_length", 4, uint32_t{4096}); };
  const HyperParameters found = hyper_parameters(yarn().read());
  EXPECT_EQ(found.yarn_context, 4096);
  EXPECT_EQ(found.rotation_factor, 32);
  EXPECT_TRUE(found.is_local(0)) << "of two layers the first";
  EXPECT_FALSE(found.is_local(1));
  EXPECT_EQ(hyper_parameters(oss("linear").read()).yarn_context, 0);
  const auto fails = [](GgufBuilder file) { return failure([&] { hyper_parameters(file.read()); }); };
  EXPECT_THAT(fails(oss("yarn")), HasSubstr("has no key 'gpt-oss.rope.scaling.original_context_length'"));
  EXPECT_THAT(fails(oss("longrope")), HasSubstr("gpt-oss.rope.scaling.type: expected none, linear or yarn, found 'longrope'"));
  EXPECT_THAT(fails(yarn().number("gpt-oss.rope.scaling.yarn_beta_fast", 6, 16.0f)),
              HasSubstr("gpt-oss.rope.scaling.yarn_beta_fast: expected 32, found 16"));
  EXPECT_EQ(fails(yarn().number("gpt-oss.rope.scaling.yarn_beta_slow", 6, 1.0f)), "nothing failed");
  EXPECT_THAT(fails(yarn().number("gpt-oss.rope.freq_base_swa", 6, 10000.0f)),
              HasSubstr("gpt-oss.rope.freq_base_swa: expected that of all layers, 150000.000000, found 10000"));
}

TEST(HyperParameters, OfGemmaHaveLocalLayers) {
  const HyperParameters without = hyper_parameters(llama(9, 3, "gemma3").read());
  EXPECT_FALSE(without.is_local(0)) << "no window is known";
  GgufBuilder file = llama(9, 3, "gemma3");
  file.number("gemma3.attention.sliding_window", 4, uint32_t{512}).number("gemma3.rope.freq_base", 6, 1e6f);
  const HyperParameters found = hyper_parameters(file.read());
  EXPECT_EQ(found.window, 512);
  EXPECT_EQ(found.rotation_base, 1e6);
  EXPECT_EQ(found.local_rotation_base, 1e4);
  std::vector<int64_t> global;
  for (int64_t i = 0; i < found.layers; ++i) {
    if (!found.is_local(i)) global.push_back(i);
  }
  EXPECT_THAT(global, ElementsAre(5, 11, 17, 23, 29));
  file.number("gemma3.attention.sliding_window_pattern", 4, uint32_t{2});
  EXPECT_FALSE(hyper_parameters(file.read()).is_local(1));
}

TEST(HyperParameters, ScaledPositionsAreLinear) {
  const auto factor = [](const std::string& type) {
    GgufBuilder file = llama().number("llama.rope.scaling.factor", 6, 8.0f);
    return hyper_parameters((type.empty() ? file : file.text("llama.rope.scaling.type", type)).read()).rotation_factor;
  };
  EXPECT_EQ(factor("linear"), 8);
  EXPECT_EQ(factor(""), 8);
  EXPECT_EQ(factor("none"), 1);
}

TEST(HyperParameters, OfAFolderComeFromItsConfiguration) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("metal-marlin-llm-config-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const auto read = [&](const std::string& type) {
    std::ofstream(folder / "config.json") << R"({"hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864,
      "num_attention_heads": 14, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "sliding_window": 4096, "model_type": ")"
                                          << type << "\"}";
    HyperParameters hyper;
    return read_config(folder.string(), hyper) ? hyper : HyperParameters{};
  };
  const HyperParameters found = read("qwen2");
  EXPECT_TRUE(found.architecture.qkv_bias);
  EXPECT_EQ(found.width, 896);
  EXPECT_FALSE(found.is_local(0)) << "Qwen2 attends to everything unless it is told otherwise";
  const auto more = [&](const std::string& member) { return failure([&] { read("qwen2\", " + member + ", \"x\": \""); }); };
  EXPECT_EQ(more(R"("hidden_act": "silu", "use_sliding_window": false, "rope_scaling": null)"), "nothing failed");
  EXPECT_THAT(more(R"("hidden_act": "gelu")"), HasSubstr("config.json: hidden_act: expected \"silu\", found \"gelu\""));
  EXPECT_THAT(more(R"("use_sliding_window": true)"), HasSubstr("use_sliding_window: expected false, found true"));
  EXPECT_THAT(more(R"("partial_rotary_factor": 0.5)"), HasSubstr("partial_rotary_factor: expected 1, found 0.5"));
  EXPECT_THAT(more(R"("rope_scaling": {"factor": 8})"), HasSubstr("rope_scaling"));
  EXPECT_THAT(more(R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 5})"),
              HasSubstr("rope_parameters.rope_type: expected \"default\", found \"yarn\""));
  EXPECT_THAT(failure([&] { read("gemma3"); }), HasSubstr("(llama, qwen2, qwen3, qwen3_moe), found 'gemma3'"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace llm
