// Layers that are quantized already go to GGUF and MLX without changing a value, or the plan says that this is not possible.
#include <ostream>

#include "convert_files.h"
#include "fails.h"
#include "formats/recode.h"
#include "layouts/layout_table.h"
#include "test.h"

namespace metal_marlin {
namespace {

using testing::ScratchFolder;

struct Case {
  const char* folder;
  marlin_format gguf;  ///< what the first layer becomes; NONE: no type holds it
  marlin_format mlx;
  int64_t mlx_group;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.folder; }  // NOLINT: GoogleTest's name

constexpr Case kCases[] = {
    {"gptq-v1-sym-g128", MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT4, 128},
    {"gptq-v1-sym-column", MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT4, 32},
    {"gptq-v2-asym-g32", MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT4, 32},
    {"gptq-v1-asym-g64-actorder", MARLIN_FORMAT_NONE, MARLIN_FORMAT_NONE, 0},
    {"gptq-3bit-v2-asym-g32", MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT3, 32},
    {"gptq-2bit-v2-asym-column", MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT2, 32},
    {"gptq-8bit-v1-sym-g128", MARLIN_FORMAT_INT8, MARLIN_FORMAT_UINT8, 128},
    {"gptq-8bit-v2-asym-g32", MARLIN_FORMAT_NONE, MARLIN_FORMAT_UINT8, 32},
    {"awq-gemm-g128", MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT4, 128},
    {"awq-gemv-g64", MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT4, 64},
    {"hqq-4bit-g64-axis1", MARLIN_FORMAT_NONE, MARLIN_FORMAT_INT4, 64},
    {"ct-int4-asym-g32", MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT4, 32},
    {"ct-int4-sym-g64-actorder", MARLIN_FORMAT_NONE, MARLIN_FORMAT_NONE, 0},
    {"ct-pack8-asym-g32", MARLIN_FORMAT_NONE, MARLIN_FORMAT_UINT8, 32},
    {"ct-mxfp4", MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NONE, 0},
    {"ct-fp8-channel", MARLIN_FORMAT_NONE, MARLIN_FORMAT_NONE, 0},
    {"bnb-nf4-b64", MARLIN_FORMAT_NONE, MARLIN_FORMAT_NONE, 0},
    {"mlx-affine-g64", MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT4, 64},
    {"mlx-affine-5bit-g128", MARLIN_FORMAT_INT5, MARLIN_FORMAT_INT5, 128},
    {"mlx-affine-6bit-g64", MARLIN_FORMAT_NONE, MARLIN_FORMAT_INT6, 64},
};

class Exact : public ::testing::TestWithParam<Case> {
 protected:
  /// Converts the first layer of a folder of tests/data that is quantized, without a format.
  Status convert(const std::string& out, marlin_scheme scheme) {
    input_ = Checkpoint::open(std::string(MARLIN_TEST_DATA) + "/" + GetParam().folder, MARLIN_LAYOUT_AUTO).take();
    ConvertOptions options;
    options.scheme = scheme;
    for (size_t i = 0; i < input_->layers().size(); ++i) {
      if (input_->layers()[i].format != MARLIN_FORMAT_NONE) options.layers.push_back(i);
    }
    options.host = heard_.host();
    return convert_checkpoint(*input_, scratch_.at(out), options);
  }

  std::vector<float> values(const Checkpoint& checkpoint, size_t layer) const {
    const auto source = checkpoint.source(layer, 0, {});
    EXPECT_TRUE(source.ok()) << source.status().message();
    std::vector<float> values = testing::decode_all(*source.value()).value();
    for (float& v : values) v = v == 0 ? 0.0f : v;  // a zero may lose its sign
    return values;
  }

  void expect_same(const std::string& out, marlin_format format, int64_t group) {
    const auto output = must(Checkpoint::open(scratch_.at(out), MARLIN_LAYOUT_AUTO));
    EXPECT_EQ(output->layers()[0].format, format);
    if (group != 0) {
      EXPECT_EQ(output->layers()[0].group_size, group);
    }
    ASSERT_EQ(output->layers().size(), input_->layers().size());
    for (size_t i = 0; i < input_->layers().size(); ++i) {
      if (input_->layers()[i].format == MARLIN_FORMAT_NONE) continue;
      const auto got = values(*output, i), want = values(*input_, i);
      ASSERT_EQ(got.size(), want.size());
      for (size_t j = 0; j < got.size(); ++j) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[j]), std::bit_cast<uint32_t>(want[j]))
            << "layer " << i << ", element " << j << ": " << got[j] << " and not " << want[j];
      }
    }
    for (const marlin_convert_outcome& outcome : heard_.outcomes) {
      EXPECT_NE(outcome.flags & MARLIN_LAYER_EXACT, 0u);
      EXPECT_EQ(outcome.squared_error, 0);
      EXPECT_GT(outcome.squared_norm, 0);
    }
    EXPECT_TRUE(heard_.log.empty()) << heard_.log[0];
  }

  void check(const std::string& out, marlin_scheme scheme, marlin_format format, int64_t group) {
    const Status status = convert(out, scheme);
    if (format != MARLIN_FORMAT_NONE) {
      ASSERT_TRUE(status.ok()) << status.message();
      return expect_same(out, format, group);
    }
    EXPECT_THAT(status, Fails(MARLIN_E_UNSUPPORTED, HasSubstr("exactly; name a format to quantize them again")));
    EXPECT_TRUE(scratch_.names().empty()) << "a failure left a file";
  }

  ScratchFolder scratch_;
  std::unique_ptr<Checkpoint> input_;
  testing::Heard heard_;
};

