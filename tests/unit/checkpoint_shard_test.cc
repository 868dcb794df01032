// Shards of checkpoints: the parts of 2, 3 and 8 ranks are the whole, and a border that the weights do not allow is an error
// that names the nearest ones.
#include "base/bits.h"
#include "checkpoint_files.h"
#include "checkpoints/tensor_table.h"
#include "fails.h"
#include "metal_marlin/metal_marlin.hpp"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

namespace fs = std::filesystem;

std::vector<float> decoded(const WeightSource& source) {
  const WeightMeta& meta = source.meta();
  std::vector<float> all(static_cast<size_t>(meta.n * meta.k));
  Stripe stripe;
  EXPECT_TRUE(source.read(0, meta.n, stripe).ok());
  decode_rows(meta, stripe, 0, meta.n, all.data());
  return all;
}

/// What columns may be cut at, by what a layer says of itself.
int64_t border_of(const WeightMeta& meta) {
  if (meta.has_two_level_scales()) return 256;
  if (meta.sparse) return meta.groups > 1 ? meta.group_size : 4;
  return 1;
}

std::vector<std::string> data_folders() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(data_path("")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class ShardsOf : public ::testing::TestWithParam<std::string> {
 protected:
  /// Each expert of each layer that has codes; floats are INT8.
  template <class Use>
  void for_each_matrix(const Use& use) {
    auto files = must(Checkpoint::open(data_path(GetParam()), MARLIN_LAYOUT_AUTO));
    for (size_t i = 0; i < files->layer_count(); ++i) {
      const Layer layer = files->layer(i);
      if (!layer.status.ok()) continue;
      SCOPED_TRACE(layer.name);
      const SourceOptions options{layer.format == MARLIN_FORMAT_NONE ? MARLIN_FORMAT_INT8 : MARLIN_FORMAT_NONE, 0, false, {}};
      const auto source = [&] { return files->source(i, layer.experts - 1, options); };
      ASSERT_TRUE(source().ok()) << source().status().message();
      use(source);
    }
  }
};

TEST_P(ShardsOf, AreTheWhole) {
  for_each_matrix([](const auto& source) {
    const auto whole_source = source().take();
    const std::vector<float> whole = decoded(*whole_source);
    const WeightMeta meta = whole_source->meta();
    for (const int64_t ranks : {2, 3, 8}) {
      // By N: one below the other, at borders of whole pairs.
      std::vector<float> rows;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t begin = meta.n / 2 * rank / ranks * 2,
                      end = rank + 1 == ranks ? meta.n : meta.n / 2 * (rank + 1) / ranks * 2;
        if (begin == end) continue;
        auto shard = must(make_shard(source().take(), begin, end - begin, 0, meta.k));
        const std::vector<float> part = decoded(*shard);
        rows.insert(rows.end(), part.begin(), part.end());
      }
      ASSERT_EQ(rows.size(), whole.size());
      EXPECT_EQ(std::memcmp(rows.data(), whole.data(), whole.size() * sizeof(float)), 0) << ranks << " ranks by N";
      // By K: side by side, at borders that are not those of groups if the weights allow it. Equal values give equal sums.
      const int64_t border = border_of(meta);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t units = meta.k / border, begin = units * rank / ranks * border,
                      end = rank + 1 == ranks ? meta.k : units * (rank + 1) / ranks * border;
        if (begin == end) continue;
        auto shard = make_shard(source().take(), 0, meta.n, begin, end - begin);
        ASSERT_TRUE(shard.ok()) << begin << ": " << shard.status().message();
        ASSERT_EQ(shard.value()->meta().k, end - begin);
        const std::vector<float> part = decoded(*shard.value());
        for (int64_t n = 0; n < meta.n; ++n)
          ASSERT_EQ(std::memcmp(part.data() + n * (end - begin), whole.data() + n * meta.k + begin,
                                static_cast<size_t>(end - begin) * sizeof(float)),
                    0)
              << ranks << " ranks by K, rank " << rank << ", row " << n << ", columns from " << begin << " to " << end;
      }
    }
  });
}

