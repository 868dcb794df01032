// Loading from files through the C ABI: names, shards, several layers as one handle, quantizing on load, borrowed tensors. The
// values themselves are compared in tests/unit; here rows of one handle are compared with rows of another.

#include "model_files.h"
#include "support.h"
#include "test.h"

namespace abi_test::load_tests {
namespace {

std::string data(const char* folder) { return std::string(MARLIN_TEST_DATA) + "/" + folder; }

/// All rows as float32.
std::vector<float> decoded(const mm::weights& weights) {
  const marlin_layer_info info = mm::info(weights);
  const int64_t rows = info.n * info.experts;
  std::vector<float> values(static_cast<size_t>(rows * info.k));
  mm::unpack(weights, mm::matrix_view(values.data(), rows, info.k));
  return values;
}

/// Columns [first, first + count) of rows [first_n, first_n + count_n).
std::vector<float> part(const std::vector<float>& all, int64_t k, marlin_shard s) {
  std::vector<float> values;
  for (int64_t i = s.first[0]; i < s.first[0] + s.count[0]; ++i)
    values.insert(values.end(), all.begin() + i * k + s.first[1], all.begin() + i * k + s.first[1] + s.count[1]);
  return values;
}

class Load : public testing::Test {
 protected:
  const mm::context context{kBackend};

  /// A descriptor for these names, which must outlive it.
  static marlin_load_desc desc_of(const std::vector<const char*>& names, const std::vector<marlin_shard>& shards = {}) {
    auto d = mm::make<marlin_load_desc>();
    d.layers = names.data();
    d.shards = shards.empty() ? nullptr : shards.data();
    d.layer_count = static_cast<uint32_t>(names.size());
    return d;
  }
};

TEST_F(Load, NamesAreCopiedAndOutliveTheFile) {
  mm::checkpoint file(data("ct-mxfp4"));
  const marlin_layer_info layer = file.layers().at(0);
  EXPECT_EQ(layer.status, MARLIN_OK);
  EXPECT_EQ(layer.format, MARLIN_FORMAT_MXFP4);
  const std::string name = layer.name;
  const mm::weights weights = mm::load(context, file, name);
  const std::vector<float> before = decoded(weights);
  file.reset();
  const marlin_layer_info info = mm::info(weights);
  EXPECT_EQ(info.name, name);
  EXPECT_EQ(info.n, layer.n);
  EXPECT_EQ(info.k, layer.k);
  EXPECT_EQ(info.layout, layer.layout);
  EXPECT_EQ(info.dtype, MARLIN_E8M0);
  EXPECT_EQ(decoded(weights), before);
}

/// Names are looked up in an order: one after the other, they took more than a minute.
TEST_F(Load, ManyLayersByName) {
  constexpr int kLayers = 100'000;
  std::vector<model_files::TestTensor> tensors;
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    tensors.push_back({name + ".weight_packed", "U8", "1,16", std::string(16, static_cast<char>(i))});
    tensors.push_back({name + ".weight_scale", "U8", "1,1", "\x7f"});
  }
  const std::string path = testing::TempDir() + "many_layers.safetensors";
  std::ofstream(path, std::ios::binary) << model_files::safetensors(tensors);
  const mm::context cpu(MARLIN_BACKEND_CPU);  // names are no affair of the backend
  const std::clock_t begin = std::clock();
  const mm::checkpoint file(path);
  std::remove(path.c_str());
  const std::vector<marlin_layer_info> layers = file.layers();
  ASSERT_EQ(layers.size(), static_cast<size_t>(kLayers));
  std::vector<const char*> names;
  for (const marlin_layer_info& layer : layers) names.push_back(layer.name);
  // The last first, and each by itself where its values are compared: packed, a layer takes 64 columns.
  for (int i = kLayers - 1; i >= 0; i -= 1000) {
    EXPECT_EQ(names[i], "model.layers." + std::to_string(i));
    EXPECT_EQ(decoded(mm::load(cpu, file, names[i])).size(), 32u);
  }
  const mm::weights all = mm::load(cpu, file, desc_of(names));
  EXPECT_EQ(mm::info(all).n, kLayers);
  // Of this process, so that other programs do not count.
  EXPECT_LT(std::clock() - begin, 30 * std::clock_t{CLOCKS_PER_SEC});
}

TEST_F(Load, UnknownNamesAndBadDescriptors) {
  const mm::checkpoint file(data("ct-mxfp4"));
  const std::string layer = file.layers().at(0).name;
  mm::weights none;
  const auto fails = [&](const marlin_load_desc& d, marlin_status status, const char* mentioned) {
    EXPECT_FAILS(status, mentioned, marlin_weights_load, context.get(), file.get(), &d, none.out());
  };
  std::vector<const char*> names = {layer.c_str(), "no.such.layer"};
  fails(desc_of(names), MARLIN_E_NOT_FOUND, "layers[1]: no layer is called no.such.layer; the checkpoint has ");
  fails(desc_of(names), MARLIN_E_NOT_FOUND, (", the first is " + layer).c_str());
  const std::string with_suffix = layer + ".weight", misspelled = "x" + layer.substr(0, layer.size() - 1),
                    behind = layer.substr(layer.rfind('.') + 1), behind_misspelled = "x" + behind.substr(0, behind.size() - 1);
  const size_t count = file.layers().size();
  const std::string layers = count == 1 ? "1 layer" : std::to_string(count) + " layers";
  for (const std::string& name : {with_suffix, misspelled, behind, behind_misspelled}) {
    names[1] = name.c_str();
    const std::string words = "no layer is called " + name + "; did you mean " + layer + "? The checkpoint has " + layers;
    fails(desc_of(names), MARLIN_E_NOT_FOUND, words.c_str());
  }
  names[1] = nullptr;
  fails(desc_of(names), MARLIN_E_ARGUMENT, "layers[1]");
  names.pop_back();
  marlin_load_desc d = desc_of(names);
  d.layer_count = 0;
  fails(d, MARLIN_E_ARGUMENT, "names no layers");
  d = desc_of(names);
  d.layers = nullptr;
  fails(d, MARLIN_E_ARGUMENT, "names no layers");
  d = desc_of(names);
  d.expert_count = 2;
  fails(d, MARLIN_E_SHAPE, "layer_count is 1, expected a multiple of expert_count = 2");
  d.expert_count = 1;
  d.flags = 1;
  fails(d, MARLIN_E_UNSUPPORTED, "flags");
  d.flags = 0;
  for (const int32_t bad : {-1, MARLIN_FORMAT_BFLOAT16 + 1, INT32_MAX}) {
    d.format = bad;
    fails(d, MARLIN_E_ARGUMENT, "format");
  }
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "desc is NULL", marlin_weights_load, context.get(), file.get(), nullptr, none.out());
}

