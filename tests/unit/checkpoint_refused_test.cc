// Layers that a recognizer knows but cannot read, and configs that say odd things: what is said of the layer.
#include "checkpoint_files.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

/// A tensor of zeros, or of these bytes.
TestTensor tensor(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& data = "") {
  if (!data.empty()) return {name, dtype, shape, data};
  size_t bytes = dtype.ends_with("64") ? 8 : dtype.ends_with("32") ? 4 : dtype.ends_with("16") ? 2 : 1;
  for (size_t at = 0; at < shape.size(); at = std::min(shape.find(',', at), shape.size() - 1) + 1)
    bytes *= std::stoul(shape.substr(at));
  return {name, dtype, shape, std::string(bytes, '\0')};
}

struct Case {
  std::vector<TestTensor> tensors;
  const char* config;
  const char* words;  ///< of the first layer's status; "": it can be read; null: no reader takes the tensors
};

std::string quantization(const std::string& members) { return R"({"quantization_config":{)" + members + "}}"; }

void expect_said(std::initializer_list<Case> cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.tensors[0].name + " " + one.tensors[0].shape + " " + one.config);
    const auto opened = must(open_memory({{"f.safetensors", safetensors(one.tensors)}, {"config.json", one.config}}));
    if (one.words == nullptr) {
      for (const Layer& layer : opened->layers()) EXPECT_THAT(layer.status.message(), HasSubstr("no reader takes"));
      continue;
    }
    ASSERT_EQ(opened->layer_count(), 1u);
    const Status status = opened->layer(0).status;
    EXPECT_EQ(status.ok(), one.words[0] == '\0') << status.message();
    EXPECT_THAT(status.message(), HasSubstr(one.words));
  }
}

TEST(LayersThatAreNotRead, OfMlx) {
  const TestTensor weight = tensor("a.weight", "U32", "2,8"), scales = tensor("a.scales", "F16", "2,1"),
                   biases = tensor("a.biases", "F16", "2,1"), largest = tensor("a.global_scale", "F32", "1");
  expect_said({
      {{weight, scales, biases}, R"({"quantization":{"bits":7,"group_size":64}})", ""},
      {{weight, scales, biases}, R"({"quantization":{"bits":7}})", "7 bits in groups of 0 in the config"},
      {{weight, tensor("a.scales", "U8", "2,2")}, R"({"quantization":{"bits":5,"mode":"mxfp4"}})", "the config says 5 bits"},
      {{weight, scales, biases, largest}, R"({"quantization":{"bits":4,"group_size":64}})", "found the mode 'affine'"},
      {{weight, scales, biases}, R"({"quantization":{"bits":3}})", "expected rows of whole codes"},
      {{weight, scales, biases}, "{}", "2 bits in groups of 128 or 4 bits in groups of 64 or 8 bits in groups of 32"},
      {{weight, scales}, R"({"quantization":{"bits":4,"mode":"odd"}})", "the mode 'odd' is not known"},
      {{weight}, "{}", "'a.scales' is in none of the files"},
      {{tensor("a.weight", "U32", "2,2,2,2")}, "{}", nullptr},
      {{tensor("a.weight", "U32", "8")}, "{}", nullptr},
      {{weight, scales, biases}, R"({"quantization":{"bits":4,"a":{"bits":7}}})", "7 bits in groups of 0"},
      {{weight, scales, biases}, R"({"quantization":{"bits":7,"a":{"group_size":64,"mode":"affine"}}})", ""},
      {{weight, scales, biases}, R"({"quantization":{"bits":4,"group_size":64,"a":{"mode":1},"meta":{"bits":"x"}}})", ""},
      {{tensor("a.weight", "U32", "1,4"), tensor("a.scales", "U8", "1,1")}, "{}", ""},
      {{tensor("a.weight", "U32", "1,8"), tensor("a.scales", "F16", "1,3"), tensor("a.biases", "F16", "1,3")},
       "{}",
       "8 words and 3 groups"},
  });
}

