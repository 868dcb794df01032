// Files of one layout in different dialects: what the file says about its dialect is looked at, and where two readings remain,
// the layer is refused. Values are true or there are none.
#include "base/bits.h"
#include "checkpoint_files.h"
#include "formats/codecs.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {
namespace dialects {

using Values = std::vector<float>;

std::string section(const std::string& members) { return R"({"quantization_config":{)" + members + "}}"; }

/// The layer's values, or the words of its status.
struct Found {
  Values values;
  std::string why;
};
Found read(const std::vector<TestTensor>& tensors, const std::string& config, const std::string& layer = "l",
           StackOrder order = StackOrder::unknown, std::vector<std::pair<std::string, std::string>> more = {},
           const std::string& answers = "") {
  auto folder = std::make_unique<MemoryFolder>();
  folder->add("m.safetensors", safetensors(tensors));
  folder->add("config.json", config);
  for (const auto& [name, text] : more) folder->add(name, text);
  const auto opened =
      open_checkpoint(std::move(folder), "m.safetensors", MARLIN_LAYOUT_AUTO, MARLIN_GPTQ_ZERO_F_AUTO, order, answers);
  if (!opened.ok()) return {{}, opened.status().message()};
  const Checkpoint& checkpoint = *opened.value();
  const auto index = checkpoint.find_layer(layer);
  if (!index) return {{}, "no layer"};
  const Layer found = checkpoint.layer(*index);
  Found out;
  for (uint32_t e = 0; found.status.ok() && e < found.experts; ++e) {
    const auto source = checkpoint.source(*index, e, {});
    if (!source.ok()) return {{}, source.status().message()};
    const Values some = decode_all(*source.value()).value();
    out.values.insert(out.values.end(), some.begin(), some.end());
  }
  out.why = found.status.message();
  return out;
}

/// GPTQ [16 x 64] in groups of 32: symmetric, or with zeros of any kind; v1 stores zeros less 1.
struct Gptq {
  std::vector<TestTensor> tensors;
  Values values;
};
Gptq gptq(std::mt19937& random, int bits, bool symmetric, bool v1, bool wide = false) {
  constexpr int64_t kN = 16, kK = 64, kGroup = 32;
  const int64_t each = 32 / bits;
  const uint32_t mask = (1u << bits) - 1;
  std::vector<uint32_t> words(static_cast<size_t>(kK / each * kN)), zero_words(static_cast<size_t>(2 * kN / each)),
      zeros(2 * kN);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  for (size_t i = 0; i < zeros.size(); ++i) {
    zeros[i] = symmetric ? 1u << bits >> 1 : 1 + static_cast<uint32_t>(random()) % (mask - 1);
    const size_t row = i / kN * static_cast<size_t>(kN / each), at = i % kN;
    zero_words[row + at / static_cast<size_t>(each)] |= ((zeros[i] - (v1 ? 1 : 0)) & mask)
                                                        << at % static_cast<size_t>(each) * static_cast<size_t>(bits);
  }
  Gptq out;
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t k = 0; k < kK; ++k) {
      const uint32_t code = words[static_cast<size_t>(k / each * kN + n)] >> k % each * bits & mask;
      out.values.push_back(0.5f * static_cast<float>(static_cast<int>(code) -
                                                     static_cast<int>(zeros[static_cast<size_t>(k / kGroup * kN + n)])));
    }
  std::string data, zero_data, scales;
  if (wide) {  // rows of words in pairs
    for (int64_t r = 0; r < kK / each; r += 2)
      for (int64_t n = 0; n < kN; ++n)
        append(data, words[static_cast<size_t>(r * kN + n)]), append(data, words[static_cast<size_t>((r + 1) * kN + n)]);
  } else {
    for (const uint32_t word : words) append(data, word);
  }
  for (const uint32_t word : zero_words) append(zero_data, word);
  for (int64_t i = 0; i < 2 * kN; ++i) append(scales, f32_to_f16(0.5f));
  const std::string type = wide ? "I64" : "I32";
  const int64_t by = wide ? 2 : 1;
  out.tensors = {{"l.qweight", type, std::to_string(kK / each / by) + ",16", data},
                 {"l.qzeros", type, "2," + std::to_string(kN / each / by), zero_data},
                 {"l.scales", "F16", "2,16", scales}};
  return out;
}