TEST_P(Exact, ToGguf) { check("out.gguf", MARLIN_SCHEME_GGUF, GetParam().gguf, 0); }
TEST_P(Exact, ToMlx) { check("out", MARLIN_SCHEME_MLX, GetParam().mlx, GetParam().mlx_group); }

INSTANTIATE_TEST_SUITE_P(All, Exact, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.folder;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// K-quants: bits to GGUF, values to MLX.
class KQuants : public Exact {};
TEST_P(KQuants, KeepTheirBitsInGguf) {
  ASSERT_TRUE(convert("out.gguf", MARLIN_SCHEME_GGUF).ok());
  const auto output = Checkpoint::open(scratch_.at("out.gguf"), MARLIN_LAYOUT_AUTO).take();
  for (const auto& layer : input_->layers())
    EXPECT_EQ(testing::tensor_data(*output, layer.name), testing::tensor_data(*input_, layer.name)) << layer.name;
}
INSTANTIATE_TEST_SUITE_P(Gguf, KQuants,
                         ::testing::Values(Case{"gguf-kquants", 0, 0, 0}, Case{"gguf-kquants-extreme", 0, 0, 0},
                                           Case{"gguf-llama-q4km", 0, 0, 0}, Case{"gguf-experts-q4k", 0, 0, 0}),
                         [](const auto& info) { return "Case" + std::to_string(info.index); });

class Mixed : public Exact {};
/// Of ten types of blocks, MLX holds some exactly; the others are quantized again, and both are told.
TEST_P(Mixed, GoesToMlxAsExactlyAsItCan) {
  const auto input = Checkpoint::open(MARLIN_TEST_DATA "/gguf-kquants", MARLIN_LAYOUT_AUTO).take();
  ConvertOptions options;
  options.scheme = MARLIN_SCHEME_MLX;
  options.format = MARLIN_FORMAT_UINT8;
  for (size_t i = 0; i < input->layers().size(); ++i) options.layers.push_back(i);
  options.host = heard_.host();
  must(convert_checkpoint(*input, scratch_.at("out"), options));
  const auto output = Checkpoint::open(scratch_.at("out"), MARLIN_LAYOUT_AUTO).take();
  size_t exact = 0;
  for (size_t i = 0; i < input->layers().size(); ++i) {
    const marlin_convert_outcome& outcome = heard_.outcomes[i];
    const bool fits = (outcome.flags & MARLIN_LAYER_EXACT) != 0;
    exact += fits ? 1 : 0;
    EXPECT_EQ(values(*output, i) == values(*input, i), fits) << heard_.names[i];
    EXPECT_EQ(outcome.squared_error == 0, fits) << heard_.names[i];
    // Groups of 16 and two-level codebooks have no place in MLX.
    const marlin_format from = input->layers()[i].format;
    const bool could = input->layers()[i].group_size == 32 && from != MARLIN_FORMAT_IQ4;
    EXPECT_TRUE(fits || !could) << heard_.names[i];
  }
  EXPECT_GE(exact, 4u);
  EXPECT_EQ(heard_.log.size(), input->layers().size() - exact);
  EXPECT_THAT(heard_.log[0], HasSubstr("decoded and quantized again"));
}
INSTANTIATE_TEST_SUITE_P(Gguf, Mixed, ::testing::Values(Case{"gguf-kquants", 0, 0, 0}), [](const auto&) { return "ToMlx"; });

WeightMeta int4(ZeroKind zeros, int64_t group) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 1;
  meta.k = 32;
  meta.group_size = group;
  meta.groups = 32 / group;
  meta.zero_kind = zeros;
  return meta;
}

