// The decoder of examples/llm on the library's Metal backend, through the C ABI: every dispatch is checked, a finding is a
// failure, and its logits are those of the CPU backend.
#include <cmath>
#include <fstream>
#include <random>

#include "examples/llm/model.h"
#include "examples/llm/sampler.h"
#include "fixture.h"
#include "unit/checkpoint_files.h"

namespace metal_marlin::metal {

namespace {

using llm::HyperParameters;
using llm::Token;
using testing::append;

constexpr size_t kPrompt = 4;

/// A model of random weights in a GGUF of ragged sizes; the layer whose rows are no multiple of a block is left in floats.
class MadeModel {
 public:
  static constexpr HyperParameters kHyper = {
      .layers = 2, .width = 96, .feed_forward = 160, .heads = 3, .key_value_heads = 1, .head_size = 16};
  static constexpr int64_t kVocabulary = 75;
  /// The same with a mixture of experts in each block.
  static HyperParameters mixture() {
    HyperParameters hyper = kHyper;
    hyper.architecture.mixtures = true;
    hyper.experts = 5, hyper.experts_used = 2;
    return hyper;
  }

  /// The same as gpt-oss has it: with biases, sinks and another epilogue.
  static HyperParameters oss() {
    HyperParameters hyper = mixture();
    hyper.architecture.qkv_bias = hyper.architecture.all_biases = hyper.architecture.sinks = true;
    hyper.architecture.swiglu_oai = true;
    return hyper;
  }

  explicit MadeModel(const HyperParameters& hyper) : hyper_(hyper) {}
  std::string file() {
    const auto& h = hyper_;
    const int64_t queries = h.heads * h.head_size, keys = h.key_value_heads * h.head_size;
    q8_0("token_embd", kVocabulary, h.width);
    norm("output_norm");
    for (int64_t i = 0; i < h.layers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      norm(block + "attn_norm"), norm(block + "ffn_norm");
      q4_1(block + "attn_q", queries, h.width), q4_1(block + "attn_k", keys, h.width), q4_1(block + "attn_v", keys, h.width);
      f16(block + "attn_output", h.width, queries);
      if (h.architecture.all_biases) biases(block, queries, keys);
      const std::string stack = h.architecture.mixtures ? "_exps" : "";
      if (h.architecture.mixtures) router(block + "ffn_gate_inp");
      // In the second block gate and up are two handles.
      q4_1(block + "ffn_gate" + stack, h.feed_forward, h.width, h.experts);
      if (h.architecture.mixtures && i == 1)
        q8_0(block + "ffn_up" + stack, h.feed_forward, h.width, h.experts);
      else
        q4_1(block + "ffn_up" + stack, h.feed_forward, h.width, h.experts);
      q4_1(block + "ffn_down" + stack, h.width, h.feed_forward, h.experts);
    }
    return gguf_.file();
  }

 private:
  // In [-1, 1], times what makes the sum of k products about as large as one activation.
  float draw(int64_t k = 3) { return (static_cast<float>(random_() % 2001) / 1000 - 1) * std::sqrt(3 / static_cast<float>(k)); }
  template <class Element>
  void tensor(const std::string& name, int64_t n, int64_t k, int64_t experts, int32_t type, int64_t step,
              const Element& element) {
    std::string data;
    for (int64_t i = 0; i < experts * n * k; i += step) element(data);
    if (experts == 1)
      gguf_.tensor(name + ".weight", {k, n}, type, data);
    else
      gguf_.tensor(name + ".weight", {k, n, experts}, type, data);
  }
  void norm(const std::string& name) { floats(name + ".weight", hyper_.width, 1); }
  void floats(const std::string& name, int64_t n, float mean) {
    std::string data;
    for (int64_t i = 0; i < n; ++i) append(data, mean + draw() / 4);
    gguf_.tensor(name, {n}, 0, data);
  }
  void biases(const std::string& block, int64_t queries, int64_t keys) {
    const auto& h = hyper_;
    floats(block + "attn_sinks.weight", h.heads, 1);
    floats(block + "attn_q.bias", queries, 0), floats(block + "attn_k.bias", keys, 0), floats(block + "attn_v.bias", keys, 0);
    floats(block + "attn_output.bias", h.width, 0), floats(block + "ffn_gate_inp.bias", h.experts, 0);
    floats(block + "ffn_gate_exps.bias", h.experts * h.feed_forward, 0);
    floats(block + "ffn_up_exps.bias", h.experts * h.feed_forward, 0);
    floats(block + "ffn_down_exps.bias", h.experts * h.width, 0);
  }
  void f16(const std::string& name, int64_t n, int64_t k) {
    tensor(name, n, k, 1, 1, 1, [&](std::string& data) { append(data, static_cast<_Float16>(draw(k))); });
  }
  // The logits are far apart: another expert would be another model, whatever it has to do with rounding.
  void router(const std::string& name) {
    tensor(name, hyper_.experts, hyper_.width, 1, 0, 1, [&](std::string& data) { append(data, 8 * draw(hyper_.width)); });
  }
  void q4_1(const std::string& name, int64_t n, int64_t k, int64_t experts = 1) {
    tensor(name, n, k, experts, 3, 32, [&](std::string& data) {
      const float step = std::fabs(draw(k)) / 7;
      append(data, static_cast<_Float16>(step)), append(data, static_cast<_Float16>(-7 * step));
      for (int i = 0; i < 16; ++i) append(data, static_cast<uint8_t>(random_()));
    });
  }
  void q8_0(const std::string& name, int64_t n, int64_t k, int64_t experts = 1) {
    tensor(name, n, k, experts, 8, 32, [&](std::string& data) {
      append(data, static_cast<_Float16>(std::fabs(draw(experts == 1 ? 3 : k)) / 127));
      for (int i = 0; i < 32; ++i) append(data, static_cast<uint8_t>(random_()));
    });
  }