TEST(LayersThatAreNotRead, OfHqq) {
  const TestTensor codes = tensor("a.W_q", "U8", "1,16"), scale = tensor("a.scale", "F16", "2,1"),
                   zero = tensor("a.zero", "F16", "2,1");
  const auto shape = [](int64_t n, int64_t k) { return tensor("a.shape", "I64", "2", bytes_of<int64_t>({n, k})); };
  const auto number = [](const char* name, const std::string& dtype, const std::string& bytes) {
    return tensor(name, dtype, "1", bytes);
  };
  expect_said({
      {{codes, scale, zero, shape(2, 16)}, "{}", ""},
      {{codes, scale, zero, shape(0, 16)}, "{}", "expected 1..2147483647 each, found [0, 16]"},
      {{codes, scale, zero, shape(2, 0)}, "{}", "expected 1..2147483647 each, found [2, 0]"},
      {{codes, scale, zero, shape(int64_t{1} << 31, 16)}, "{}", "expected 1..2147483647 each"},
      {{codes, scale, zero, shape(2, int64_t{1} << 31)}, "{}", "expected 1..2147483647 each"},
      {{codes, scale, zero, tensor("a.shape", "I64", "3")}, "{}", "expected [1, 2], found [3]"},
      {{codes, scale, zero, tensor("a.shape", "I32", "2")}, "{}", "dtype: expected I64, found I32"},
      {{codes, scale, zero, shape(2, 16), number("a.nbits", "I64", bytes_of<int64_t>({3}))}, "{}", "found 3 bits"},
      {{codes, scale, zero, shape(2, 16), number("a.nbits", "U8", "\x08")}, "{}", "found 8 bits"},
      {{codes, scale, zero, shape(2, 16), number("a.nbits", "F32", bytes_of<float>({8}))}, "{}", ""},
      {{codes, scale, zero, shape(2, 16), tensor("a.nbits", "I64", "2")}, "{}", ""},
      {{codes, scale, zero, shape(2, 16), tensor("a.nbits", "U8", "2")}, "{}", ""},
      {{codes, scale, zero, shape(2, 16), tensor("a.nbits", "I32", "2")}, "{}", ""},
      {{codes, scale, zero, shape(2, 16), number("a.group_size", "I32", bytes_of<int32_t>({8}))},
       "{}",
       "expected rows of a group of 8, found 16 columns"},
  });
}

TEST(LayersThatAreNotRead, OfBitsandbytes) {
  const TestTensor weight = tensor("a.weight", "U8", "8,1"), absmax = tensor("a.weight.absmax", "F32", "1"),
                   map = tensor("a.weight.quant_map", "F32", "16");
  const auto state = [](const std::string& text) {
    return tensor("a.weight.quant_state.bitsandbytes__nf4", "U8", std::to_string(text.size()), text);
  };
  const TestTensor good = state(R"({"blocksize":16,"shape":[1,16]})");
  expect_said({
      {{weight, absmax, map, good}, "{}", ""},
      {{weight, map, good}, "{}", "'a.weight.absmax' is in none of the files"},
      {{weight, absmax, tensor("a.weight.quant_map", "F32", "15"), good}, "{}", "expected [1, 16], found [15]"},
      {{weight, absmax, tensor("a.weight.quant_map", "F16", "16"), good}, "{}", "dtype: expected F32, found F16"},
      {{weight, absmax, map, state(R"({"blocksize":16,"shape":[1,1,1,16]})")},
       "{}",
       "expected a blocksize and a shape of two numbers"},
      {{weight, absmax, map, state(R"({"blocksize":16.5,"shape":[1,-16]})")},
       "{}",
       "expected a blocksize and a shape of two numbers"},
      {{weight, absmax, map, state(R"({"x":{"blocksize":16,"nested_blocksize":1,"nested_offset":1},"shape":[1,16]})")},
       "{}",
       "expected a blocksize and a shape of two numbers"},
      {{weight, absmax, map, state(R"({"blocksize":16,"shape":[1,16],"nested_blocksize":16})")},
       "{}",
       "expected a nested_blocksize up to 2147483647 and a nested_offset"},
      {{weight, absmax, map, state(R"({"blocksize":16,"shape":[1,16],"nested_offset":-1})")},
       "{}",
       "expected a nested_blocksize up to 2147483647 and a nested_offset"},
      {{weight, absmax, map, state(R"({"blocksize":16,"shape":[1,16],"nested_blocksize":16,"nested_offset":1})")},
       "{}",
       "nested_absmax' is in none of the files"},
      {{tensor("a.weight", "U8", "7,1"), absmax, map, good}, "{}", "expected 8 bytes for [1, 16], found 7"},
  });
}