TEST(Recode, EveryCodeAndZeroOfFourBitsFitsIntoFive) {
  WeightMeta from = int4(ZeroKind::integer, 32), to = gguf_meta(*gguf_type("Q5_0"), 1, 32);
  ASSERT_TRUE(may_recode(from, to));
  for (int zero = 0; zero <= 16; ++zero) {
    Stripe in, out;
    for (int i = 0; i < 32; ++i) in.codes.push_back(static_cast<uint8_t>(i % 16));
    in.scales = {0x01, 0x3c};
    in.zeros = {static_cast<uint8_t>(zero)};
    ASSERT_TRUE(recode(from, in, to, 1, out)) << zero;
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out.codes[i] - 16, i % 16 - zero);
    // Four bits hold them only if the zero is 8.
    EXPECT_EQ(recode(from, in, gguf_meta(*gguf_type("Q4_0"), 1, 32), 1, out), zero == 8) << zero;
  }
}

TEST(Recode, AdditiveZerosMustBeExact) {
  const WeightMeta from = int4(ZeroKind::integer, 32), to = gguf_meta(*gguf_type("Q4_1"), 1, 32);
  ASSERT_TRUE(may_recode(from, to));
  Stripe in, out;
  in.codes.assign(32, 3);
  in.scales = {0x00, 0x3c};  // 1
  in.zeros = {5};
  ASSERT_TRUE(recode(from, in, to, 1, out));
  EXPECT_THAT(out.zeros, ElementsAre(0x00, 0xc5));  // -5
  in.scales = {0x01, 0x3c};                         // 1 + 2^-10: times 5 it has 13 bits
  EXPECT_FALSE(recode(from, in, to, 1, out));
}

TEST(Recode, WhatMetasRuleOut) {
  const WeightMeta from = int4(ZeroKind::integer, 32), q8 = gguf_meta(*gguf_type("Q8_0"), 1, 32);
  EXPECT_TRUE(may_recode(from, q8));
  WeightMeta other = from;
  other.group_index.assign(32, 0);
  EXPECT_FALSE(may_recode(other, q8));
  other = from;
  other.sparse = true;
  EXPECT_FALSE(may_recode(other, q8));
  other = from;
  other.group_size = 16, other.groups = 2;
  EXPECT_FALSE(may_recode(other, q8)) << "two groups have no common scale";
  other = from;
  other.zero_kind = ZeroKind::additive;
  EXPECT_FALSE(may_recode(other, q8));
  other = from;
  other.format = MARLIN_FORMAT_NF4;
  EXPECT_FALSE(may_recode(other, q8));
  other = from;
  other.k = 64;
  EXPECT_FALSE(may_recode(other, q8));
  EXPECT_FALSE(may_recode(from, gguf_meta(*gguf_type("IQ4_NL"), 1, 32)));
  EXPECT_FALSE(may_recode(from, gguf_meta(*gguf_type("Q4_K"), 1, 32)));
}

/// What the host and the disk see of a conversion: the first tasks behind the begin of the output decode the floats.
struct ChangingInput final : NameChanges {
  std::string path;
  bool writes = false, changed = false;

  int open_nameless(const char* folder) noexcept override {
    writes = true;
    return NameChanges::open_nameless(folder);
  }
  static void run(void* user, uint32_t tasks, void (*task)(void*, uint32_t), void* of_task) {
    for (uint32_t i = 0; i < tasks; ++i) task(of_task, i);
    auto& input = *static_cast<ChangingInput*>(user);
    if (!input.writes || std::exchange(input.changed, true)) return;
    std::fstream file(input.path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end).put('\x11');
  }
};

/// Another process writes to the file between the decoding of the floats and the reading of the codes.
TEST(ExactLayers, AnInputThatChangesMeanwhileIsAnError) {
  const ScratchFolder scratch;
  std::string blocks;
  for (int i = 0; i < 128 * 128; ++i) blocks += testing::bytes_of<uint16_t>({0x3c00}) + std::string(16, '\x99');
  testing::GgufWriter file;
  file.tensor("a.weight", {4096, 128}, 2, blocks);  // Q4_0, two stripes
  ChangingInput input;
  input.path = scratch.at("in.gguf");
  testing::write_file(input.path, file.file());
  const auto opened = Checkpoint::open(input.path, MARLIN_LAYOUT_AUTO).take();
  ConvertOptions how;
  how.scheme = MARLIN_SCHEME_GGUF;
  how.layers = {0};
  how.host.user = &input;
  how.host.parallel_for = &ChangingInput::run;
  how.names = &input;
  const Status status = convert_checkpoint(*opened, scratch.at("out.gguf"), how);
  EXPECT_TRUE(input.changed);
  EXPECT_EQ(status.code(), MARLIN_E_INTERNAL);
  EXPECT_STREQ(status.message(), "layer 'a.weight': values changed that were to stay");
  EXPECT_EQ(scratch.names(), std::set<std::string>{"in.gguf"});
}

}  // namespace
}  // namespace metal_marlin