TEST(CheckpointShards, OfFloatsAreTheWhole) {
  const auto opened = must(Checkpoint::open(data_path("float-f32"), MARLIN_LAYOUT_AUTO));
  for (const marlin_format format : {MARLIN_FORMAT_NONE, MARLIN_FORMAT_FLOAT16}) {
    const auto source = [&] { return opened->source(0, 0, {format, 0, false, {}}).take(); };
    const WeightMeta meta = source()->meta();
    const std::vector<float> whole = decoded(*source());
    for (const int64_t first : {int64_t{1}, meta.k / 3, meta.k - 1}) {
      const int64_t count = std::min(meta.k / 2, meta.k - first);
      const auto shard = must(make_shard(source(), 0, meta.n, first, count));
      const std::vector<float> part = decoded(*shard);
      for (int64_t at = 0; at < meta.n * count; ++at)
        ASSERT_EQ(part[static_cast<size_t>(at)], whole[static_cast<size_t>(at / count * meta.k + first + at % count)])
            << "columns from " << first << ", value " << at;
    }
  }
}

/// A shard of a layer; INT8 where the file has floats.
metal_marlin::weights load_shard(const metal_marlin::context& context, const metal_marlin::checkpoint& file,
                                 const marlin_layer_info& layer, const marlin_shard& shard) {
  const char* const name = layer.name;
  auto desc = metal_marlin::make<marlin_load_desc>();
  desc.layers = &name;
  desc.layer_count = 1;
  desc.shards = &shard;
  desc.format = layer.format == MARLIN_FORMAT_NONE ? MARLIN_FORMAT_INT8 : MARLIN_FORMAT_NONE;
  return metal_marlin::load(context, file, desc);
}

// By the kernels: products of columns add up to the product of the whole, but for roundings of sums.
TEST_P(ShardsOf, AddUpToTheProduct) {
  namespace mm = metal_marlin;
  const mm::context context(MARLIN_BACKEND_CPU);
  const mm::checkpoint file(data_path(GetParam()));
  for (const marlin_layer_info& layer : file.layers()) {
    if (layer.status != MARLIN_OK || layer.experts != 1) continue;
    SCOPED_TRACE(layer.name);
    const auto load = [&](int64_t first, int64_t count) {
      return load_shard(context, file, layer, {{0, first, 0}, {0, count, 0}});
    };
    std::vector<float> a(static_cast<size_t>(layer.k)), w(static_cast<size_t>(layer.n * layer.k));
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i * 37 % 64) - 31) / 32.0f;
    mm::unpack(load(0, 0), mm::matrix_view(w.data(), layer.n, layer.k));
    // What the shards of a rank may begin at: where its groups do, which every layout here allows.
    const bool two_level = (layer.flags & MARLIN_PACK_TWO_LEVEL_SCALES) != 0;
    const int64_t border = two_level ? 256 : std::lcm<int64_t>(layer.group_size < layer.k ? layer.group_size : 4, 4);
    for (const int64_t ranks : {2, 3, 8}) {
      std::vector<double> sum(static_cast<size_t>(layer.n));
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t units = layer.k / border, begin = units * rank / ranks * border,
                      end = rank + 1 == ranks ? layer.k : units * (rank + 1) / ranks * border;
        if (begin == end) continue;
        std::vector<float> c(sum.size());
        const mm::weights part = load(begin, end - begin);
        auto desc = mm::make<marlin_gemm_desc>();
        desc.weights = part.get();
        desc.a = mm::matrix_view(a.data() + begin, 1, end - begin);
        desc.c = mm::matrix_view(c.data(), 1, layer.n);
        mm::gemm(desc);
        for (size_t n = 0; n < sum.size(); ++n) sum[n] += double{c[n]};
      }
      for (int64_t n = 0; n < layer.n; ++n) {
        double exact = 0, size = 0;
        for (int64_t k = 0; k < layer.k; ++k) {
          const double term = double{a[static_cast<size_t>(k)]} * double{w[static_cast<size_t>(n * layer.k + k)]};
          exact += term;
          size += std::abs(term);
        }
        if (!std::isfinite(exact)) continue;
        EXPECT_LE(std::abs(sum[static_cast<size_t>(n)] - exact), static_cast<double>(layer.k + ranks) * 0x1p-24 * size + 1e-30)
            << n;
      }
    }
  }
}