/// Each rank has some of the experts and is given all ids, less its first expert's. What it does not have gives 0: the sum over
/// the ranks is the whole, bit for bit for each expert of a token, whose row one rank alone makes.
TEST_F(Load, ExpertsOfRanksSumUpToTheWhole) {
  constexpr int64_t kTokens = 5, kTopK = 3;
  const mm::checkpoint file(data("mxfp4-gpt-oss-experts"));
  const auto layers = file.layers();
  const auto layer = std::find_if(layers.begin(), layers.end(), [](const marlin_layer_info& l) { return l.experts > 1; });
  ASSERT_NE(layer, layers.end());
  const std::vector<const char*> names = {layer->name};
  std::vector<float> a = numbers(static_cast<size_t>(kTokens * layer->k), 3), scales = numbers(kTokens * kTopK, 4);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kTokens * kTopK; ++i) ids.push_back(i * 7 % 5 % static_cast<int32_t>(layer->experts));
  const auto multiplied = [&](const mm::weights& weights, int64_t first, bool sums) {
    std::vector<int32_t> own = ids;
    for (int32_t& id : own) id -= static_cast<int32_t>(first);
    std::vector<float> c(static_cast<size_t>((sums ? kTokens : kTokens * kTopK) * layer->n));
    auto desc = mm::make<marlin_gemm_desc>();
    desc.weights = weights.get();
    desc.a = mm::matrix_view(a.data(), kTokens, layer->k);
    desc.c = mm::matrix_view(c.data(), static_cast<int64_t>(c.size()) / layer->n, layer->n);
    desc.expert_ids = mm::matrix_view(own.data(), kTokens, kTopK);
    if (sums) desc.expert_scales = mm::matrix_view(scales.data(), kTokens, kTopK);
    EXPECT_OK(marlin_gemm, nullptr, &desc);
    return c;
  };
  const mm::weights all = mm::load(context, file, desc_of(names));
  const std::vector<float> rows = multiplied(all, 0, false), sums = multiplied(all, 0, true);
  for (const int64_t ranks : {2, 3, 8}) {
    std::vector<float> rows_of_ranks(rows.size()), sums_of_ranks(sums.size());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t first = layer->experts * rank / ranks, count = layer->experts * (rank + 1) / ranks - first;
      if (count == 0) continue;  // more ranks than experts
      const std::vector<marlin_shard> shards = {{{0, 0, first}, {0, 0, count}}};
      const mm::weights own = mm::load(context, file, desc_of(names, shards));
      EXPECT_EQ(mm::info(own).experts, static_cast<uint32_t>(count));
      const std::vector<float> own_rows = multiplied(own, first, false), own_sums = multiplied(own, first, true);
      for (size_t i = 0; i < rows.size(); ++i) rows_of_ranks[i] += own_rows[i];
      for (size_t i = 0; i < sums.size(); ++i) sums_of_ranks[i] += own_sums[i];
    }
    EXPECT_EQ(rows_of_ranks, rows) << ranks << " ranks";
    // Ranks add a token's experts in another order.
    for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums_of_ranks[i], sums[i], 1e-5 * std::fabs(sums[i]) + 1e-5) << i;
  }
}