  HyperParameters hyper_;
  std::mt19937 random_{1};
  testing::GgufWriter gguf_;
};

double rms(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class Decoder : public DeviceTest, public ::testing::WithParamInterface<marlin_compute> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    unsetenv("HOME");  // so that the backend keeps nothing that it compiled, and adding it to an archive counts for no pipeline
    std::filesystem::create_directories(cache);
  }
  static void count_pipeline(void* user) {
    static_cast<Decoder*>(user)->pipelines++;
    metal_test::settings()->in_pipeline = [call = count_pipeline, user = user] { call(user); };
  }

  /// The logits of every position of `text`: the first kPrompt tokens at once, the others one at a time. A text that is shorter
  /// than `length` goes on with the most probable tokens.
  std::vector<float> logits(marlin_backend backend, marlin_compute compute, std::vector<Token>& text, size_t length) {
    llm::ModelOptions options;
    options.backend = backend;
    options.compute = compute;
    options.threads = 1;
    options.context = 8, options.block = kPrompt;
    llm::Model model(path, hyper, options);
    metal_test::settings()->in_pipeline = [call = count_pipeline, user = this] { call(user); };
    metal_test::settings()->fail[metal_test::Fault::allocation] = 2;  // the first is that of the logits
    std::vector<float> all;
    llm::Sampler most_probable(0, 1, 1);
    std::span<const float> step = model.run(std::span(text).first(kPrompt), kPrompt);
    for (size_t at = kPrompt;; ++at) {
      all.insert(all.end(), step.begin(), step.end());
      if (at == length) return all;
      if (at == text.size()) text.push_back(most_probable.choose(step.last(static_cast<size_t>(model.vocabulary()))));
      step = model.run({&text[at], 1}, 1);
    }
  }

  void expect_those_of_the_cpu(std::vector<Token>& text, size_t length) {
    const std::vector<float> found = logits(MARLIN_BACKEND_METAL, GetParam(), text, length);
    EXPECT_EQ(pipelines, 1) << "more than the rows of the embedding is compiled when the first tokens wait for it";
    const std::vector<float> expected = logits(MARLIN_BACKEND_CPU, GetParam(), text, length);
    ASSERT_EQ(found.size(), expected.size());
    double allowed;
    if (GetParam() == MARLIN_COMPUTE_DEFAULT) {
      // Both sum in FP32, in another order: of up to 1536 products, about sqrt(1536) roundings of 2^-24, taken as 64 a layer.
      allowed = 0x1p-18 * std::sqrt(static_cast<double>(hyper.layers)) * rms(expected, std::vector<float>(expected.size()));
    } else {
      // A last bit may send an activation to INT8's next step, and then the errors of the backends have nothing in common. If
      // each is as large as that of the CPU, they differ by at most twice as much.
      allowed = 2 * rms(expected, logits(MARLIN_BACKEND_CPU, MARLIN_COMPUTE_DEFAULT, text, length));
    }
    EXPECT_LE(rms(found, expected), allowed);
  }

  void expect_those_of_the_cpu_for(const HyperParameters& made) {
    path = cache + "/made.gguf";
    std::ofstream(path, std::ios::binary) << MadeModel(made).file();
    hyper = made;
    std::vector<Token> text = {3, 74, 0, 41};
    expect_those_of_the_cpu(text, 7);
  }

  std::string path;
  HyperParameters hyper;
  int pipelines = 0;
};

TEST_P(Decoder, OfAMadeModel) { expect_those_of_the_cpu_for(MadeModel::kHyper); }

TEST_P(Decoder, OfAMadeMixture) { expect_those_of_the_cpu_for(MadeModel::mixture()); }

TEST_P(Decoder, OfAMadeGptOss) { expect_those_of_the_cpu_for(MadeModel::oss()); }

TEST_P(Decoder, OfTheChatsModel) {
  const char* const model = std::getenv("METAL_MARLIN_CHAT_MODEL");
  if (model == nullptr || !std::filesystem::exists(model))
    GTEST_SKIP() << "METAL_MARLIN_CHAT_MODEL names no model; ./dev chat fetches one into build/chat";
  path = model;
  const llm::Metadata metadata(path);
  hyper = llm::hyper_parameters(metadata);
  const llm::Tokenizer tokenizer(metadata);
  std::vector<Token> text = tokenizer.encode("The capital of France");
  ASSERT_EQ(text.size(), kPrompt);
  expect_those_of_the_cpu(text, 5);
  EXPECT_EQ(tokenizer.bytes(text.back()), " is");
}

INSTANTIATE_TEST_SUITE_P(, Decoder, ::testing::Values(MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8),
                         [](const auto& info) { return info.param == MARLIN_COMPUTE_INT8 ? "Int8" : "Default"; });

}  // namespace
}  // namespace metal_marlin::metal