TEST(Dialects, OfGptqAreToldByZerosOrByTheConfig) {
  std::mt19937 random(1);
  for (int draw = 0; draw < 400; ++draw) {
    const int bits = std::vector{2, 4, 8}[random() % 3];
    const bool symmetric = random() % 2 == 0, v1 = random() % 2 == 0, wide = bits != 2 && random() % 4 == 0;
    const Gptq file = gptq(random, bits, symmetric, v1, wide);
    const std::string size = R"(,"group_size":32,"bits":)" + std::to_string(random() % 2 ? bits : 4);
    const std::string sym = symmetric ? R"(,"sym":true)" : random() % 2 ? R"(,"sym":false)" : "";
    const std::string format = v1 ? "gptq" : "gptq_v2", other = v1 ? "gptq_v2" : "gptq";
    const struct {
      std::string config;
      bool tells;
    } configs[] = {
        {section(R"("quant_method":"gptq","checkpoint_format":")" + format + "\"" + size + sym), true},
        {section(R"("quant_method":"gptq","checkpoint_format":")" + other + "\"" + size + sym), symmetric},
        {R"({"a":[{"llm_config":)" + section(R"("quant_method":"gptq","checkpoint_format":")" + format + "\"" + size + sym) +
             "}]}",
         true},
        {section(R"("quant_method":"auto-round","packing_format":")" +
                 std::string(v1 ? "auto_round:auto_gptq" : "auto_round:gptqmodel") + "\"" + size + sym),
         true},
        {section(R"("quant_method":"auto-round","backend":"auto_round:tritonv2")" + size + sym), symmetric},
        {"{}", symmetric},
    };
    const auto& [config, tells] = configs[random() % std::size(configs)];
    SCOPED_TRACE(config + " " + std::to_string(bits) + (v1 ? " v1" : " v2") + (symmetric ? " symmetric" : ""));
    const Found found = read(file.tensors, config);
    const bool says_other = config.find(other + "\"") != std::string::npos && !symmetric && !v1 == (other == "gptq");
    if (tells) {
      EXPECT_EQ(found.why, "");
      EXPECT_EQ(found.values, file.values);
    } else if (!says_other) {
      EXPECT_THAT(found.why, HasSubstr("cannot tell GPTQ v1"));
    }
    const Found said = read(file.tensors, config, "l", StackOrder::unknown, {}, configs[0].config);
    EXPECT_EQ(said.why, "") << "the caller says it";
    EXPECT_EQ(said.values, file.values);
  }
}

TEST(Dialects, OfConfigsThatDisagreeAreRefused) {
  std::mt19937 random(2);
  const Gptq file = gptq(random, 4, false, false);
  const std::string v2 = R"("quant_method":"gptq","checkpoint_format":"gptq_v2")",
                    v1 = R"("quant_method":"gptq","checkpoint_format":"gptq")";
  const auto with = [&](const std::string& config, std::pair<std::string, std::string> more) {
    return read(file.tensors, config, "l", StackOrder::unknown, {more});
  };
  EXPECT_EQ(
      with(section(R"("quant_method":"gptq")"), {"quantize_config.json", R"({"checkpoint_format":"gptq_v2","bits":4})"}).values,
      file.values);
  EXPECT_THAT(with(section(v1), {"quantize_config.json", R"({"checkpoint_format":"gptq_v2"})"}).why,
              HasSubstr("config.json and quantize_config.json differ in checkpoint_format: \"gptq\" and \"gptq_v2\""));
  EXPECT_THAT(read(file.tensors, R"({"x":)" + section(v1) + R"(,"y":)" + section(v2) + "}").why,
              HasSubstr("differ in checkpoint_format"));
  EXPECT_THAT(
      read(file.tensors, section(v2 + R"(,"transform_config":{"config_groups":{"R1":{"apply":[{"location":"input"}]}}})")).why,
      HasSubstr("rotated activations"));
  EXPECT_EQ(read(file.tensors,
                 section(v2 + R"(,"transform_config":{"config_groups":{"R1":{"apply":[{"location":"weight_input"}]}}})"))
                .values,
            file.values);
}