TEST_F(Load, ShardsOfRowsAndColumns) {
  const mm::checkpoint file(data("ct-mxfp4"));
  const marlin_layer_info layer = file.layers().at(0);
  const std::vector<float> all = decoded(mm::load(context, file, layer.name));
  const std::vector<const char*> names = {layer.name};
  ASSERT_GE(layer.n, 32);
  ASSERT_GE(layer.k, 128);
  for (marlin_shard s : {marlin_shard{{0, 0, 0}, {16, layer.k, 0}}, marlin_shard{{5, 0, 0}, {1, layer.k, 1}},
                         marlin_shard{{7, 32, 0}, {20, 64, 0}}, marlin_shard{{layer.n - 1, layer.k - 32, 0}, {1, 32, 1}}}) {
    const std::vector<marlin_shard> shards = {s};
    const mm::weights weights = mm::load(context, file, desc_of(names, shards));
    EXPECT_EQ(mm::info(weights).n, s.count[0]);
    EXPECT_EQ(mm::info(weights).k, s.count[1]);
    EXPECT_EQ(decoded(weights), part(all, layer.k, s));
  }
  // A count of 0 is all from first on.
  const std::vector<marlin_shard> rest = {{{9, 64, 0}, {0, 0, 0}}};
  EXPECT_EQ(decoded(mm::load(context, file, desc_of(names, rest))),
            part(all, layer.k, {{9, 64, 0}, {layer.n - 9, layer.k - 64, 0}}));

  mm::weights none;
  const auto fails = [&](marlin_shard s, marlin_status status, const char* mentioned) {
    const std::vector<marlin_shard> shards = {s};
    const marlin_load_desc d = desc_of(names, shards);
    EXPECT_FAILS(status, mentioned, marlin_weights_load, context.get(), file.get(), &d, none.out());
  };
  fails({{-1, 0, 0}, {1, 0, 0}}, MARLIN_E_ARGUMENT, "N is first -1");
  fails({{0, 0, 0}, {0, -5, 0}}, MARLIN_E_ARGUMENT, "K is first 0, count -5");
  fails({{layer.n, 0, 0}, {0, 0, 0}}, MARLIN_E_SHAPE, "N is first");
  fails({{1, 0, 0}, {layer.n, 0, 0}}, MARLIN_E_SHAPE, "N is first");
  fails({{INT64_MAX, 0, 0}, {INT64_MAX, 0, 0}}, MARLIN_E_SHAPE, "N is first");
  fails({{0, 1, 0}, {0, INT64_MAX, 0}}, MARLIN_E_SHAPE, "K is first");
  fails({{0, 0, 1}, {0, 0, 1}}, MARLIN_E_SHAPE, "experts is first 1");
}

