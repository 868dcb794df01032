// Fits by least squares: they end where neither codes nor scales can be better, and their errors stay below those of ggml.
#include "formats/fit.h"

#include "fails.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/fit_group.h"
#include "formats/format_table.h"
#include "layouts/gguf_types.h"
#include "normal_weights.h"
#include "test.h"

namespace metal_marlin {
namespace {

struct Fitted {
  WeightMeta meta;
  Stripe stripe;
  std::vector<float> values;
};

Fitted fit(const std::vector<float>& w, int64_t n, WeightMeta meta, const std::vector<float>& norms = {}) {
  Fitted f;
  f.meta = meta;
  const Status checked = check_meta(meta);
  EXPECT_TRUE(checked.ok()) << checked.message();
  const auto source = make_fitted({w.data(), MARLIN_F32, n, meta.k, meta.k, "w"}, meta, norms);
  EXPECT_TRUE(source.ok()) << source.status().message();
  const Status read = source.value()->read(0, n, f.stripe);
  EXPECT_TRUE(read.ok()) << read.message();
  f.values.resize(w.size());
  decode_rows(meta, f.stripe, 0, n, f.values.data());
  return f;
}
Fitted fit(const std::vector<float>& w, int64_t n, const char* type, const std::vector<float>& norms = {}) {
  return fit(w, n, gguf_meta(*gguf_type(type), n, static_cast<int64_t>(w.size()) / n), norms);
}

/// sqrt(sum of norm^2 (w' - w)^2 / sum of norm^2 w^2).
double relative_error(const std::vector<float>& w, const std::vector<float>& values, const std::vector<float>& norms = {}) {
  double error = 0, all = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double norm = norms.empty() ? 1 : norms[i % norms.size()];
    error += norm * norm * (double{values[i]} - w[i]) * (double{values[i]} - w[i]);
    all += norm * norm * w[i] * w[i];
  }
  return std::sqrt(error / all);
}

/// The errors that ggml 0.25.3 leaves of normal numbers, by ggml_quantize_chunk without and with an imatrix of norm^2, for
/// norms of a log-normal distribution (sigma 1). They do not depend on the scale and hardly on the seed (0.5 %).
struct PeerError {
  const char* type;
  double plain, weighted;
};
constexpr PeerError kPeers[] = {
    {"Q4_K", 0.07125, 0.03803},   {"Q5_K", 0.03605, 0.02059}, {"Q6_K", 0.01773, 0.01083},
    {"IQ4_NL", 0.07607, 0.04514}, {"Q5_0", 0.04265, 0.02675}, {"Q5_1", 0.03779, 0.01787},
    {"Q4_1", 0.07823, 0.03672},   {"Q3_K", 0.15078, 0.08909}, {"Q2_K", 0.29583, 0.13017},
};

class Peers : public ::testing::TestWithParam<PeerError> {};

TEST_P(Peers, ErrorsStayBelowThoseOfGgml) {
  const int64_t n = 64, k = 1024;
  const std::vector<float> w = normal(n * k, 5);
  EXPECT_LE(relative_error(w, fit(w, n, GetParam().type).values), GetParam().plain);
}

TEST_P(Peers, NormsLowerTheErrorThatTheyWeigh) {
  const int64_t n = 64, k = 1024;
  const std::vector<float> w = normal(n * k, 5);
  std::mt19937 random(9);
  std::lognormal_distribution<float> heavy(0, 1);
  std::vector<float> norms(k);
  for (float& x : norms) x = heavy(random);
  const double with = relative_error(w, fit(w, n, GetParam().type, norms).values, norms);
  EXPECT_LT(with, 0.8 * relative_error(w, fit(w, n, GetParam().type).values, norms));
  EXPECT_LE(with, 1.15 * GetParam().weighted) << "these are other norms than those of the table";
}

/// No other code is nearer, for any weight.
TEST_P(Peers, CodesAreTheNearest) {
  const int64_t k = 512;
  const std::vector<float> w = normal(k, 11);
  const Fitted f = fit(w, 1, GetParam().type);
  const FormatRow& row = *format_row(f.meta.format);
  for (int64_t i = 0; i < k; ++i) {
    const double error = std::fabs(double{f.values[i]} - w[i]);
    const GroupScale group = decode_group(f.meta, f.stripe, 0, i / f.meta.group_size);
    for (uint32_t code = 0; code < 1u << row.code_bits; ++code) {
      const double other = std::fabs(double{decode_value(f.meta, code, group, nullptr)} - w[i]);
      ASSERT_LE(error, other * (1 + 1e-6)) << GetParam().type << ", element " << i << ", code " << code;
    }
  }
}

TEST_P(Peers, ZerosStayZeros) {
  std::vector<float> w(512, 0.0f);
  for (const float v : fit(w, 1, GetParam().type).values) ASSERT_EQ(v, 0.0f);
  w[300] = 1;  // one weight in a block of zeros
  const Fitted f = fit(w, 1, GetParam().type);
  EXPECT_NEAR(f.values[300], 1, 0.02) << GetParam().type;
}

TEST_P(Peers, BadWeightsAreErrors) {
  const WeightMeta meta = gguf_meta(*gguf_type(GetParam().type), 2, 256);
  for (const auto& [bad, words] : {std::pair{std::numeric_limits<float>::quiet_NaN(), "w[1, 7]: expected a finite number"},
                                   std::pair{-std::numeric_limits<float>::infinity(), "found infinity"},
                                   std::pair{3e38f, "w[1, 0]: expected weights whose scales"}}) {
    std::vector<float> w = normal(512, 3);
    w[256 + 7] = bad;
    const auto source = must(make_fitted({w.data(), MARLIN_F32, 2, 256, 256, "w"}, meta, {}));
    Stripe stripe;
    EXPECT_THAT(source->read(0, 2, stripe), Fails(MARLIN_E_FORMAT, HasSubstr(words))) << GetParam().type << " " << bad;
  }
}

/// Stripes do not depend on each other.
TEST_P(Peers, RowsAreReadAlone) {
  const std::vector<float> w = normal(5 * 256, 21);
  const Fitted all = fit(w, 5, GetParam().type);
  const auto source = make_fitted({w.data(), MARLIN_F32, 5, 256, 256, "w"}, all.meta, {});
  Stripe one;
  ASSERT_TRUE(source.value()->read(3, 1, one).ok());
  EXPECT_TRUE(std::equal(one.codes.begin(), one.codes.end(), all.stripe.codes.begin() + 3 * 256));
}

INSTANTIATE_TEST_SUITE_P(All, Peers, ::testing::ValuesIn(kPeers), [](const auto& info) { return info.param.type; });

/// The best of all scales, by trying very many.
TEST(Fit, ScalesComeNearTheBestOfAll) {
  const IntegerGrid grid{-8, 7, 0};
  double found = 0, best = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const std::vector<float> w = normal(32, seed, 1);
    const std::vector<double> x(w.begin(), w.end()), ones(32, 1);
    const FitGroup group{x, ones};
    found += fit_error(group, best_scale(group, grid), grid);
    double least = HUGE_VAL;
    for (int i = 1; i <= 4000; ++i)
      for (const double sign : {-1.0, 1.0}) least = std::min(least, fit_error(group, sign * i * 2e-4, grid));
    best += least;
  }
  EXPECT_LE(found, 1.02 * best);
}

