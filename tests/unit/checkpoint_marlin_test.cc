// Marlin's tiles: worked examples, all columns against a writer that follows the definition word by word, and what is refused.
#include "checkpoint_operands.h"
#include "fails.h"
#include "formats/codecs.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

constexpr int kRow[8] = {0, 8, 0, 8, 1, 9, 1, 9};

/// codes(k, n) in words [k / 16, 2 n].
template <class Codes>
std::vector<uint32_t> marlin_words(int64_t n, int64_t k, Codes codes) {
  constexpr int kColumn[8] = {0, 0, 8, 8, 0, 0, 8, 8};
  std::vector<uint32_t> words;
  for (int64_t kt = 0; kt < k / 16; ++kt) {
    for (int64_t nt = 0; nt < n / 64; ++nt) {
      for (int t = 0; t < 32; ++t) {
        for (int w = 0; w < 4; ++w) {
          uint32_t word = 0;
          for (int s = 0; s < 8; ++s) {
            word |= uint32_t{codes(16 * kt + 2 * (t % 4) + kRow[s], 64 * nt + 16 * w + t / 4 + kColumn[s])} << 4 * s;
          }
          words.push_back(word);
        }
      }
    }
  }
  return words;
}

/// Kept codes(kc, n), kc < k / 2, in words [k / 32, 2 n].
template <class Codes>
std::vector<uint32_t> marlin_24_words(int64_t n, int64_t k, Codes codes) {
  constexpr int kColumn[8] = {0, 0, 1, 1, 0, 0, 1, 1};
  std::vector<uint32_t> words;
  for (int64_t kt = 0; kt < k / 32; ++kt) {
    for (int64_t nt = 0; nt < n / 64; ++nt) {
      for (int t = 0; t < 32; ++t) {
        for (int j = 0; j < 4; ++j) {
          uint32_t word = 0;
          for (int s = 0; s < 8; ++s) {
            word |= uint32_t{codes(16 * kt + 2 * (t % 4) + kRow[s], 64 * nt + 8 * (t / 4) + j + 4 * kColumn[s])} << 4 * s;
          }
          words.push_back(word);
        }
      }
    }
  }
  return words;
}

/// nibble(n, block) in the order of CUTLASS's metadata, k / 16 * n units of 16 bits.
template <class Nibble>
std::vector<uint16_t> reordered_meta(int64_t n, int64_t k, Nibble nibble) {
  std::vector<uint16_t> units(static_cast<size_t>(n * k / 16));
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t c = 0; c < k / 16; ++c) {
      int64_t r = row / 64 * 64 + (row % 2) * 2 + (row % 8) / 4 + ((row % 4) / 2) * 32 + ((row % 64) / 8) * 4, to = c;
      if (r % 2 == 0 && c % 2 == 1) {
        ++r;
        --to;
      } else if (r % 2 == 1 && c % 2 == 0) {
        --r;
        ++to;
      }
      uint32_t unit = 0;
      for (int64_t i = 0; i < 4; ++i) unit |= uint32_t{nibble(row, 4 * c + i)} << 4 * i;
      units[static_cast<size_t>(to / 2 * 2 * n + 2 * r + to % 2)] = static_cast<uint16_t>(unit);
    }
  }
  return units;
}

/// A different scale for each column and group; exact in float16.
float scale_of(int64_t g, int64_t n) { return static_cast<float>(1 + g * 512 + n) / 64; }

/// [groups, n] with stored[b * order.size() + i] = s[b * order.size() + order[i]] in each row.
std::vector<uint16_t> stored_scales(int64_t groups, int64_t n, const std::vector<int>& order) {
  std::vector<uint16_t> out;
  const auto width = static_cast<int64_t>(order.size());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < n; ++i) {
      out.push_back(f32_to_f16(scale_of(g, i / width * width + order[static_cast<size_t>(i % width)])));
    }
  }
  return out;
}

