// What is written is read back to the very values that quantizing in memory gives: every scheme and format over ragged shapes.
#include <ostream>

#include "convert_files.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::convert_round_trip_tests {
namespace {

using testing::ScratchFolder;

struct Case {
  const char* name;
  marlin_scheme scheme;
  marlin_format format;
  int64_t group;
  bool asymmetric, mse;
  int64_t n, k;
  const char* dtype;
  Sparsity sparsity = Sparsity::as_given;
  const char* type = nullptr;  ///< of GGUF's blocks
  bool norms = false;
};
/// The weights of a scheme with additive zeros.
WeightMeta affine_meta(const Case& c, int64_t group) {
  WeightMeta meta;
  meta.format = c.format;
  meta.n = c.n;
  meta.k = c.k;
  meta.group_size = group;
  meta.groups = c.k / group;
  meta.zero_kind = ZeroKind::additive;
  return meta;
}
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }  // NOLINT: GoogleTest's name

class RoundTrip : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr const char* kLayer = "model.layers.0.mlp.up_proj";
  bool gguf() const { return GetParam().scheme == MARLIN_SCHEME_GGUF; }

  void SetUp() override {
    const Case& c = GetParam();
    floats_ = testing::random_floats(c.n, c.k, c.dtype, 7);
    for (int64_t i = 0; i < c.k; ++i) norms_.push_back(static_cast<float>(i % 7));
    std::filesystem::create_directory(scratch_.at("in"));
    testing::write_file(scratch_.at("in/model.safetensors"),
                        testing::safetensors({{std::string(kLayer) + ".weight", c.dtype,
                                               std::to_string(c.n) + "," + std::to_string(c.k), floats_},
                                              {"model.norm.weight", "F32", "3", testing::bytes_of<float>({1, 2, 3})}}));
    input_ = Checkpoint::open(scratch_.at("in"), MARLIN_LAYOUT_AUTO).take();
  }

  ConvertOptions options() {
    const Case& c = GetParam();
    ConvertOptions options;
    options.scheme = c.scheme;
    options.format = c.format;
    options.group_size = c.group;
    options.asymmetric = c.asymmetric;
    options.search_mse = c.mse;
    options.sparsity = c.sparsity;
    options.layers = testing::layers_called(*input_, {kLayer});
    options.host = heard_.host();
    if (c.type != nullptr) options.types = {gguf_type(c.type)};
    if (c.norms) options.column_norms = {norms_};
    return options;
  }

  /// What the options ask for, made in memory.
  Result<std::unique_ptr<WeightSource>> made(const FloatMatrix& matrix, int64_t group) const {
    const Case& c = GetParam();
    if (c.type != nullptr && is_fitted(gguf_meta(*gguf_type(c.type), c.n, c.k)))
      return make_fitted(matrix, gguf_meta(*gguf_type(c.type), c.n, c.k), c.norms ? norms_ : std::vector<float>());
    if (c.scheme == MARLIN_SCHEME_MLX)
      return make_fitted(matrix, affine_meta(c, group), c.norms ? norms_ : std::vector<float>());
    return make_quantized(matrix, c.format, group,
                          {.asymmetric = c.asymmetric,
                           .search_mse = c.mse,
                           .divide_tensor_scale = c.scheme == MARLIN_SCHEME_COMPRESSED_TENSORS,
                           .sparse = {c.sparsity, c.norms ? norms_ : std::vector<float>()}});
  }

  /// The values that the output must have.
  std::vector<float> expected(const Checkpoint& output) const {
    const Case& c = GetParam();
    const marlin_dtype dtype = c.dtype == std::string("F32")   ? MARLIN_F32
                               : c.dtype == std::string("F16") ? MARLIN_F16
                                                               : MARLIN_BF16;
    const FloatMatrix matrix{floats_.data(), dtype, c.n, c.k, c.k, "floats"};
    const auto source = must(made(matrix, output.layers()[0].group_size));
    std::vector<float> values = testing::decode_all(*source).value();
    // The FP4 codes of ggml have no negative zero.
    if (gguf() && (c.format == MARLIN_FORMAT_MXFP4 || c.format == MARLIN_FORMAT_NVFP4)) {
      for (float& v : values) v = v == 0 ? 0.0f : v;
    }
    return values;
  }

  ScratchFolder scratch_;
  std::string floats_;
  std::vector<float> norms_;
  std::unique_ptr<Checkpoint> input_;
  testing::Heard heard_;
};

