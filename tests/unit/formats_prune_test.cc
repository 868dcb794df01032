// 2:4 pruning against a sort, for every block of codes there is and for floats; what it leaves for the quantizer to see.
#include "formats/prune.h"

#include "fails.h"
#include "flush_to_zero.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"
#include "formats/quantize.h"
#include "oracle.h"
#include "test.h"

namespace metal_marlin {
namespace {

/// Codes in memory with one scale a group.
class Codes final : public WeightSource {
 public:
  Codes(marlin_format format, int64_t n, int64_t k, std::vector<uint8_t> codes, float scale = 1) {
    meta_.format = format;
    meta_.n = n;
    meta_.k = k;
    meta_.group_size = k;
    meta_.groups = 1;
    meta_.scale_type = ScaleType::f32;
    stripe_.codes = std::move(codes);
    set_scales(std::vector<float>(static_cast<size_t>(n), scale));
  }
  void set_scales(const std::vector<float>& scales) { stripe_.scales = bytes_of(scales); }
  void set_zeros(std::vector<uint8_t> zeros) {
    meta_.zero_kind = ZeroKind::integer;
    stripe_.zeros = std::move(zeros);
  }
  void set_additive(const std::vector<float>& zeros) {
    meta_.zero_kind = ZeroKind::additive;
    meta_.zero_type = ScaleType::f32;
    stripe_.zeros = bytes_of(zeros);
  }
  WeightMeta& meta() { return meta_; }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const auto part = [&](const std::vector<uint8_t>& from, std::vector<uint8_t>& to) {
      const size_t row = from.size() / static_cast<size_t>(meta_.n);
      const auto begin = from.begin() + static_cast<ptrdiff_t>(row) * first;
      to.assign(begin, begin + static_cast<ptrdiff_t>(row) * count);
    };
    part(stripe_.codes, out.codes);
    part(stripe_.scales, out.scales);
    part(stripe_.zeros, out.zeros);
    out.kept.clear();
    return {};
  }

 private:
  static std::vector<uint8_t> bytes_of(const std::vector<float>& numbers) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(numbers.data());
    return {bytes, bytes + numbers.size() * sizeof(float)};
  }

  Stripe stripe_;
};

std::unique_ptr<WeightSource> must(Result<std::unique_ptr<WeightSource>> result) {
  if (result.ok()) return result.take();
  ADD_FAILURE() << result.status().message();
  return nullptr;
}

struct Read {
  Stripe stripe;
  std::vector<float> values;
  std::vector<bool> kept() const {
    std::vector<bool> bits;
    for (const uint8_t mask : stripe.kept)
      for (int i = 0; i < 4; ++i) bits.push_back((mask >> i & 1) != 0);
    return bits;
  }
};
Read read_all(const WeightSource& source) {
  Read read;
  const WeightMeta& meta = source.meta();
  EXPECT_TRUE(check_meta(meta).ok());
  EXPECT_TRUE(source.read(0, meta.n, read.stripe).ok());
  read.values.resize(static_cast<size_t>(meta.n * meta.k));
  decode_rows(meta, read.stripe, 0, meta.n, read.values.data());
  return read;
}

/// A row of all 16^4 blocks of codes.
constexpr int64_t kBlocks = 65536, kAll = 4 * kBlocks;
std::vector<uint8_t> all_blocks() {
  std::vector<uint8_t> codes;
  codes.reserve(kAll);
  for (uint32_t block = 0; block < kBlocks; ++block)
    for (int i = 0; i < 4; ++i) codes.push_back(static_cast<uint8_t>(block >> 4 * i & 15));
  return codes;
}

/// Prunes all blocks and compares the masks, the values and the norms with the oracle's, given what each code is worth.
void expect_pruned(std::unique_ptr<Codes> codes, double (*value)(int code, double zero), double zero,
                   const std::vector<float>& norms = {}) {
  std::vector<double> worth, score;
  worth.reserve(kAll);
  score.reserve(kAll);
  for (const uint8_t code : all_blocks()) {
    worth.push_back(value(code, zero));
    score.push_back(std::fabs(worth.back()) * (norms.empty() ? 1.0 : double{norms[score.size()]}));
  }
  const std::vector<bool> kept = oracle::keep_two_of_four(score);
  const auto source = must(make_sparse(std::move(codes), {Sparsity::prune, norms}));
  ASSERT_NE(source, nullptr);
  const Read read = read_all(*source);
  const std::vector<bool> found = read.kept();
  double squared = 0, rest = 0;
  for (size_t i = 0; i < kAll; ++i) {
    ASSERT_EQ(found[i], kept[i]) << "block " << i / 4 << ", element " << i % 4;
    ASSERT_EQ(static_cast<double>(read.values[i]), kept[i] ? worth[i] : 0.0) << i;
    ASSERT_FALSE(!kept[i] && std::signbit(read.values[i])) << i;
    squared += worth[i] * worth[i];
    if (kept[i]) rest += worth[i] * worth[i];
  }
  EXPECT_EQ(source->meta().squared_norm, squared);
  EXPECT_EQ(source->meta().kept_norm, rest);
  EXPECT_LT(rest, squared);
}