std::vector<int> marlin_grouped() {
  std::vector<int> order;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) order.push_back(i + 8 * j);
  }
  return order;
}
std::vector<int> marlin_column() {
  std::vector<int> order;
  for (int i = 0; i < 4; ++i) {
    for (const int j : {0, 1, 8, 9, 16, 17, 24, 25}) order.push_back(2 * i + j);
  }
  return order;
}
const std::vector<int> kInterleaved = {0, 4, 1, 5, 2, 6, 3, 7}, kInOrder = {0};

TEST(CheckpointMarlin, WorkedExample) {
  const auto words = marlin_words(64, 16, [](int64_t k, int64_t n) { return static_cast<uint8_t>((k + n) % 16); });
  EXPECT_EQ(words[0], 0x19910880u) << "the test's own writer";
  EXPECT_EQ(words[22], 0x4cc43bb3u);
  const Operand q("values", MARLIN_I32, {1, 128}, words), s("scales", MARLIN_F16, {1, 64}, std::vector<uint16_t>(64, kOne));
  LayoutOperands o = operands(MARLIN_LAYOUT_MARLIN, MARLIN_FORMAT_INT4, 64, 16, 16, q, s);
  const auto values = decode(o);
  ASSERT_EQ(values.size(), 64u * 16u);
  for (size_t n = 0; n < 64; ++n) {
    for (size_t k = 0; k < 16; ++k) EXPECT_EQ(values[n * 16 + k], static_cast<float>((k + n) % 16) - 8) << n << " " << k;
  }
}

TEST(CheckpointMarlin, EveryColumnWithEitherOrderOfScales) {
  std::mt19937 random(17);
  for (const auto& [n, k, group] : {std::tuple<int64_t, int64_t, int64_t>{64, 256, 128}, {192, 128, 32}, {128, 48, 48}}) {
    const int64_t rows = n, groups = k / group, columns = k;
    std::vector<uint8_t> codes(static_cast<size_t>(n * k));
    for (auto& c : codes) c = static_cast<uint8_t>(random() % 16);
    const auto code = [&](int64_t kk, int64_t nn) { return codes[static_cast<size_t>(nn * columns + kk)]; };
    const Operand q("values", MARLIN_U32, {k / 16, 2 * n}, marlin_words(n, k, code)),
        s("scales", MARLIN_F16, {groups, n}, stored_scales(groups, n, groups > 1 ? marlin_grouped() : marlin_column()));
    LayoutOperands o = operands(MARLIN_LAYOUT_MARLIN, MARLIN_FORMAT_INT4, n, k, group, q, s);
    const auto values = decode(o);
    ASSERT_EQ(values.size(), codes.size());
    for (int64_t nn = 0; nn < rows; ++nn) {
      for (int64_t kk = 0; kk < columns; ++kk) {
        ASSERT_EQ(values[static_cast<size_t>(nn * columns + kk)], (code(kk, nn) - 8.0f) * scale_of(kk / group, nn))
            << nn << " " << kk;
      }
    }
  }
}

/// A 2:4 matrix in tiles.
struct Sparse {
  static constexpr unsigned kNibbles[6] = {4, 8, 12, 9, 13, 14};
  int64_t n, k, group;
  std::vector<uint8_t> kept;     // [n][k / 2]
  std::vector<uint8_t> nibbles;  // [n][k / 4]
  std::vector<int> order;        // of the scales