TEST_F(Load, SeveralLayersAsOneHandle) {
  const mm::checkpoint file(data("ct-mxfp4"));
  const marlin_layer_info layer = file.layers().at(0);
  const std::vector<float> all = decoded(mm::load(context, file, layer.name));
  const std::vector<const char*> names = {layer.name, layer.name, layer.name};
  const std::vector<marlin_shard> shards = {{{3, 0, 0}, {5, 0, 0}}, {{0, 0, 0}, {0, 0, 0}}, {{31, 0, 0}, {1, 0, 0}}};
  const mm::weights weights = mm::load(context, file, desc_of(names, shards));
  EXPECT_EQ(mm::info(weights).n, 5 + layer.n + 1);
  EXPECT_STREQ(mm::info(weights).name, layer.name);
  std::vector<float> expected = part(all, layer.k, {{3, 0, 0}, {5, layer.k, 0}});
  expected.insert(expected.end(), all.begin(), all.end());
  expected.insert(expected.end(), all.begin() + 31 * layer.k, all.begin() + 32 * layer.k);
  EXPECT_EQ(decoded(weights), expected);

  // Parts that do not agree in K.
  const std::vector<marlin_shard> different = {{{0, 0, 0}, {0, 32, 0}}, {{0, 0, 0}, {0, 64, 0}}, {}};
  const marlin_load_desc d = desc_of(names, different);
  mm::weights none;
  EXPECT_FAILS(MARLIN_E_SHAPE, "", marlin_weights_load, context.get(), file.get(), &d, none.out());
}

TEST_F(Load, ExpertsOneByOneByTheirShard) {
  const mm::checkpoint file(data("mxfp4-gpt-oss-experts"));
  marlin_layer_info layer{};
  for (const marlin_layer_info& one : file.layers())
    if (one.experts > 1) layer = one;
  ASSERT_GT(layer.experts, 1u);
  const std::vector<const char*> names = {layer.name};
  mm::weights none;
  std::vector<std::vector<float>> experts;
  for (int64_t e = 0; e < layer.experts; ++e) {
    const std::vector<marlin_shard> shards = {{{0, 0, e}, {0, 0, 1}}};
    experts.push_back(decoded(mm::load(context, file, desc_of(names, shards))));
  }
  for (size_t e = 1; e < experts.size(); ++e) EXPECT_NE(experts[e], experts[0]) << e;
  // All of them, and some, as one handle: the rows of one expert after those of the other.
  const auto rows_of = [&](size_t from, size_t to) {
    std::vector<float> rows;
    for (size_t e = from; e < to; ++e) rows.insert(rows.end(), experts[e].begin(), experts[e].end());
    return rows;
  };
  const mm::weights stack = mm::load(context, file, layer.name);
  EXPECT_EQ(mm::info(stack).experts, layer.experts);
  EXPECT_EQ(mm::info(stack).n, layer.n);
  EXPECT_EQ(decoded(stack), rows_of(0, layer.experts));
  const std::vector<marlin_shard> middle = {{{0, 0, 1}, {0, 0, 2}}};
  EXPECT_EQ(decoded(mm::load(context, file, desc_of(names, middle))), rows_of(1, 3));
  // The last one, as "all from first on".
  const std::vector<marlin_shard> last = {{{0, 0, layer.experts - 1}, {0, 0, 0}}};
  EXPECT_EQ(decoded(mm::load(context, file, desc_of(names, last))), experts.back());
  const std::vector<marlin_shard> beyond = {{{0, 0, layer.experts}, {0, 0, 1}}};
  const marlin_load_desc d = desc_of(names, beyond);
  EXPECT_FAILS(MARLIN_E_SHAPE, "experts", marlin_weights_load, context.get(), file.get(), &d, none.out());
}