TEST(LayersThatAreNotRead, OfCompressedTensors) {
  const TestTensor packed = tensor("a.weight_packed", "I32", "2,4"), scale = tensor("a.weight_scale", "F16", "2,1");
  const auto shape = [](const char* dtype, const char* dims, const std::string& bytes = "") {
    return tensor("a.weight_shape", dtype, dims, bytes);
  };
  const auto sparse = [](const char* values, const char* mask, std::vector<TestTensor> more = {}) {
    more.insert(more.begin(), {tensor("a.compressed", "F16", values), tensor("a.bitmask", "U8", mask)});
    return more;
  };
  expect_said({
      {{packed, scale, shape("I64", "2", bytes_of<int64_t>({2, 32}))}, "{}", ""},
      {{packed, scale, shape("I32", "2", bytes_of<int32_t>({2, 32}))}, "{}", ""},
      {{packed, scale, shape("F32", "2")}, "{}", "dtype: expected I64, I32, found F32"},
      {{packed, scale, shape("I64", "3")}, "{}", "expected [2, 1..2147483647], found [0, 0]"},
      {{packed, scale, shape("I32", "1")}, "{}", "expected [1, 2], found [1]"},
      {{packed, scale, shape("I64", "2", bytes_of<int64_t>({3, 32}))}, "{}", "expected [2, 1..2147483647], found [3, 32]"},
      {{packed, scale, shape("I64", "2", bytes_of<int64_t>({2, 0}))}, "{}", "expected [2, 1..2147483647], found [2, 0]"},
      {{packed}, "{}", "'a.weight_scale' is in none of the files"},
      {sparse("2,4", "2,1"), "{}", ""},
      {sparse("2,3", "2,1"), "{}", "expected the kept half of"},
      {sparse("0,4", "0,1"), "{}", "expected the kept half of"},
      {sparse("2,0", "2,0"), "{}", "expected the kept half of"},
      {sparse("2,2,2", "4,1"), "{}", "expected the kept half of"},
      {sparse("2,4", "2,2"), "{}", "expected [2, 1], found [2, 2]"},
      {sparse("2,4", "2,1", {tensor("a.shape", "I64", "2", bytes_of<int64_t>({2, 16}))}), "{}",
       "expected [2, 8], found [2, 16]"},
      {sparse("2,4", "2,1", {tensor("a.shape", "F32", "2")}), "{}", "dtype: expected I64, I32, found F32"},
      {{tensor("a.compressed", "F16", "2,4"), tensor("a.bitmask", "I8", "2,1")}, "{}", "dtype: expected U8, found I8"},
      {{tensor("a.compressed", "F16", "2,4")}, "{}", "'a.bitmask' is in none of the files"},
      {{tensor("a.weight", "I8", "2,2,2")}, "{}", nullptr},
      {{tensor("a.weight", "U8", "2,2,2"), tensor("a.weight_scale", "F16", "2,1")}, "{}", nullptr},
      {{tensor("a.weight", "U8", "4"), tensor("a.weight_scale", "U8", "1")}, "{}", nullptr},
      {{tensor("a.weight", "F8_E4M3", "2,2,2")}, "{}", ""},
      {{tensor("x_blocks", "U8", "2,2,1,15"), tensor("x_scales", "U8", "2,2,1")}, "{}", nullptr},
      {{tensor("x_blocks", "U8", "2,2,16"), tensor("x_scales", "U8", "2,2")}, "{}", nullptr},
      {{tensor("x_blocks", "U8", "2,2,1,16")}, "{}", "'x_scales' is in none of the files"},
  });
}