  Sparse(int64_t rows, int64_t columns, int64_t group_size, std::vector<int> scale_order)
      : n(rows), k(columns), group(group_size), order(std::move(scale_order)) {
    std::mt19937 random(static_cast<uint32_t>(rows + columns));
    for (int64_t i = 0; i < n * k / 2; ++i) kept.push_back(static_cast<uint8_t>(random() % 16));
    for (int64_t i = 0; i < n * k / 4; ++i) nibbles.push_back(static_cast<uint8_t>(kNibbles[random() % 6]));
  }
  std::vector<uint32_t> words() const {
    return marlin_24_words(n, k, [&](int64_t kc, int64_t nn) { return kept[static_cast<size_t>(nn * k / 2 + kc)]; });
  }
  std::vector<uint16_t> meta() const {
    return reordered_meta(n, k, [&](int64_t nn, int64_t b) { return nibbles[static_cast<size_t>(nn * k / 4 + b)]; });
  }
  std::vector<uint16_t> scales() const { return stored_scales(k / group, n, order); }
  std::vector<float> values() const {
    std::vector<float> out(static_cast<size_t>(n * k), 0.0f);
    for (int64_t nn = 0; nn < n; ++nn) {
      for (int64_t b = 0; b < k / 4; ++b) {
        const unsigned nibble = nibbles[static_cast<size_t>(nn * k / 4 + b)];
        const float scale = scale_of(4 * b / group, nn);
        const auto first = static_cast<size_t>(nn * k / 2 + 2 * b), base = static_cast<size_t>(nn * k + 4 * b);
        out[base + (nibble & 3)] = (kept[first] - 8.0f) * scale;
        out[base + (nibble >> 2)] = (kept[first + 1] - 8.0f) * scale;
      }
    }
    return out;
  }
};

TEST(CheckpointMarlin24, EveryColumnAndWhenScalesArePermuted) {
  // The writer permutes scales only when the group is smaller than half of K.
  const Sparse cases[] = {
      {64, 64, 16, kInterleaved}, {128, 512, 128, kInterleaved}, {192, 256, 128, kInOrder}, {64, 96, 96, kInOrder}};
  for (const Sparse& m : cases) {
    SCOPED_TRACE(std::to_string(m.n) + " x " + std::to_string(m.k));
    const Operand q("values", MARLIN_I32, {m.k / 32, 2 * m.n}, m.words()),
        s("scales", MARLIN_F16, {m.k / m.group, m.n}, m.scales()),
        meta("sparse_meta", MARLIN_I16, {m.k / 32, 2 * m.n}, m.meta());
    LayoutOperands o = operands(MARLIN_LAYOUT_MARLIN_24, MARLIN_FORMAT_INT4, m.n, m.k, m.group, q, s);
    o.sparse_meta = meta.view;
    EXPECT_TRUE(make_source(o).value()->meta().sparse);
    EXPECT_EQ(decode(o), m.values());
  }
}

template <class T>
std::string text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(CheckpointMarlin24, SparseMarlinOfISTPermutesWheneverThereAreGroups) {
  for (const bool grouped : {true, false}) {
    const Sparse m(64, 256, grouped ? 128 : 256, grouped ? kInterleaved : kInOrder);
    const auto opened =
        open_memory({{"f.safetensors", safetensors({{"l.B", "I32", "8,128", text(m.words())},
                                                    {"l.meta", "I16", "64,16", text(m.meta())},
                                                    {"l.s", "F16", grouped ? "2,64" : "1,64", text(m.scales())}})}});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    ASSERT_EQ(opened.value()->layers().size(), 1u);
    const Layer& layer = opened.value()->layers()[0];
    ASSERT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.name, "l");
    EXPECT_EQ(layer.n, 64);
    EXPECT_EQ(layer.k, 256);
    EXPECT_EQ(layer.group_size, grouped ? 128 : 256);
    EXPECT_EQ(layer.flags, MARLIN_LAYER_SPARSE_2_4);
    EXPECT_EQ(layer.layout, MARLIN_LAYOUT_MARLIN_24);
    const auto source = must(opened.value()->source(0, 0, {}));
    EXPECT_EQ(decode_all(*source).value(), m.values());
  }
}