/// The file stores experts one by one: together they are a layer, and each loads by its own name.
TEST_F(Load, ExpertsThatAreStoredOneByOne) {
  const mm::checkpoint file(data("qwen3moe-gptq-experts"));
  const char* const whole = "model.layers.0.mlp.experts.up_proj";
  std::vector<float> rows;
  for (const char* name : {"model.layers.0.mlp.experts.0.up_proj", "model.layers.0.mlp.experts.1.up_proj",
                           "model.layers.0.mlp.experts.2.up_proj", "model.layers.0.mlp.experts.3.up_proj"}) {
    const mm::weights one = mm::load(context, file, name);
    EXPECT_STREQ(mm::info(one).name, name);
    const std::vector<float> values = decoded(one);
    rows.insert(rows.end(), values.begin(), values.end());
  }
  const mm::weights stack = mm::load(context, file, whole);
  EXPECT_EQ(mm::info(stack).experts, 4u);
  EXPECT_STREQ(mm::info(stack).name, whole);
  EXPECT_EQ(decoded(stack), rows);
  for (const marlin_layer_info& layer : file.layers())
    EXPECT_EQ(std::string(layer.name).find("experts.0"), std::string::npos) << "not listed alone";
}

TEST_F(Load, ExpertsOfStacksAndOfNamesAreConcatenatedExpertByExpert) {
  const mm::checkpoint file(data("mxfp4-gpt-oss-experts"));
  const marlin_layer_info layer = file.layers().at(0);
  const std::vector<float> all = decoded(mm::load(context, file, layer.name));
  const auto rows = [&](int64_t e, int64_t first, int64_t count) {
    return part(all, layer.k, {{e * layer.n + first, 0, 0}, {count, layer.k, 0}});
  };
  // Two layers of all experts: rows 4, 5 of each above rows 0, 1.
  const std::vector<const char*> two = {layer.name, layer.name};
  const std::vector<marlin_shard> halves = {{{4, 0, 0}, {2, 0, 0}}, {{0, 0, 0}, {2, 0, 0}}};
  std::vector<float> expected;
  for (int64_t e = 0; e < layer.experts; ++e)
    for (const int64_t first : {4, 0})
      for (const float value : rows(e, first, 2)) expected.push_back(value);
  EXPECT_EQ(decoded(mm::load(context, file, desc_of(two, halves))), expected);
  // The same, from names of one expert each.
  const std::vector<const char*> names(2 * layer.experts, layer.name);
  std::vector<marlin_shard> shards;
  for (int64_t e = 0; e < layer.experts; ++e)
    for (const int64_t first : {4, 0}) shards.push_back({{first, 0, e}, {2, 0, 1}});
  marlin_load_desc d = desc_of(names, shards);
  d.expert_count = layer.experts;
  std::vector<uint64_t> done;
  d.progress = [](void* user, uint64_t so_far, uint64_t total) {
    static_cast<std::vector<uint64_t>*>(user)->assign({so_far, total});
    return int32_t{0};
  };
  d.user = &done;
  const mm::weights loaded = mm::load(context, file, d);
  EXPECT_EQ(mm::info(loaded).experts, layer.experts);
  EXPECT_EQ(mm::info(loaded).n, 4);
  EXPECT_EQ(decoded(loaded), expected);
  EXPECT_EQ(done, (std::vector<uint64_t>(2, expected.size())));

  mm::weights none;
  const auto fails = [&](const char* mentioned) {
    EXPECT_FAILS(MARLIN_E_SHAPE, mentioned, marlin_weights_load, context.get(), file.get(), &d, none.out());
  };
  d.expert_count = 3;
  fails("multiple of expert_count = 3");
  d.expert_count = layer.experts;
  shards[1].count[2] = 0;
  fails("layers[1]");
  shards[1].count[2] = 1;
  shards[3].count[0] = 3;
  fails("expert 1: n: expected 4");
  d = desc_of(two, shards);
  shards[0].count[2] = 2;
  fails("layers[1]");
}

TEST_F(Load, LayersOfTwoFormatsAreNamed) {
  const mm::checkpoint file(data("gguf-mixed"));
  const std::vector<const char*> names = {"blk.0.ffn_down.weight", "blk.2.ffn_down.weight"};
  const marlin_load_desc d = desc_of(names);
  mm::weights none;
  EXPECT_FAILS(MARLIN_E_SHAPE,
               "blk.0.ffn_down.weight is INT4 and blk.2.ffn_down.weight is INT8, but the layers of one handle have one format",
               marlin_weights_load, context.get(), file.get(), &d, none.out());
}

