// Pruning to 2:4 through the C ABI: from memory, from files of floats and of codes, with norms, and what is refused.
#include "support.h"
#include "test.h"

namespace abi_test {
namespace {

std::vector<float> decoded(const mm::weights& w) {
  const marlin_layer_info info = mm::info(w);
  std::vector<float> values(static_cast<size_t>(info.n * info.k));
  mm::unpack(w, mm::matrix_view(values.data(), info.n, info.k));
  return values;
}

/// The places of the two largest of each four, and the share of the squares that they have.
struct Expected {
  std::vector<bool> kept;
  double share = 1;
};
Expected expected(const std::vector<float>& w, int64_t k, const std::vector<float>& norms = {}) {
  Expected e;
  e.kept.assign(w.size(), false);
  double all = 0, rest = 0;
  for (size_t i = 0; i < w.size(); i += 4) {
    size_t order[4] = {i, i + 1, i + 2, i + 3};
    const auto score = [&](size_t j) {
      return std::fabs(double{w[j]}) * (norms.empty() ? 1.0 : double{norms[j % static_cast<size_t>(k)]});
    };
    std::stable_sort(order, order + 4, [&](size_t a, size_t b) { return score(a) > score(b); });
    for (int j = 0; j < 4; ++j) {
      const double square = double{w[order[j]]} * double{w[order[j]]};
      all += square;
      if (j < 2) {
        e.kept[order[j]] = true;
        rest += square;
      }
    }
  }
  e.share = rest / all;
  return e;
}

class Prune : public testing::Test {
 protected:
  static std::string data(const std::string& name) { return std::string(MARLIN_TEST_DATA) + "/" + name; }
  static constexpr int64_t n = 6, k = 64;
  const mm::context context{kBackend};
  const std::vector<float> values = numbers(n * k, 21);
  std::vector<float> norms = numbers(k, 22);