TEST(Dialects, OfMlxAreToldByWordsAndGroups) {
  std::mt19937 random(3);
  for (int draw = 0; draw < 300; ++draw) {
    const int bits = std::vector{2, 3, 4, 5, 6, 8}[random() % 6], group = std::vector{32, 64, 128}[random() % 3];
    const int64_t n = 2, k = 256, groups = k / group;
    std::vector<uint8_t> stream(static_cast<size_t>(n * k * bits / 8 + 8));
    std::string data, scales, biases;
    Values values;
    for (int64_t r = 0; r < n; ++r) {
      std::vector<uint32_t> row(static_cast<size_t>(k * bits / 32 + 1));
      for (int64_t c = 0; c < k; ++c) {
        const uint32_t code = static_cast<uint32_t>(random()) & ((1u << bits) - 1);
        const int64_t at = c * bits;
        const uint64_t placed = uint64_t{code} << at % 32;
        row[static_cast<size_t>(at / 32)] |= static_cast<uint32_t>(placed);
        row[static_cast<size_t>(at / 32 + 1)] |= static_cast<uint32_t>(placed >> 32);
        values.push_back(static_cast<float>(code) * 0.25f - 2);
      }
      for (int64_t w = 0; w < k * bits / 32; ++w) append(data, row[static_cast<size_t>(w)]);
      for (int64_t g = 0; g < groups; ++g) append(scales, 0.25f), append(biases, -2.0f);
    }
    const std::string dims = "2," + std::to_string(groups),
                      prefix = std::vector<std::string>{"", "model.", "language_model.model."}[random() % 3];
    const std::vector<TestTensor> tensors{{prefix + "l.weight", "U32", "2," + std::to_string(k * bits / 32), data},
                                          {prefix + "l.scales", "F32", dims, scales},
                                          {prefix + "l.biases", "F32", dims, biases}};
    const std::string true_bits = R"("bits":)" + std::to_string(bits), true_group = R"("group_size":)" + std::to_string(group);
    const std::string own =
        std::string("\"") + (random() % 2 ? "model.language_model.l" : "l") + R"(":{)" + true_bits + "," + true_group + "}";
    const std::string configs[] = {R"({"quantization":{)" + true_bits + "," + true_group + "}}",
                                   R"({"quantization_config":{)" + true_group + "}}",
                                   R"({"quantization":{"bits":7,)" + true_group + "}}",
                                   R"({"inner":{"quantization":{"mode":"mxfp4","bits":4,"group_size":32,)" + own + "}}}"};
    const std::string& config = configs[random() % std::size(configs)];
    SCOPED_TRACE(config + " " + std::to_string(bits) + " " + std::to_string(group));
    const Found found = read(tensors, config, prefix + "l");
    EXPECT_EQ(found.why, "");
    EXPECT_EQ(found.values, values);
    const Found unsaid = read(tensors, "{}", prefix + "l");
    if (unsaid.why.empty()) {
      EXPECT_EQ(unsaid.values, values) << "only one width fits";
    } else {
      EXPECT_THAT(unsaid.why, HasSubstr("cannot tell the codes"));
    }
    // The caller says it, also against a file that says otherwise.
    const std::string true_answer = R"({"quantization":{)" + true_bits + "," + true_group + "}}";
    for (const char* file : {"{}", R"({"quantization":{"bits":7,"group_size":48}})"}) {
      const Found said = read(tensors, file, prefix + "l", StackOrder::unknown, {}, true_answer);
      EXPECT_EQ(said.why, "") << file;
      EXPECT_EQ(said.values, values) << file;
    }
  }
}