TEST_F(Load, NamesMayBeStrings) {
  const mm::checkpoint file(data("gguf-mixed"));
  const std::vector<std::string> names(2, "blk.0.ffn_down.weight");
  EXPECT_EQ(mm::info(mm::load(context, file, names)).n, 2 * 64);
}

TEST_F(Load, FloatsAreQuantizedOnLoadAsWhenPacked) {
  const mm::checkpoint file(data("float-f32"));
  const marlin_layer_info layer = file.layers().at(0);
  EXPECT_EQ(layer.format, MARLIN_FORMAT_NONE);
  EXPECT_EQ(layer.dtype, MARLIN_F32);
  const std::vector<const char*> names = {layer.name};
  marlin_load_desc d = desc_of(names);
  // Without a format, floats stay as they are, on the CPU.
  const mm::context cpu(MARLIN_BACKEND_CPU);
  const mm::weights kept = mm::load(cpu, file, d);
  EXPECT_EQ(mm::info(kept).format, MARLIN_FORMAT_FLOAT32);
  EXPECT_EQ(mm::info(kept).dtype, MARLIN_F32);

  marlin_matrix floats;
  EXPECT_OK(marlin_checkpoint_tensor, file.get(), (std::string(layer.name) + ".weight").c_str(), &floats);
  EXPECT_EQ(std::memcmp(decoded(kept).data(), floats.data, static_cast<size_t>(layer.n * layer.k) * sizeof(float)), 0);
  for (marlin_format format = MARLIN_FORMAT_INT4; format <= MARLIN_FORMAT_INT8; ++format)
    for (const bool mse : {false, true}) {
      d.format = format;
      d.flags = mse ? MARLIN_LOAD_SCALES_MSE : 0;
      d.group_size = format == MARLIN_FORMAT_NVFP4 ? 16 : 32;
      const mm::weights loaded = mm::load(context, file, d);
      auto p = mm::make<marlin_pack_desc>();
      p.format = format;
      p.group_size = d.group_size;
      p.n = layer.n;
      p.k = layer.k;
      p.flags = mse ? MARLIN_PACK_SCALES_MSE : 0;
      std::vector<float> aligned(static_cast<size_t>(layer.n * layer.k));
      std::memcpy(aligned.data(), floats.data, aligned.size() * 4);
      p.values = mm::matrix_view(aligned.data(), layer.n, layer.k);
      EXPECT_EQ(decoded(loaded), decoded(mm::pack(context, p))) << "format " << format << ", mse " << mse;
      EXPECT_EQ(mm::info(loaded).format, format);
    }
}

TEST_F(Load, TensorsAreBorrowedViews) {
  const mm::checkpoint file(data("ct-mxfp4"));
  const marlin_layer_info layer = file.layers().at(0);
  const marlin_matrix codes = file.tensor(std::string(layer.name) + ".weight_packed");
  EXPECT_EQ(codes.dtype, MARLIN_U8);
  EXPECT_EQ(codes.memory, MARLIN_MEM_HOST);
  EXPECT_EQ(codes.rows, layer.n);
  EXPECT_EQ(codes.cols, layer.k / 2);
  EXPECT_NE(codes.data, nullptr);
  EXPECT_EQ(file.tensor(std::string(layer.name) + ".weight_packed").data, codes.data) << "one mapping, not a copy each";
  marlin_matrix none = codes;
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "no.such", marlin_checkpoint_tensor, file.get(), "no.such", &none);
  EXPECT_EQ(none.data, nullptr);
  // Three dimensions or more: all but the last are rows.
  const mm::checkpoint experts(data("mxfp4-gpt-oss-experts"));
  const marlin_layer_info stack = experts.layers().at(0);
  const marlin_matrix blocks = experts.tensor(std::string(stack.name) + "_blocks");
  EXPECT_EQ(blocks.cols, 16);
  EXPECT_EQ(blocks.rows, int64_t{stack.experts} * stack.n * stack.k / 32);
  // A type that marlin_dtype has no name for.
  const mm::checkpoint gguf(data("gguf-mixed"));
  for (const marlin_layer_info& one : gguf.layers()) {
    marlin_matrix m;
    const Outcome outcome = call(marlin_checkpoint_tensor, gguf.get(), one.name, &m);
    EXPECT_EQ(outcome.status, one.format == MARLIN_FORMAT_NONE ? MARLIN_OK : MARLIN_E_UNSUPPORTED) << one.name;
  }
}