  void SetUp() override {
    for (float& x : norms) x = std::fabs(x);
  }
  static marlin_matrix row(const std::vector<float>& numbers) {
    return mm::matrix_view(numbers.data(), 1, static_cast<int64_t>(numbers.size()));
  }
};

TEST_F(Prune, FloatsFromMemory) {
  for (const marlin_format format : {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4}) {
    for (const bool with_norms : {false, true}) {
      marlin_pack_desc desc = pack_desc(values, n, k, format);
      desc.flags = MARLIN_PACK_PRUNE_2_4;
      if (with_norms) desc.column_norms = row(norms);
      const mm::weights w = mm::pack(context, desc);
      const marlin_layer_info info = mm::info(w);
      const Expected e = expected(values, k, with_norms ? norms : std::vector<float>());
      EXPECT_NEAR(info.kept_share, e.share, 1e-14);
      EXPECT_LT(info.kept_share, 1);
      EXPECT_TRUE(info.flags & MARLIN_LAYER_SPARSE_2_4);
      const std::vector<float> found = decoded(w);
      for (size_t i = 0; i < found.size(); ++i) {
        if (e.kept[i]) {
          EXPECT_NEAR(found[i], values[i], 0.3) << i;
        } else {
          EXPECT_TRUE(found[i] == 0 && !std::signbit(found[i])) << i;
        }
      }
      Product product(w, 3);
      mm::gemm(product.desc);
      EXPECT_TRUE(product.right());
    }
  }
}

TEST_F(Prune, ThreadsDoNotChangeTheShare) {
  const std::vector<float> many = numbers(300 * 256, 4);
  double first = 0;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    auto desc = mm::make<marlin_context_desc>();
    desc.backend = kBackend;
    desc.threads = threads;
    const mm::context of(desc);
    marlin_pack_desc part = pack_desc(many, 300, 256, MARLIN_FORMAT_NVFP4);
    part.flags = MARLIN_PACK_PRUNE_2_4;
    const double share = mm::info(mm::pack(of, part)).kept_share;
    if (threads == 1) first = share;
    EXPECT_EQ(share, first);
  }
  EXPECT_NEAR(first, expected(many, 256).share, 1e-13);
}

TEST_F(Prune, TheShareOfSeveralPartsIsThatOfAll) {
  const std::vector<float> large = numbers(2 * k, 5);
  std::vector<float> both = values;
  both.insert(both.end(), large.begin(), large.end());
  marlin_pack_desc a = pack_desc(values, n, k), b = pack_desc(large, 2, k);
  a.flags = b.flags = MARLIN_PACK_PRUNE_2_4;
  const marlin_pack_desc* const parts[] = {&a, &b};
  mm::weights w;
  ASSERT_EQ(marlin_weights_pack(context.get(), parts, 2, 1, w.out(), nullptr), MARLIN_OK);
  EXPECT_NEAR(mm::info(w).kept_share, expected(both, k).share, 1e-14);
}

TEST_F(Prune, WhatIsNotPrunedKeepsAll) {
  EXPECT_EQ(mm::info(quantized(context, 4, 64)).kept_share, 1);
  const std::vector<float> none(n * k, 0.0f);
  marlin_pack_desc zeros = pack_desc(none, n, k);
  zeros.flags = MARLIN_PACK_PRUNE_2_4;
  EXPECT_EQ(mm::info(mm::pack(context, zeros)).kept_share, 1);
  std::vector<float> obeys(n * k, 0.0f);
  for (size_t i = 0; i < obeys.size(); i += 4) obeys[i + i / 4 % 4] = 1;
  zeros.values = mm::matrix_view(obeys.data(), n, k);
  zeros.flags = MARLIN_PACK_OBEYS_2_4;
  const mm::weights w = mm::pack(context, zeros);
  EXPECT_EQ(mm::info(w).kept_share, 1);
  EXPECT_TRUE(mm::info(w).flags & MARLIN_LAYER_SPARSE_2_4);
  obeys[8] = obeys[9] = obeys[10] = 1;
  mm::weights refused;
  const marlin_pack_desc* const parts[] = {&zeros};
  EXPECT_FAILS(MARLIN_E_FORMAT, "columns 8..11", marlin_weights_pack, context.get(), parts, 1u, 1u, refused.out());
}

TEST_F(Prune, ACallerOfVersion1KnowsNothingOfNorms) {
  marlin_pack_desc desc = pack_desc(values, n, k);
  desc.struct_size = 328;
  desc.flags = MARLIN_PACK_PRUNE_2_4;
  desc.column_norms = row(std::vector<float>(1));  // behind what the caller says it has
  const mm::weights w = mm::pack(context, desc);
  auto info = mm::make<marlin_layer_info>();
  info.struct_size = 64;
  info.kept_share = 77;
  ASSERT_EQ(marlin_weights_info(w.get(), &info, nullptr), MARLIN_OK);
  EXPECT_EQ(info.kept_share, 77);
  EXPECT_NEAR(mm::info(w).kept_share, expected(values, k).share, 1e-14);
}

TEST_F(Prune, RefusedNorms) {
  mm::weights w;
  const auto fails = [&](marlin_status status, const char* mentioned, auto change) {
    marlin_pack_desc p = pack_desc(values, n, k);
    p.flags = MARLIN_PACK_PRUNE_2_4;
    p.column_norms = row(norms);
    change(p);
    const marlin_pack_desc* const parts[] = {&p};
    EXPECT_FAILS(status, mentioned, marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
  };
  fails(MARLIN_E_ARGUMENT, "parts[0]: column_norms", [](auto& p) { p.flags = 0; });
  fails(MARLIN_E_ARGUMENT, "parts[0]: column_norms", [](auto& p) { p.flags = MARLIN_PACK_OBEYS_2_4; });
  fails(MARLIN_E_ARGUMENT, "both", [](auto& p) { p.flags |= MARLIN_PACK_OBEYS_2_4; });
  fails(MARLIN_E_SHAPE, "[1, k = 64]", [](auto& p) { p.column_norms.cols = 32; });
  fails(MARLIN_E_SHAPE, "[1, k = 64]", [](auto& p) { p.column_norms.rows = 2, p.column_norms.cols = 32; });
  fails(MARLIN_E_ARGUMENT, "dtype", [](auto& p) { p.column_norms.dtype = MARLIN_I32; });
  fails(MARLIN_E_UNSUPPORTED, "INT8", [](auto& p) { p.format = MARLIN_FORMAT_INT8; });
  fails(MARLIN_E_SHAPE, "blocks of 4, found 62", [](auto& p) {
    p.k = p.values.cols = p.column_norms.cols = 62;
    p.values.row_stride = 64;
  });
  norms[7] = -1;
  fails(MARLIN_E_FORMAT, "column_norms[7]", [](auto&) {});
}

class PruneOnLoad : public Prune, public testing::WithParamInterface<const char*> {};

/// The files' layers, of floats and of codes: pruned by what they are worth.
TEST_P(PruneOnLoad, LayersOfEveryKind) {
  const mm::checkpoint file(data(GetParam()));
  const marlin_layer_info layer = file.layers().at(0);
  EXPECT_EQ(layer.kept_share, 1);
  const char* const name = layer.name;
  auto desc = mm::make<marlin_load_desc>();
  desc.layers = &name;
  desc.layer_count = 1;
  if (layer.format == MARLIN_FORMAT_NONE) desc.format = MARLIN_FORMAT_MXFP4;
  const std::vector<float> dense = decoded(mm::load(context, file, desc));
  desc.flags = MARLIN_LOAD_PRUNE_2_4;
  const mm::weights plain = mm::load(context, file, desc);
  EXPECT_GT(mm::info(plain).kept_share, 0.5);
  EXPECT_LT(mm::info(plain).kept_share, 1);

  const std::vector<float> column = numbers(static_cast<size_t>(layer.k), 3);
  std::vector<float> positive = column;
  for (float& x : positive) x = std::fabs(x);
  const marlin_matrix given = row(positive);
  desc.column_norms = &given;
  const mm::weights w = mm::load(context, file, desc);
  EXPECT_LT(mm::info(w).kept_share, mm::info(plain).kept_share);
  if (layer.format == MARLIN_FORMAT_NONE) return;
  for (const auto& [weights, by] : {std::pair(&plain, std::vector<float>()), std::pair(&w, positive)}) {
    const Expected e = expected(dense, layer.k, by);
    std::vector<float> pruned = dense;
    for (size_t i = 0; i < pruned.size(); ++i)
      if (!e.kept[i]) pruned[i] = 0;
    EXPECT_EQ(decoded(*weights), pruned);
    EXPECT_NEAR(mm::info(*weights).kept_share, e.share, 1e-13);
  }
  // A shard: chosen, and counted, over the whole layer.
  const marlin_shard shard = {{1, 128, 0}, {2, 64, 0}};
  desc.shards = &shard;
  const mm::weights part = mm::load(context, file, desc);
  EXPECT_EQ(mm::info(part).kept_share, mm::info(w).kept_share);
  const std::vector<float> some = decoded(part), all = decoded(w);
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(some[r * 64 + i], all[(r + 1) * static_cast<size_t>(layer.k) + 128 + i]);
}
INSTANTIATE_TEST_SUITE_P(Files, PruneOnLoad,
                         testing::Values("float-f32", "float-bf16", "gptq-v1-sym-g128", "gptq-v2-asym-g32", "ct-mxfp4",
                                         "ct-nvfp4", "mlx-affine-g64", "awq-gemm-g128"));

TEST_F(Prune, WhatHasNoSparseForm) {
  const mm::checkpoint file(data("gptq-v1-asym-g64-actorder"));
  const marlin_layer_info layer = file.layers().at(0);
  const char* const name = layer.name;
  auto desc = mm::make<marlin_load_desc>();
  desc.layers = &name;
  desc.layer_count = 1;
  desc.flags = MARLIN_LOAD_PRUNE_2_4;
  mm::weights w;
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "act-order", marlin_weights_load, context.get(), file.get(), &desc, w.out());
  desc.flags = 0;
  const marlin_matrix given = row(norms);
  desc.column_norms = &given;
  EXPECT_FAILS(MARLIN_E_SHAPE, "column_norms", marlin_weights_load, context.get(), file.get(), &desc, w.out());
}

TEST_F(Prune, NormsOfConvertingAreCheckedAsAllMatrices) {
  const mm::checkpoint file(data("float-f32"));
  const marlin_layer_info layer = file.layers().at(0);
  std::vector<float> positive = numbers(static_cast<size_t>(layer.k), 5);
  for (float& x : positive) x = std::fabs(x);
  struct Case {
    marlin_status status;
    const char* message;
    void (*spoil)(marlin_matrix&);
  };
  const Case cases[] = {
      {MARLIN_OK, "", [](marlin_matrix& m) { m.row_stride = m.cols + 2; }},
      {MARLIN_E_ARGUMENT, "row_stride is -1", [](marlin_matrix& m) { m.row_stride = -1; }},
      {MARLIN_E_SHAPE, "row_stride is 4", [](marlin_matrix& m) { m.row_stride = 4; }},
      {MARLIN_E_ARGUMENT, "wrap around", [](marlin_matrix& m) { m.offset_bytes = UINT64_MAX - 15; }},
      {MARLIN_E_ARGUMENT, "wrap around",
       [](marlin_matrix& m) { m.offset_bytes = UINT64_MAX - reinterpret_cast<uintptr_t>(m.data) - 7; }},
      {MARLIN_E_ARGUMENT, "expected a multiple", [](marlin_matrix& m) { m.offset_bytes = 2; }},
      {MARLIN_E_ARGUMENT, "dtype is 99", [](marlin_matrix& m) { m.dtype = 99; }},
      {MARLIN_E_ARGUMENT, "dtype", [](marlin_matrix& m) { m.dtype = MARLIN_I32; }},
      {MARLIN_E_ARGUMENT, "memory is 3, expected 0 (host)", [](marlin_matrix& m) { m.memory = MARLIN_MEM_BUFFER; }},
      {MARLIN_E_SHAPE, "expected sizes", [](marlin_matrix& m) { m.rows = -1; }},
      {MARLIN_E_SHAPE, "[1, k = ", [](marlin_matrix& m) { m.cols /= 2; }},
  };
  for (const Case& wrong : cases) {
    marlin_matrix given = row(positive);
    wrong.spoil(given);
    auto desc = mm::make<marlin_convert_desc>();
    desc.format = MARLIN_FORMAT_MXFP4;
    desc.layers = &layer.name;
    desc.layer_count = 1;
    desc.flags = MARLIN_CONVERT_PRUNE_2_4 | MARLIN_CONVERT_DRY_RUN;
    desc.column_norms = &given;
    auto error = mm::make<marlin_error>();
    EXPECT_EQ(marlin_checkpoint_convert(file.get(), "nowhere", &desc, &error), wrong.status) << error.message;
    const std::string message = error.message;
    EXPECT_NE(message.find(wrong.message), std::string::npos) << message;
    if (wrong.status == MARLIN_OK) continue;
    EXPECT_EQ(message.rfind("desc->column_norms[0]", 0), 0u) << message;
  }
}

}  // namespace
}  // namespace abi_test