/// NVFP4 [n x 64] as ComfyUI has it: even elements in high halves, scales in padded tiles.
TEST(Dialects, OfComfyUiAreMarked) {
  std::mt19937 random(4);
  for (const int64_t n : {3, 128, 200}) {
    constexpr int64_t kK = 96, kGroups = kK / 16;
    std::string data, tiles(static_cast<size_t>((n + 127) / 128 * 128 * 8), '\0');
    Values values;
    for (int64_t r = 0; r < n; ++r)
      for (int64_t g = 0; g < kGroups; ++g) {
        const auto scale = static_cast<uint8_t>(0x30 + random() % 16);
        const int64_t tile = r / 128 * 2 + g / 4;
        tiles[static_cast<size_t>(tile * 512 + r % 32 * 16 + r % 128 / 32 * 4 + g % 4)] = static_cast<char>(scale);
        for (int64_t j = 0; j < 8; ++j) {
          const auto byte = static_cast<uint8_t>(random());
          append(data, byte);
          values.push_back(kE2m1[byte >> 4] * e4m3_to_f32(scale) * 2);
          values.push_back(kE2m1[byte & 15] * e4m3_to_f32(scale) * 2);
        }
      }
    const auto file = [&](const std::string& mark) {
      std::vector<TestTensor> tensors{{"l.weight", "U8", std::to_string(n) + "," + std::to_string(kK / 2), data},
                                      {"l.weight_scale", "F8_E4M3", std::to_string((n + 127) / 128 * 128) + ",8", tiles},
                                      {"l.weight_scale_2", "F32", "", bytes_of<float>({2})}};
      if (!mark.empty()) tensors.push_back({"l.comfy_quant", "U8", std::to_string(mark.size()), mark});
      return tensors;
    };
    EXPECT_EQ(read(file(R"({"format": "nvfp4", "full_precision_matrix_mult": true})"), "{}").values, values);
    EXPECT_THAT(read(file(R"({"format": "nvfp4", "convrot": true})"), "{}").why,
                HasSubstr("its member 'convrot' is not known"));
    EXPECT_THAT(read(file(R"({"format": "mxfp8"})"), "{}").why, HasSubstr("found 'mxfp8'"));
    EXPECT_NE(read(file(""), "{}").why, "") << "the shape of tiles is not that of rows";
    // The metadata may say it of all layers.
    for (const auto& [format, why] : {std::pair{"nvfp4", ""}, {"svdquant_w4a4", "found 'svdquant_w4a4'"}}) {
      std::string header = safetensors(file(""));
      const auto length = load<uint64_t>(reinterpret_cast<const std::byte*>(header.data()));
      const std::string metadata =
          std::string(R"("__metadata__":{"_quantization_metadata":"{\"layers\":{\"l\":{\"format\":\")") + format +
          R"(\"}}}"},)";
      const std::string marked = safetensors("{" + metadata + header.substr(9, length - 1), header.substr(8 + length));
      const auto opened = must(open_memory({{"m.safetensors", marked}}));
      EXPECT_THAT(opened->layer(0).status.message(), HasSubstr(why));
      if (why[0] == '\0') EXPECT_EQ(decode_all(*opened->source(0, 0, {}).value()).value(), values);
    }
  }
}