TEST_P(RoundTrip, ReadsBackBitForBit) {
  const Case& c = GetParam();
  const Status status = convert_checkpoint(*input_, scratch_.at("out"), options());
  ASSERT_TRUE(status.ok()) << status.message();
  const auto output = must(Checkpoint::open(scratch_.at("out"), MARLIN_LAYOUT_AUTO));
  ASSERT_EQ(output->layers().size(), 1u);
  const Layer& layer = output->layers()[0];
  ASSERT_TRUE(layer.status.ok()) << layer.status.message();
  EXPECT_EQ(layer.name, std::string(kLayer) + (gguf() ? ".weight" : ""));
  EXPECT_EQ(layer.format, c.format);
  EXPECT_EQ(layer.n, c.n);
  EXPECT_EQ(layer.k, c.k);
  const auto source = must(output->source(0, 0, {}));
  const auto got = testing::decode_all(*source).value(), want = expected(*output);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << "row " << i / c.k << ", column " << i % c.k << ": " << got[i] << " and not " << want[i];
  }
  EXPECT_EQ(testing::tensor_data(*output, "model.norm.weight"), testing::bytes_of<float>({1, 2, 3}));
}

TEST_P(RoundTrip, TheHostHearsWhatWasDone) {
  const Case& c = GetParam();
  ASSERT_TRUE(convert_checkpoint(*input_, scratch_.at("out"), options()).ok());
  ASSERT_EQ(heard_.outcomes.size(), 1u);
  const marlin_convert_outcome& outcome = heard_.outcomes[0];
  EXPECT_EQ(heard_.names[0], kLayer);
  EXPECT_EQ(outcome.status, MARLIN_OK);
  EXPECT_EQ(outcome.from, MARLIN_FORMAT_NONE);
  EXPECT_EQ(outcome.format, c.format);
  EXPECT_EQ(outcome.bytes_before, floats_.size());
  EXPECT_EQ(heard_.done, heard_.total);
  EXPECT_EQ(heard_.total, floats_.size() + 12);
  const auto output = Checkpoint::open(scratch_.at("out"), MARLIN_LAYOUT_AUTO).take();
  const std::vector<float> values = expected(*output);
  std::vector<float> originals(values.size());
  decode_floats(c.dtype == std::string("F32")   ? MARLIN_F32
                : c.dtype == std::string("F16") ? MARLIN_F16
                                                : MARLIN_BF16,
                floats_.data(), c.n * c.k, originals.data());
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += (double{values[i]} - originals[i]) * (double{values[i]} - originals[i]);
    norm += double{originals[i]} * originals[i];
  }
  EXPECT_NEAR(outcome.squared_error, error, 1e-9 * error);
  EXPECT_NEAR(outcome.squared_norm, norm, 1e-9 * norm);
  if (c.sparsity == Sparsity::as_given) {
    EXPECT_EQ(outcome.kept_norm, outcome.squared_norm);
    EXPECT_LT(error, 0.05 * norm);
  } else {  // of normal numbers, the two largest of four keep about nine tenths
    EXPECT_EQ(outcome.flags & MARLIN_LAYER_SPARSE_2_4, MARLIN_LAYER_SPARSE_2_4);
    EXPECT_LT(outcome.kept_norm, 0.97 * norm);
    EXPECT_GT(outcome.kept_norm, 0.8 * norm);
    EXPECT_GE(error, norm - outcome.kept_norm);
  }
}