// Borders of no group, word, block or pair: a load gives the same bits, or an error that names the nearest borders it can have.
TEST_P(ShardsOf, LoadAtAnyBorderOrNameTheNearest) {
  namespace mm = metal_marlin;
  const mm::context context(MARLIN_BACKEND_CPU);
  const mm::checkpoint file(data_path(GetParam()));
  for (const marlin_layer_info& layer : file.layers()) {
    if (layer.status != MARLIN_OK) continue;
    SCOPED_TRACE(layer.name);
    const auto load = [&](int64_t first_n, int64_t count_n, int64_t first_k, int64_t count_k) {
      return load_shard(context, file, layer, {{first_n, first_k, 0}, {count_n, count_k, 1}});
    };
    std::vector<float> whole(static_cast<size_t>(layer.n * layer.k));
    mm::unpack(load(0, 0, 0, 0), mm::matrix_view(whole.data(), layer.n, layer.k));
    for (const int64_t n : {0, 1, 3})
      for (const int64_t k : {0, 1, 3, 4, 31, 33, 64, 100, 257})
        for (const int64_t width : {0, 1, 5, 36}) {
          if (n >= layer.n || k + width >= layer.k) continue;
          const std::string where = std::to_string(n) + ", " + std::to_string(k) + " + " + std::to_string(width);
          const int64_t rows = layer.n - n, columns = width == 0 ? layer.k - k : width;
          std::vector<float> part(static_cast<size_t>(rows * columns));
          try {
            mm::unpack(load(n, 0, k, width), mm::matrix_view(part.data(), rows, columns));
          } catch (const mm::error& error) {
            EXPECT_EQ(error.status(), MARLIN_E_SHAPE) << where;
            EXPECT_THAT(error.what(), HasSubstr("expected a border at ")) << where;
            continue;
          }
          for (int64_t row = 0; row < rows; ++row)
            ASSERT_EQ(std::memcmp(part.data() + row * columns, whole.data() + (n + row) * layer.k + k,
                                  static_cast<size_t>(columns) * sizeof(float)),
                      0)
                << where << ", row " << row;
        }
  }
}

TEST_P(ShardsOf, NameTheNearestBorders) {
  for_each_matrix([](const auto& source) {
    const WeightMeta meta = source().take()->meta();
    if (meta.gate_up_interleaved && meta.n > 3) {
      const auto rows = make_shard(source().take(), 1, meta.n - 1, 0, meta.k);
      ASSERT_FALSE(rows.ok());
      EXPECT_THAT(rows.status().message(), HasSubstr("alternate in pairs: expected a border at 0 or 2, found 1"));
    }
    const int64_t border = border_of(meta);
    if (border == 1 || meta.k <= border) return;
    const auto shard = make_shard(source().take(), 0, meta.n, border + 1, meta.k - border - 1);
    ASSERT_FALSE(shard.ok());
    EXPECT_THAT(shard.status(), Fails(MARLIN_E_SHAPE, HasSubstr("expected a border at " + std::to_string(border) + " or " +
                                                                std::to_string(std::min(2 * border, meta.k)) + ", found " +
                                                                std::to_string(border + 1))));
  });
}
INSTANTIATE_TEST_SUITE_P(Checkpoint, ShardsOf, ::testing::ValuesIn(data_folders()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace metal_marlin::testing