std::vector<float> some_norms() {
  std::mt19937 random(5);
  std::vector<float> norms(kAll);
  for (float& norm : norms) norm = static_cast<float>(random() % 5) * 0.75f;  // many ties, some 0
  return norms;
}

double fp4(int code, double) { return oracle::e2m1(code); }
double int4(int code, double zero) { return code - zero; }

TEST(PruneCodes, EveryBlockOfFp4) {
  expect_pruned(std::make_unique<Codes>(MARLIN_FORMAT_FP4, 1, kAll, all_blocks()), fp4, 0);
  expect_pruned(std::make_unique<Codes>(MARLIN_FORMAT_FP4, 1, kAll, all_blocks()), fp4, 0, some_norms());
}

TEST(PruneCodes, EveryBlockOfInt4) {
  expect_pruned(std::make_unique<Codes>(MARLIN_FORMAT_INT4, 1, kAll, all_blocks()), int4, 8);
  expect_pruned(std::make_unique<Codes>(MARLIN_FORMAT_INT4, 1, kAll, all_blocks()), int4, 8, some_norms());
}

TEST(PruneCodes, EveryBlockOfInt4WithEachZeroPoint) {
  for (const uint8_t zero : {0, 1, 7, 8, 15, 16}) {
    auto codes = std::make_unique<Codes>(MARLIN_FORMAT_INT4, 1, kAll, all_blocks());
    codes->set_zeros({zero});
    expect_pruned(std::move(codes), int4, zero);
  }
}

TEST(PruneCodes, EveryBlockOfInt4WithAdditiveZeros) {
  for (const float zero : {0.0f, -7.5f, -15.0f, 4.0f}) {
    auto codes = std::make_unique<Codes>(MARLIN_FORMAT_INT4, 1, kAll, all_blocks());
    codes->set_additive({zero});
    expect_pruned(std::move(codes), [](int code, double z) { return code + z; }, double{zero});
  }
}

TEST(PruneCodes, ScaleDoesNotMatterAndNaNIsNotHidden) {
  // Group scales are common to a block, so that codes decide also where a scale is 0; values are 0 then, and all is kept.
  auto zero_scale = std::make_unique<Codes>(MARLIN_FORMAT_FP4, 1, 4, std::vector<uint8_t>{0, 1, 0, 2}, 0.0f);
  auto source = must(make_sparse(std::move(zero_scale), {Sparsity::prune}));
  EXPECT_THAT(read_all(*source).stripe.kept, ElementsAre(0b1010));
  EXPECT_EQ(source->meta().squared_norm, 0);
  // Additive zeros: only the group that is NaN is, and its sum shows it.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto codes = std::make_unique<Codes>(MARLIN_FORMAT_INT4, 2, 4, std::vector<uint8_t>{1, 2, 3, 4, 1, 2, 3, 4});
  codes->set_additive({nan, 0});
  source = must(make_sparse(std::move(codes), {Sparsity::prune}));
  EXPECT_THAT(read_all(*source).stripe.kept, ElementsAre(0b0011, 0b1100));
  EXPECT_TRUE(std::isnan(source->meta().squared_norm));
}

TEST(PruneCodes, GroupsAndRowsEachHaveTheirOwnZero) {
  std::vector<uint8_t> codes(2 * 32, 5);
  for (size_t i = 0; i < codes.size(); i += 4) codes[i + 2] = 9;
  auto source = std::make_unique<Codes>(MARLIN_FORMAT_INT4, 2, 32, codes);
  source->meta().group_size = 16;
  source->meta().groups = 2;
  source->set_scales({1, 1, 1, 1});
  source->set_zeros({5, 9, 7, 0});
  const auto sparse = must(make_sparse(std::move(source), {Sparsity::prune}));
  // Zero 5: only the 9 counts, then the lowest. Zero 9: the 5s. Zero 7: all alike. Zero 0: the 9 and the lowest 5.
  EXPECT_THAT(read_all(*sparse).stripe.kept, ElementsAre(0b0101, 0b0101, 0b0101, 0b0101, 0b0011, 0b0011, 0b0011, 0b0011, 0b0011,
                                                         0b0011, 0b0011, 0b0011, 0b0101, 0b0101, 0b0101, 0b0101));
}