constexpr auto kCt = MARLIN_SCHEME_COMPRESSED_TENSORS;
constexpr Case kCases[] = {
    {"ct_mxfp4", kCt, MARLIN_FORMAT_MXFP4, 0, false, false, 130, 96, "F32"},
    {"ct_mxfp4_one_row", kCt, MARLIN_FORMAT_MXFP4, 0, false, true, 1, 32, "BF16"},
    {"ct_nvfp4", kCt, MARLIN_FORMAT_NVFP4, 0, false, false, 67, 48, "BF16"},
    {"ct_nvfp4_mse", kCt, MARLIN_FORMAT_NVFP4, 0, false, true, 3, 208, "F16"},
    {"ct_int4", kCt, MARLIN_FORMAT_INT4, 32, false, false, 131, 160, "F16"},
    {"ct_int4_g128", kCt, MARLIN_FORMAT_INT4, 128, false, true, 5, 256, "F32"},
    {"ct_int4_channel_ragged", kCt, MARLIN_FORMAT_INT4, 4096, false, false, 9, 37, "F32"},
    {"ct_int4_asymmetric", kCt, MARLIN_FORMAT_INT4, 32, true, false, 77, 64, "BF16"},
    {"gptq", MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4, 0, false, false, 72, 96, "F16"},
    {"gptq_g128_asymmetric", MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4, 128, true, true, 200, 256, "BF16"},
    {"gptq_column_ragged", MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4, 1 << 20, false, true, 8, 72, "F32"},
    {"gguf_q4_0", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, false, 67, 96, "F32"},
    {"gguf_q4_0_one_block", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, true, 3, 32, "F16"},
    {"gguf_mxfp4", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_MXFP4, 0, false, false, 65, 160, "BF16"},
    {"gguf_nvfp4", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_NVFP4, 0, false, false, 66, 192, "F32"},
    {"gguf_nvfp4_mse", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_NVFP4, 0, false, true, 1, 64, "F16"},
    {"marlin_24", MARLIN_SCHEME_MARLIN_24, MARLIN_FORMAT_INT4, 0, false, false, 192, 384, "F16", Sparsity::prune},
    {"marlin_24_two_groups", MARLIN_SCHEME_MARLIN_24, MARLIN_FORMAT_INT4, 128, false, true, 64, 256, "F32", Sparsity::prune},
    {"marlin_24_channel", MARLIN_SCHEME_MARLIN_24, MARLIN_FORMAT_INT4, 1 << 20, false, false, 128, 96, "BF16", Sparsity::prune},
    {"ct_int4_asymmetric_pruned", kCt, MARLIN_FORMAT_INT4, 32, true, false, 70, 64, "F32", Sparsity::prune},
    {"ct_nvfp4_pruned", kCt, MARLIN_FORMAT_NVFP4, 0, false, false, 70, 64, "F32", Sparsity::prune},
    {"gguf_q4_0_pruned", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, false, 5, 64, "BF16", Sparsity::prune},
    {"gguf_q8_0", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT8, 0, false, false, 67, 96, "F32"},
    {"gguf_q8_0_by_type", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT8, 0, false, true, 3, 64, "F16", Sparsity::as_given, "Q8_0",
     true},
    {"gguf_q4_0_mse_norms", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, true, 5, 64, "F32", Sparsity::as_given, nullptr,
     true},
    {"gguf_q4_1", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, false, 66, 96, "F32", Sparsity::as_given, "Q4_1"},
    {"gguf_q5_0", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT5, 0, false, false, 65, 32, "F16", Sparsity::as_given, "Q5_0"},
    {"gguf_q5_1", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT5, 0, false, false, 5, 160, "BF16", Sparsity::as_given, "Q5_1", true},
    {"gguf_iq4_nl", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_IQ4, 0, false, false, 67, 96, "F32", Sparsity::as_given, "IQ4_NL"},
    {"gguf_iq4_xs", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_IQ4, 0, false, false, 3, 512, "F32", Sparsity::as_given, "IQ4_XS"},
    {"gguf_q3_k", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT3, 0, false, false, 3, 512, "F32", Sparsity::as_given, "Q3_K"},
    {"gguf_q4_k", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, false, 67, 512, "F32", Sparsity::as_given, "Q4_K"},
    {"gguf_q4_k_norms", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4, 0, false, false, 5, 256, "F16", Sparsity::as_given, "Q4_K",
     true},
    {"gguf_q5_k", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT5, 0, false, false, 65, 256, "BF16", Sparsity::as_given, "Q5_K"},
    {"gguf_q6_k", MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT6, 0, false, false, 9, 768, "F32", Sparsity::as_given, "Q6_K"},
    {"mlx_int4", MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT4, 0, false, false, 67, 192, "F32"},
    {"mlx_int4_g128_norms", MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT4, 128, false, false, 3, 256, "BF16", Sparsity::as_given,
     nullptr, true},
    {"mlx_int3", MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT3, 32, false, false, 65, 96, "F16"},
    {"mlx_int5", MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT5, 64, false, false, 9, 64, "F32"},
    {"mlx_int6", MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT6, 32, false, false, 66, 160, "F32"},
    {"mlx_uint8", MARLIN_SCHEME_MLX, MARLIN_FORMAT_UINT8, 64, false, false, 130, 128, "F32"},
    {"ct_int4_asymmetric_channel", kCt, MARLIN_FORMAT_INT4, 4096, true, true, 13, 51, "F32"},
};
INSTANTIATE_TEST_SUITE_P(All, RoundTrip, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace metal_marlin::convert_round_trip_tests