TEST(LayersThatAreNotRead, OfGptqAndAwq) {
  const auto q = [](const char* shape, const char* dtype = "I32") { return tensor("a.qweight", dtype, shape); };
  const auto s = [](const char* shape) { return tensor("a.scales", "F16", shape); };
  const auto z = [](const char* shape) { return tensor("a.qzeros", "I32", shape); };
  const std::string awq = quantization(R"("quant_method":"awq","bits":4,"group_size":64,"version":"gemv")"),
                    fast = quantization(R"("quant_method":"awq","bits":4,"group_size":64,"version":"gemv_fast")"),
                    odd = quantization(R"("quant_method":"awq","version":"odd")"),
                    three = quantization(R"("quant_method":"awq","bits":3)"),
                    planes = quantization(R"("quant_method":"gptq","checkpoint_format":"gptq_p")"),
                    v1 = quantization(R"("quant_method":"gptq","bits":4)"),
                    five = quantization(R"("quant_method":"gptq","bits":5)"),
                    nine = quantization(R"("quant_method":"gptq","bits":9)");
  expect_said({
      {{q("8"), s("1,8"), z("1,1")}, "{}", "cannot tell the layout"},
      {{q("1,8"), s("8"), z("1,1")}, "{}", "cannot tell the layout"},
      {{q("8,8"), s("8,8"), z("1,1")}, "{}", "cannot tell the layout"},
      {{q("8,8"), s("3,3"), z("1,1")}, "{}", "cannot tell the layout"},
      {{q("1,8"), s("1,8"), z("1,1")}, odd.c_str(), "cannot tell the layout (method 'awq', format 'odd')"},
      {{q("1,8"), s("1,8"), z("1,1")}, planes.c_str(), "the format gptq_p, which stores codes in planes of bits"},
      {{q("1,8"), s("1,8"), z("1,1")}, three.c_str(), "expected codes of 4 bits, found 3 bits"},
      {{q("5,8"), s("1,8"), z("1,2"), tensor("a.g_idx", "I32", "32")}, five.c_str(), "found 5 bits"},
      {{q("9,8"), s("1,8")}, nine.c_str(), "found 9 bits"},
      {{q("1,8"), z("1,1"), tensor("a.g_idx", "I32", "8")}, v1.c_str(), "'a.scales' is in none of the files"},
      {{q("4,16"), s("1,16"), z("1,2")}, "{}", "cannot tell GPTQ v1 (zeros less 1) from v2"},
      {{q("8,1"), s("1,8")}, "{}", "'a.qzeros' is in none of the files"},
      {{q("8,8"), s("8,16"), z("8,2")}, awq.c_str(), ""},
      {{q("2,64", "I16"), s("16,8"), tensor("a.scaled_zeros", "F16", "16,8")}, fast.c_str(), ""},
      {{q("4,32", "I16"), s("8,16"), tensor("a.scaled_zeros", "F16", "8,16")}, "{}", "a."},
  });
}