TEST(CheckpointMarlin24, AnInvalidNibbleIsNamedByItsLogicalPlace) {
  Sparse m(64, 64, 64, kInOrder);
  m.nibbles[37 * 16 + 11] = 5;
  const Operand q("values", MARLIN_I32, {2, 128}, m.words()), s("scales", MARLIN_F16, {1, 64}, m.scales()),
      meta("sparse_meta", MARLIN_I16, {2, 128}, m.meta());
  LayoutOperands o = operands(MARLIN_LAYOUT_MARLIN_24, MARLIN_FORMAT_INT4, 64, 64, 64, q, s);
  o.sparse_meta = meta.view;
  EXPECT_THAT(error_of(o), Fails(MARLIN_E_FORMAT, AllOf(HasSubstr("row 37, block 11"), HasSubstr("found 5"))));
}

TEST(CheckpointMarlin, WhatIsRefused) {
  const Operand q("values", MARLIN_I32, {8, 128}, std::vector<uint32_t>(1024)),
      s("scales", MARLIN_F16, {1, 64}, std::vector<uint16_t>(64, kOne)),
      meta("sparse_meta", MARLIN_I16, {4, 128}, std::vector<uint16_t>(512, 0x4444));
  LayoutOperands dense = operands(MARLIN_LAYOUT_MARLIN, MARLIN_FORMAT_INT4, 64, 128, 128, q, s);
  EXPECT_TRUE(error_of(dense).ok());
  LayoutOperands sparse = dense;
  sparse.layout = MARLIN_LAYOUT_MARLIN_24;
  sparse.values.dims = {4, 128};
  sparse.sparse_meta = meta.view;
  EXPECT_TRUE(error_of(sparse).ok()) << error_of(sparse).message();
  const auto expect = [&](marlin_status code, const char* what, auto change) {
    for (LayoutOperands o : {dense, sparse}) {
      change(o);
      EXPECT_THAT(error_of(o), Fails(code, HasSubstr(what)));
    }
  };
  expect(MARLIN_E_UNSUPPORTED, "INT4", [](auto& o) { o.format = MARLIN_FORMAT_FP4; });
  expect(MARLIN_E_ARGUMENT, "additive", [](auto& o) { o.flags = MARLIN_PACK_ADDITIVE_ZEROS; });
  expect(MARLIN_E_ARGUMENT, "scales: expected none", [&](auto& o) { o.zeros = s.view; });
  expect(MARLIN_E_ARGUMENT, "expected none", [&](auto& o) { o.group_index = s.view; });
  expect(MARLIN_E_SHAPE, "n: expected a multiple of 64", [](auto& o) { o.n = 32; });
  expect(MARLIN_E_SHAPE, "k: expected a multiple of", [](auto& o) { o.k = o.group_size = 132; });
  expect(MARLIN_E_SHAPE, "group_size: expected a divisor", [](auto& o) {
    o.k = 160;
    o.group_size = 64;
  });
  expect(MARLIN_E_UNSUPPORTED, "values: dtype", [](auto& o) { o.values.dtype = MARLIN_I16; });
  expect(MARLIN_E_SHAPE, "values: expected [", [](auto& o) { o.values.dims = {2, 128}; });
  expect(MARLIN_E_UNSUPPORTED, "scales", [](auto& o) { o.scales.dtype = MARLIN_U8; });
  expect(MARLIN_E_SHAPE, "scales: expected [1, 64], found [2, 64]", [](auto& o) { o.scales.dims = {2, 64}; });
  const auto expect_sparse = [&](marlin_status code, const char* what, auto change) {
    LayoutOperands o = sparse;
    change(o);
    EXPECT_THAT(error_of(o), Fails(code, HasSubstr(what)));
  };
  expect_sparse(MARLIN_E_ARGUMENT, "sparse_meta: expected this operand", [](auto& o) {
    o.sparse_meta = {};
    o.sparse_meta.name = "sparse_meta";
  });
  expect_sparse(MARLIN_E_UNSUPPORTED, "sparse_meta: dtype: expected I16", [](auto& o) { o.sparse_meta.dtype = MARLIN_U8; });
  expect_sparse(MARLIN_E_SHAPE, "sparse_meta: expected [4, 128]", [](auto& o) { o.sparse_meta.dims = {64, 8}; });
}

}  // namespace
}  // namespace metal_marlin::testing