TEST_F(Load, LayersEndWithNotFoundAndFilesFailWithErrno) {
  const mm::checkpoint file(data("ct-mxfp4"));
  auto info = mm::make<marlin_layer_info>();
  EXPECT_FAILS(MARLIN_E_NOT_FOUND, "layer 1 of 1", marlin_checkpoint_layer, file.get(), uint64_t{1}, &info);
  auto err = mm::make<marlin_error>();
  mm::checkpoint none;
  EXPECT_EQ(marlin_checkpoint_open("/nonexistent/x.gguf", nullptr, none.out(), &err), MARLIN_E_FILE);
  EXPECT_EQ(err.native_code, 2);  // ENOENT
  EXPECT_TRUE(contains(err.message, "/nonexistent/x.gguf")) << err.message;
}

TEST_F(Load, TellsHowFarItIsAndStopsWhenAsked) {
  struct Host {
    size_t stop_at = SIZE_MAX;  // the number of the call that cancels
    std::vector<std::pair<uint64_t, uint64_t>> calls;
    std::vector<std::thread::id> threads;
  } host;
  const mm::checkpoint file(data("gptq-v1-sym-g128"));
  const marlin_layer_info layer = file.layers().at(0);
  const std::vector<const char*> names = {layer.name, layer.name};
  marlin_load_desc d = desc_of(names);
  d.user = &host;
  d.progress = [](void* user, uint64_t done, uint64_t total) -> int32_t {
    auto& h = *static_cast<Host*>(user);
    h.calls.emplace_back(done, total);
    h.threads.push_back(std::this_thread::get_id());
    return h.calls.size() > h.stop_at ? -7 : 0;
  };
  const auto total = static_cast<uint64_t>(2 * layer.n * layer.k);
  for (const uint32_t threads : {1u, 3u}) {
    auto desc = mm::make<marlin_context_desc>();
    desc.backend = MARLIN_BACKEND_CPU;
    desc.threads = threads;
    const mm::context own(desc);
    host = {};
    const std::vector<float> values = decoded(mm::load(own, file, d));
    ASSERT_GE(host.calls.size(), 2u);
    EXPECT_TRUE(std::is_sorted(host.calls.begin(), host.calls.end()));
    EXPECT_EQ(host.calls.front(), std::pair(uint64_t{0}, total));
    EXPECT_EQ(host.calls.back(), std::pair(total, total));
    for (const std::thread::id id : host.threads) EXPECT_TRUE(id == std::this_thread::get_id());
    if (threads != 1) continue;
    // The begin, each 64 rows, the end; one thread calls the same number of times again.
    const size_t count = host.calls.size();
    EXPECT_EQ(count, 2 + static_cast<size_t>((2 * layer.n + 63) / 64));
    for (size_t stop = 0; stop < count; ++stop) {
      host = {stop, {}, {}};
      mm::weights none;
      EXPECT_FAILS(MARLIN_E_CANCELLED, "progress", marlin_weights_load, own.get(), file.get(), &d, none.out());
      EXPECT_EQ(host.calls.size(), stop + 1);
    }
    host = {};
    EXPECT_EQ(decoded(mm::load(own, file, d)), values);
  }
}

TEST_F(Load, AScalarIsAMatrixAndRowsThatNoIntegerCountsAreAnError) {
  const std::string path = testing::TempDir() + "odd_ranks.safetensors";
  const std::string header = R"({"one":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("none":{"dtype":"F32","shape":[9223372036854775807,2,0],"data_offsets":[4,4]}})";
  std::ofstream(path, std::ios::binary) << model_files::safetensors(header, "1234");
  const mm::checkpoint file(path);
  std::remove(path.c_str());
  const marlin_matrix one = file.tensor("one");
  EXPECT_EQ(one.rows, 1);
  EXPECT_EQ(one.cols, 1);
  EXPECT_EQ(one.row_stride, 1);
  marlin_matrix none{};
  EXPECT_FAILS(MARLIN_E_FORMAT, "tensor none has more rows than 63 bits count", marlin_checkpoint_tensor, file.get(), "none",
               &none);
}

}  // namespace
}  // namespace abi_test::load_tests