TEST(LayersThatAreNotRead, OfFloatsAndBytes) {
  const std::string block = quantization(R"("weight_block_size":[2,32])"), odd = quantization(R"("weight_block_size":[0,4])"),
                    method = quantization(R"("quant_method":"fp8")"), columns = quantization(R"("weight_block_size":[2,0,7])");
  const TestTensor e4m3 = tensor("a.weight", "F8_E4M3", "4,8");
  const auto torchao = [](const char* type, const char* codes, const char* scales, const char* zeros) {
    return std::vector<TestTensor>{tensor("a._weight_qdata", type, codes), tensor("a._weight_scale", "BF16", scales),
                                   tensor("a._weight_zero_point", "BF16", zeros)};
  };
  expect_said({
      {{tensor("a.weight", "F32", "2,2,2")}, "{}", nullptr},
      {{tensor("a.weight", "F32", "8")}, "{}", nullptr},
      {{tensor("a_exps.weight", "F32", "2,2,2")}, "{}", ""},
      {{tensor("a.switch_mlp.weight", "F32", "2,2,2")}, "{}", ""},
      {{tensor("a.expert.weight", "F32", "0,2,2")}, "{}", "n, k, experts: expected 1..2147483647 each"},
      {{tensor("a.weight", "F32", "2,0")}, "{}", "n, k, experts: expected 1..2147483647 each"},
      {{e4m3}, block.c_str(), ""},
      {{e4m3}, method.c_str(), "'a.weight_scale' is in none of the files"},
      {{tensor("a.weight", "F8_E4M3", "4,64"), tensor("a.weight_scale", "F32", "2,2")}, block.c_str(), ""},
      {{e4m3, tensor("a.weight_scale", "F32", "2,2")}, odd.c_str(), "a.weight_scale"},
      {{e4m3, tensor("a.weight_scale", "F32", "2,2")}, columns.c_str(), "a.weight_scale"},
      {{e4m3, tensor("a.weight_scale", "F32", "4")}, "{}", ""},
      {{e4m3, tensor("a.weight_scale", "F8_E8M0", "4,1")}, "{}", ""},
      {{tensor("a.weight", "F8_E4M3", "4,64"), tensor("a.weight_scale", "F8_E8M0", "4,2")}, "{}", ""},
      {torchao("U8", "2,8", "1,2", "1,2"), "{}", "expected I8 codes in two dimensions"},
      {torchao("I8", "16", "1,2", "1,2"), "{}", "expected I8 codes in two dimensions"},
      {torchao("I8", "2,0", "1,2", "1,2"), "{}", "expected I8 codes in two dimensions"},
      {torchao("I8", "2,8", "2", "1,2"), "{}", "expected two dimensions, found 1"},
      {torchao("I8", "2,8", "1,2", "0,2"), "{}", "expected two dimensions"},
      {torchao("I8", "2,8", "3,2", "3,2"), "{}", "expected groups that divide K = 16, found 3 of them"},
  });
}

TEST(LayersThatAreNotRead, OfTorchAoWithTooManyCodes) {
  expect_said({{{{"a._weight_qdata", "I8", "0,1073741824", ""},
                 tensor("a._weight_scale", "BF16", "1,2"),
                 tensor("a._weight_zero_point", "BF16", "1,2")},
                "{}",
                "expected up to 2147483647 codes a row"}});
}

TEST(LayersThatAreNotRead, OfGgufFloatsWithAScale) {
  GgufWriter file;
  file.tensor("a.weight", {32, 1}, 0, std::string(128, '\0'));
  file.tensor("a.scale", {1}, 0, std::string(4, '\0'));
  const auto opened = must(open_memory({{"f.gguf", file.file()}}));
  EXPECT_THAT(opened->layer(0).status.message(), HasSubstr("floats with a tensor of scale beside them are not read"));
  const Status none = opened->source(7, 0, {}).status();
  EXPECT_EQ(none.code(), MARLIN_E_NOT_FOUND);
  EXPECT_STREQ(none.message(), "layer 7: the checkpoint has 1");
}

/// Experts that were gathered are of the same files as before.
TEST(GatheredExperts, KnowTheirFiles) {
  const auto opened =
      open_memory({{"f.safetensors",
                    safetensors({tensor("experts.0.w.weight", "F32", "1,2"), tensor("experts.1.w.weight", "F32", "1,2")})}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened.value()->layer(0).experts, 2u);
  EXPECT_FALSE(opened.value()->origin().is_gguf);
  EXPECT_FALSE(opened.value()->has_read({}));
}

}  // namespace
}  // namespace metal_marlin::testing