TEST(Dialects, OfStacksAreWhatTheCallerSays) {
  const std::string data = bytes_of<float>({1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<TestTensor> square{{"m.experts.odd", "F32", "2,2,2", data}};
  EXPECT_THAT(read(square, "{}", "m.experts.odd").why, HasSubstr("2 outputs x 2 inputs or the reverse"));
  EXPECT_EQ(read(square, "{}", "m.experts.odd", StackOrder::outputs_first).values, (Values{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(read(square, "{}", "m.experts.odd", StackOrder::inputs_first).values, (Values{1, 3, 2, 4, 5, 7, 6, 8}));
  EXPECT_EQ(read(square, R"({"model_type":"llama4"})", "m.experts.odd").values, (Values{1, 3, 2, 4, 5, 7, 6, 8}));
}

/// Scales of one FP8 matrix [2 x 256] in all the shapes that writers give them.
TEST(Dialects, OfFp8HaveScalesOfAnyShape) {
  std::string data(512, '\x38');  // 1
  const auto values = [&](const char* name, const std::string& type, const std::string& shape, const std::string& scales,
                          const std::string& config = "{}") {
    return read({{"l.weight", "F8_E4M3", "2,256", data}, {std::string("l.") + name, type, shape, scales}}, config);
  };
  const auto rows = [](float a, float b, float c, float d) {
    Values out;
    for (const float value : {a, b, c, d}) out.insert(out.end(), 128, value);
    return out;
  };
  const std::string two = bytes_of<float>({2, 3}), four = bytes_of<float>({2, 3, 4, 5});
  for (const char* name : {"weight_scale", "weight_scale_inv", "scale", "scale_weight", "qscale_weight"}) {
    EXPECT_EQ(values(name, "F32", "", bytes_of<float>({2})).values, rows(2, 2, 2, 2)) << name;
    EXPECT_EQ(values(name, "F32", "2", two).values, rows(2, 2, 3, 3)) << name;
    EXPECT_EQ(values(name, "F32", "2,1", two).values, rows(2, 2, 3, 3)) << name;
    EXPECT_EQ(values(name, "F32", "1,2", two).values, rows(2, 3, 2, 3)) << name << ": a block";
    EXPECT_EQ(values(name, "F32", "1,1,2,1", two).values, rows(2, 3, 2, 3)) << name;
    EXPECT_EQ(values(name, "F32", "2,2", four).values, rows(2, 3, 4, 5)) << name << ": half a row each";
    EXPECT_EQ(values(name, "F8_E8M0", "1,2", "\x80\x81").values, rows(2, 4, 2, 4)) << name;
  }
  EXPECT_EQ(read({{"l.weight", "F8_E4M3", "2,256", data}}, "{}").values, rows(1, 1, 1, 1)) << "a cast";
  EXPECT_THAT(read({{"l.weight", "F8_E4M3", "2,256", data}}, section(R"("quant_method":"fp8")")).why,
              HasSubstr("'l.weight_scale' is in none"));
  EXPECT_THAT(values("factor_scale", "F32", "", bytes_of<float>({2})).why, HasSubstr("'l.weight_scale' is in none"));
  EXPECT_EQ(read({{"l.weight", "F8_E5M2", "2,2", "\x3c\x40\xc0\x01"}}, "{}").values, (Values{1, 2, -2, std::ldexp(1.0f, -16)}));
}

/// Words [64 x 16] in AWQ's order of columns, their zeros and scales in groups of 32, and the true values [16 x 64].
struct InAwqOrder {
  std::string words, zeros, scales;
  Values values;
};
InAwqOrder in_awq_order(std::mt19937& random) {
  constexpr int64_t kN = 16, kK = 64, kGroup = 32;
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  InAwqOrder out;
  const auto draw = [&](int64_t rows, std::string& words) {
    std::vector<uint32_t> codes(static_cast<size_t>(rows * kN));
    for (uint32_t& code : codes) code = static_cast<uint32_t>(random()) % 16;
    for (size_t first = 0; first < codes.size(); first += 8) {
      uint32_t word = 0;
      for (size_t j = 0; j < 8; ++j) word |= codes[first + static_cast<size_t>(kOrder[j])] << 4 * j;
      append(words, word);
    }
    return codes;
  };
  const std::vector<uint32_t> codes = draw(kK, out.words), zeros = draw(kK / kGroup, out.zeros);
  for (int64_t i = 0; i < kK / kGroup * kN; ++i) append(out.scales, f32_to_f16(0.5f));
  for (int64_t n = 0; n < kN; ++n)
    for (int64_t k = 0; k < kK; ++k)
      out.values.push_back(0.5f * static_cast<float>(static_cast<int>(codes[static_cast<size_t>(k * kN + n)]) -
                                                     static_cast<int>(zeros[static_cast<size_t>(k / kGroup * kN + n)])));
  return out;
}

TEST(Dialects, OfAwqOrderAreThoseOfSeveralWriters) {
  std::mt19937 random(3);
  const InAwqOrder file = in_awq_order(random);
  for (const char* version : {"gemm", "exllama", "ipex"}) {
    const Found found =
        read({{"l.qweight", "I32", "64,2", file.words},
              {"l.qzeros", "I32", "2,2", file.zeros},
              {"l.scales", "F16", "2,16", file.scales}},
             section(R"("quant_method":"awq","bits":4,"group_size":32,"version":")" + std::string(version) + "\""));
    EXPECT_EQ(found.why, "") << version;
    EXPECT_EQ(found.values, file.values) << version;
  }
  const auto quark = [&](const char* method) {
    return read({{"l.weight", "I32", "64,2", file.words},
                 {"l.weight_zero_point", "I32", "2,2", file.zeros},
                 {"l.weight_scale", "F16", "2,16", file.scales}},
                section(R"("quant_method":"quark","global_quant_config":{"weight":{"dtype":"uint4","group_size":32,
                           "symmetric":false}},"export":{"pack_method":")" +
                        std::string(method) + "\"}"));
  };
  EXPECT_EQ(quark("reorder").values, file.values) << quark("reorder").why;
  EXPECT_EQ(quark("order").values, Values()) << "listed, not read";
  EXPECT_NE(quark("order").why, "no layer");
}

/// The same codes as elsewhere, under the names of one family or one writer.
TEST(Dialects, OfNamesAreThoseOfSeveralFamilies) {
  const std::string ones(64, '\x38'), two = bytes_of<float>({2, 3});
  const auto rows = [](std::initializer_list<float> each, size_t k) {
    Values out;
    for (const float value : each) out.insert(out.end(), k, value);
    return out;
  };
  // TorchAO's Float8Tensor.
  EXPECT_EQ(read({{"l._weight_qdata", "F8_E4M3", "2,32", ones}, {"l._weight_scale", "F32", "2,1", two}}, "{}").values,
            rows({2, 3}, 32));
  // DeepSeek V4: two E2M1 in a byte of I8.
  const std::string codes(32, '\x22');  // 1
  std::vector<TestTensor> experts;
  for (const char* number : {"0", "1"}) {
    const std::string name = "layers.0.ffn.experts." + std::string(number) + ".w1";
    experts.push_back({name + ".weight", "I8", "2,16", codes});
    experts.push_back({name + ".scale", "F8_E8M0", "2,1", number[0] == '0' ? "\x80\x81" : "\x7f\x80"});
  }
  EXPECT_EQ(read(experts, R"({"n_routed_experts":2})", "layers.0.ffn.experts.w1").values, rows({2, 4, 1, 2}, 32));
  // Granite: a stack with a scale for each row.
  EXPECT_EQ(read({{"m.input_linear.weight", "F8_E4M3", "2,1,32", ones}, {"m.input_linear.weight_scale", "F32", "2,1,1", two}},
                 R"({"num_local_experts":2})", "m.input_linear")
                .values,
            rows({2, 3}, 32));
  // A pruned model: each layer has as many experts as the files have, even if the config has one number for all of them.
  std::vector<TestTensor> pruned;
  for (const auto& [layer, count] : {std::pair{0, 4}, {1, 2}})
    for (int e = 0; e < count; ++e)
      pruned.push_back({"m." + std::to_string(layer) + ".mlp.experts." + std::to_string(e) + ".up_proj.weight", "F32", "1,2",
                        bytes_of<float>({1.0f + e, 1.0f + e})});
  EXPECT_EQ(read(pruned, R"({"num_experts":4})", "m.0.mlp.experts.up_proj").values, rows({1, 2, 3, 4}, 2));
  EXPECT_EQ(read(pruned, R"({"num_experts":4})", "m.1.mlp.experts.up_proj").values, rows({1, 2}, 2));
}

}  // namespace dialects
}  // namespace
}  // namespace metal_marlin::testing