TEST(Fit, LinesComeNearTheBestOfAll) {
  double found = 0, best = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> w = normal(32, seed, 1);
    const std::vector<double> x(w.begin(), w.end()), ones(32, 1);
    const FitGroup group{x, ones};
    const AffineFit line = best_affine(group, 15, HUGE_VAL);
    found += affine_error(group, 15, line.scale, line.zero, HUGE_VAL, nullptr);
    double least = HUGE_VAL;
    for (double scale = 0.05; scale < 0.5; scale += 0.005)
      for (double zero = -4; zero < 0; zero += 0.02)
        least = std::min(least, affine_error(group, 15, scale, zero, HUGE_VAL, nullptr));
    best += least;
  }
  EXPECT_LE(found, 1.02 * best);
}

TEST(Fit, LinesOfPositiveWeightsHaveNoMinimum) {
  std::vector<float> w(256);
  std::iota(w.begin(), w.end(), 1000.0f);
  const Fitted f = fit(w, 1, "Q4_K");  // its minima are subtracted: they cannot be above 0
  for (const uint8_t minimum : f.stripe.zeros) EXPECT_EQ(minimum, 0);
  EXPECT_LT(relative_error(w, f.values), 0.04);
  const Fitted free = fit(w, 1, "Q5_1");
  EXPECT_LT(relative_error(w, free.values), 0.001);
}

TEST(Fit, ConstantGroupsAreExactWithZeros) {
  std::vector<float> w(64, 0.5f);
  std::fill(w.begin() + 32, w.end(), -3.0f);
  EXPECT_EQ(fit(w, 1, "Q4_1").values, w);
}

TEST(Fit, ColumnsOfNormZeroStillComeNear) {
  const std::vector<float> w = normal(256, 2);
  std::vector<float> norms(256, 0.0f);
  EXPECT_EQ(fit(w, 1, "Q4_K", norms).stripe.codes, fit(w, 1, "Q4_K").stripe.codes) << "all 0: none matters more";
  norms[0] = 1;
  EXPECT_LT(relative_error(w, fit(w, 1, "Q4_K", norms).values), 0.1);
}

TEST(Fit, NormsAreChecked) {
  const std::vector<float> w = normal(256, 2);
  const WeightMeta meta = gguf_meta(*gguf_type("Q4_K"), 1, 256);
  for (const auto& [norms, code] :
       {std::pair{std::vector<float>(255, 1.0f), MARLIN_E_SHAPE}, std::pair{std::vector<float>(257, 1.0f), MARLIN_E_SHAPE},
        std::pair{std::vector<float>(256, -1.0f), MARLIN_E_FORMAT}}) {
    EXPECT_EQ(make_fitted({w.data(), MARLIN_F32, 1, 256, 256, "w"}, meta, norms).status().code(), code);
  }
}

TEST(Fit, OtherFormatsAreErrors) {
  const std::vector<float> w = normal(256, 2);
  WeightMeta meta = gguf_meta(*gguf_type("MXFP4"), 1, 256);
  EXPECT_THAT(make_fitted({w.data(), MARLIN_F32, 1, 256, 256, "w"}, meta, {}).status().message(),
              HasSubstr("dense integers and IQ4 are fitted by least squares, found MXFP4"));
}

/// A row whose last group is short, which blocks of GGUF do not have.
TEST(Fit, RaggedRows) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT3;
  meta.n = 3;
  meta.k = 77;
  meta.group_size = 32;
  meta.groups = 3;
  meta.zero_kind = ZeroKind::additive;
  meta.scale_type = meta.zero_type = ScaleType::bf16;
  const std::vector<float> w = normal(3 * 77, 4);
  EXPECT_LT(relative_error(w, fit(w, 3, meta).values), 0.17);
}

}  // namespace
}  // namespace metal_marlin