TEST(PruneCodes, WhatIsSparseStaysAndIsNotWrittenTwice) {
  auto once = must(make_sparse(std::make_unique<Codes>(MARLIN_FORMAT_FP4, 1, 8, std::vector<uint8_t>{1, 2, 3, 4, 0, 0, 0, 8}),
                               {Sparsity::prune}));
  const std::vector<uint8_t> kept = read_all(*once).stripe.kept;
  const double norm = once->meta().kept_norm;
  const std::vector<float> norms = {9, 9, 0, 0, 0, 0, 1, 1};
  const auto twice = must(make_sparse(std::move(once), {Sparsity::prune, norms}));
  EXPECT_EQ(read_all(*twice).stripe.kept, kept);
  EXPECT_EQ(twice->meta().kept_norm, norm);
  EXPECT_EQ(twice->meta().squared_norm, norm) << "nothing more was lost";
}

TEST(PruneCodes, Refused) {
  const auto status = [](marlin_format format, int64_t k, auto change, SparseRule rule = {Sparsity::prune}) {
    auto codes = std::make_unique<Codes>(format, 1, k, std::vector<uint8_t>(static_cast<size_t>(k), 3));
    change(codes->meta());
    return make_sparse(std::move(codes), rule).status();
  };
  const auto nothing = [](WeightMeta&) {};
  EXPECT_EQ(status(MARLIN_FORMAT_INT8, 8, nothing).code(), MARLIN_E_UNSUPPORTED);
  EXPECT_THAT(status(MARLIN_FORMAT_FP4, 30, nothing), Fails(MARLIN_E_SHAPE, HasSubstr("found 30")));
  EXPECT_EQ(status(MARLIN_FORMAT_INT4, 8, [](WeightMeta& m) { m.group_index.assign(8, 0); }).code(), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(status(MARLIN_FORMAT_FP4, 8, [](WeightMeta& m) { m.sparse = true; }, {Sparsity::obey}).code(), MARLIN_E_ARGUMENT);
  const std::vector<float> short_norms(7, 1.0f);
  EXPECT_EQ(status(MARLIN_FORMAT_FP4, 8, nothing, {Sparsity::prune, short_norms}).code(), MARLIN_E_SHAPE);
  for (const float bad : {-1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> norms(8, 1.0f);
    norms[5] = bad;
    EXPECT_THAT(status(MARLIN_FORMAT_FP4, 8, nothing, {Sparsity::prune, norms}),
                Fails(MARLIN_E_FORMAT, HasSubstr("column_norms[5]")));
  }
}

TEST(PruneRule, Flags) {
  const std::vector<float> norms(4);
  EXPECT_EQ(sparse_rule(0, {}).value().sparsity, Sparsity::as_given);
  EXPECT_EQ(sparse_rule(MARLIN_PACK_PRUNE_2_4, norms).value().sparsity, Sparsity::prune);
  EXPECT_EQ(sparse_rule(MARLIN_LOAD_OBEYS_2_4, {}).value().sparsity, Sparsity::obey);
  EXPECT_EQ(sparse_rule(MARLIN_PACK_PRUNE_2_4 | MARLIN_PACK_OBEYS_2_4, {}).status().code(), MARLIN_E_ARGUMENT);
  EXPECT_EQ(sparse_rule(0, norms).status().code(), MARLIN_E_ARGUMENT);
  EXPECT_EQ(sparse_rule(MARLIN_PACK_OBEYS_2_4, norms).status().code(), MARLIN_E_ARGUMENT);
}

// --- floats ------------------------------------------------------------------------------------------------------------------

std::vector<float> drawn(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> d(0, 0.02f);
  std::vector<float> w(count);
  for (float& x : w) x = d(random);
  return w;
}

/// Few values, so that ties are common: both zeros, subnormals, the extremes.
std::vector<float> tied(size_t count, uint32_t seed) {
  constexpr float kSome[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1.8p-127f, 1.0f, -1.0f, 0x1.000002p0f, -3e38f, 3e38f};
  std::mt19937 random(seed);
  std::vector<float> w(count);
  for (float& x : w) x = kSome[random() % std::size(kSome)];
  return w;
}

std::vector<double> scores(const std::vector<float>& w, const std::vector<float>& norms, size_t k) {
  std::vector<double> s(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    s[i] = std::fabs(oracle::read(MARLIN_F32, w.data(), static_cast<int64_t>(i)));
    if (!norms.empty()) s[i] *= oracle::read(MARLIN_F32, norms.data(), static_cast<int64_t>(i % k));
  }
  return s;
}

TEST(PruneFloats, KeepsTheTwoLargestOfEveryFour) {
  constexpr int64_t n = 37, k = 180;
  for (const uint32_t seed : {1u, 2u, 3u}) {
    for (const auto& w : {drawn(n * k, seed), tied(n * k, seed)}) {
      std::vector<float> norms = drawn(k, seed + 10);
      for (float& x : norms) x = std::fabs(x);
      norms[3] = 0;
      for (const auto& given : {std::vector<float>(), norms}) {
        const std::vector<bool> kept = oracle::keep_two_of_four(scores(w, given, k));
        for (const bool flush : {false, true}) {
          const oracle::FlushToZero mode(flush);
          const auto source = must(
              make_quantized({w.data(), MARLIN_F32, n, k, k, "w"}, MARLIN_FORMAT_FP4, 0, {.sparse = {Sparsity::prune, given}}));
          ASSERT_NE(source, nullptr);
          EXPECT_EQ(read_all(*source).kept(), kept) << "seed " << seed << (flush ? ", flush to zero" : "");
        }
      }
    }
  }
}

/// What the quantizer makes of the same floats with 0 where they are pruned.
TEST(PruneFloats, ScalesSeePrunedElementsAsZero) {
  constexpr int64_t n = 5, k = 192;
  const std::vector<float> w = drawn(n * k, 4);
  const std::vector<bool> kept = oracle::keep_two_of_four(scores(w, {}, k));
  std::vector<float> absent = w;
  for (size_t i = 0; i < w.size(); ++i)
    if (!kept[i]) absent[i] = 0;
  for (const marlin_format format : {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4}) {
    for (const bool mse : {false, true}) {
      for (const bool asymmetric : {false, true}) {
        if (asymmetric && format != MARLIN_FORMAT_INT4) continue;
        const auto pruned = must(make_quantized({w.data(), MARLIN_F32, n, k, k, "w"}, format, 0,
                                                {.asymmetric = asymmetric, .search_mse = mse, .sparse = {Sparsity::prune}}));
        const auto dense = must(make_quantized({absent.data(), MARLIN_F32, n, k, k, "w"}, format, 0,
                                               {.asymmetric = asymmetric, .search_mse = mse}));
        const Read a = read_all(*pruned), b = read_all(*dense);
        EXPECT_EQ(a.stripe.scales, b.stripe.scales) << format_name(format);
        EXPECT_EQ(a.stripe.zeros, b.stripe.zeros);
        ASSERT_EQ(pruned->meta().tensor_scales.size(), dense->meta().tensor_scales.size());
        for (size_t i = 0; i < pruned->meta().tensor_scales.size(); ++i)
          EXPECT_EQ(pruned->meta().tensor_scales[i].value, dense->meta().tensor_scales[i].value);
        for (size_t i = 0; i < w.size(); ++i) {
          EXPECT_EQ(a.values[i], b.values[i]) << i;
          EXPECT_FALSE(!kept[i] && std::signbit(a.values[i])) << i;
        }
        EXPECT_TRUE(pruned->meta().sparse);
      }
    }
  }
}

TEST(PruneFloats, TheLargestOfTheTensorIsOneThatIsKept) {
  // 100 has norm 0 and goes; NVFP4's tensor scale comes from the 6.
  const std::vector<float> w = {100, 6, 1, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0},
                           norms = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto source = must(
      make_quantized({w.data(), MARLIN_F32, 1, 16, 16, "w"}, MARLIN_FORMAT_NVFP4, 0, {.sparse = {Sparsity::prune, norms}}));
  EXPECT_EQ(source->meta().tensor_scales[0].value, static_cast<float>(6.0 / 2688));
  EXPECT_THAT(read_all(*source).stripe.kept, ElementsAre(0b0110, 0b1100, 0b0011, 0b0011));
  EXPECT_NEAR(read_all(*source).values[1], 6, 1e-5);
}

TEST(PruneFloats, ShareOfTheNorm) {
  const auto share = [](const std::vector<float>& w, marlin_format format = MARLIN_FORMAT_MXFP4) {
    const auto k = static_cast<int64_t>(w.size());
    const auto source = must(make_quantized({w.data(), MARLIN_F32, 1, k, k, "w"}, format, 0, {.sparse = {Sparsity::prune}}));
    return std::pair(source->meta().kept_norm, source->meta().squared_norm);
  };
  EXPECT_EQ(share({3, -4, 1, 2}), std::pair(25.0, 30.0));
  EXPECT_EQ(share({0, -0.0f, 0, 0}), std::pair(0.0, 0.0));
  EXPECT_EQ(share({1, 1, 1, 1}, MARLIN_FORMAT_NVFP4), std::pair(2.0, 4.0));
  EXPECT_EQ(share({0x1p-149f, 0, 0, 0x1p-149f}), std::pair(0x1p-297, 0x1p-297)) << "subnormals count";
}

TEST(PruneFloats, NormsDoNotDependOnTheOrderOfReading) {
  const std::vector<float> w = drawn(16 * 64, 8);
  const auto source =
      must(make_quantized({w.data(), MARLIN_F32, 16, 64, 64, "w"}, MARLIN_FORMAT_INT4, 0, {.sparse = {Sparsity::prune}}));
  const double before = source->meta().kept_norm;
  const Read all = read_all(*source);
  Stripe row;
  for (const int64_t r : {15, 3, 3, 0}) {
    ASSERT_TRUE(source->read(r, 1, row).ok());
    EXPECT_TRUE(std::equal(row.kept.begin(), row.kept.end(), all.stripe.kept.begin() + r * 16));
  }
  EXPECT_EQ(source->meta().kept_norm, before);
}

TEST(PruneFloats, Refused) {
  std::vector<float> w = drawn(2 * 32, 9);
  const auto status = [&](int64_t k, marlin_format format, SparseRule rule = {Sparsity::prune}) {
    return make_quantized({w.data(), MARLIN_F32, 2, k, 32, "layer.weight"}, format, 0, {.sparse = rule}).status();
  };
  EXPECT_TRUE(status(32, MARLIN_FORMAT_INT4).ok());
  EXPECT_EQ(status(30, MARLIN_FORMAT_INT4).code(), MARLIN_E_SHAPE);
  EXPECT_EQ(status(32, MARLIN_FORMAT_INT8).code(), MARLIN_E_UNSUPPORTED);
  const std::vector<float> norms(31, 1.0f);
  EXPECT_EQ(status(32, MARLIN_FORMAT_INT4, {Sparsity::prune, norms}).code(), MARLIN_E_SHAPE);
  w[32 + 7] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(status(32, MARLIN_FORMAT_MXFP4), Fails(MARLIN_E_FORMAT, HasSubstr("layer.weight[1, 7]")));
}

// --- floats that obey --------------------------------------------------------------------------------------------------------

TEST(ObeyingFloats, KeepTheirPatternThenTheLowest) {
  const std::vector<float> w = {0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0, -2, 0, -0.0f, 1e-40f, 3};
  const auto source =
      must(make_quantized({w.data(), MARLIN_F32, 1, 16, 16, "w"}, MARLIN_FORMAT_FP4, 0, {.sparse = {Sparsity::obey}}));
  const Read read = read_all(*source);
  EXPECT_THAT(read.stripe.kept, ElementsAre(0b0011, 0b1001, 0b1001, 0b1100));
  EXPECT_EQ(source->meta().squared_norm, 0) << "nothing was pruned";
  EXPECT_TRUE(source->meta().sparse);
}

TEST(ObeyingFloats, ThreeNonZerosAreNamed) {
  for (const marlin_format format : {MARLIN_FORMAT_INT4, MARLIN_FORMAT_MXFP4}) {
    std::vector<float> w(2 * 16, 0.0f);
    w[16 + 8] = w[16 + 9] = 1;
    w[16 + 11] = 1e-44f;
    EXPECT_THAT(make_quantized({w.data(), MARLIN_F32, 2, 16, 16, "w"}, format, 0, {.sparse = {Sparsity::obey}}).status(),
                Fails(MARLIN_E_FORMAT, AllOf(HasSubstr("w: row 1"), HasSubstr("columns 8..11"), HasSubstr("found 3"))));
  }
}

}  // namespace
}  // namespace metal_marlin
