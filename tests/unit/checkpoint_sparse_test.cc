// 2:4 sparse operands: every form of metadata against codes and masks that were drawn first, and what is refused.
#include "checkpoint_operands.h"
#include "fails.h"
#include "sources/concat.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

/// The six pairs of positions, and the metadata nibble of each.
constexpr struct {
  int first, second;
  unsigned nibble;
} kPairs[] = {{0, 1, 4}, {0, 2, 8}, {0, 3, 12}, {1, 2, 9}, {1, 3, 13}, {2, 3, 14}};

/// A random sparse matrix: dense codes (0 where not kept), the index of each block's pair, float32 scales of 1 + row / 8.
struct Drawn {
  int64_t n, k;
  std::vector<uint8_t> codes;
  std::vector<size_t> pairs;

  Drawn(int64_t rows, int64_t columns, uint32_t seed) : n(rows), k(columns) {
    std::mt19937 random(seed);
    codes.resize(static_cast<size_t>(n * k));
    for (int64_t b = 0; b < n * k / 4; ++b) {
      const size_t pair = random() % 6;
      pairs.push_back(pair);
      codes[static_cast<size_t>(4 * b + kPairs[pair].first)] = static_cast<uint8_t>(random() % 16);
      codes[static_cast<size_t>(4 * b + kPairs[pair].second)] = static_cast<uint8_t>(random() % 16);
    }
  }
  size_t pair(int64_t row, int64_t block) const { return pairs[static_cast<size_t>(row * k / 4 + block)]; }
  bool keeps(int64_t row, int64_t column) const {
    const auto& p = kPairs[pair(row, column / 4)];
    return column % 4 == p.first || column % 4 == p.second;
  }
  /// The i-th kept code of a row.
  uint8_t kept(int64_t row, int64_t i) const {
    const auto& p = kPairs[pair(row, i / 2)];
    return codes[static_cast<size_t>(row * k + i / 2 * 4 + (i % 2 == 0 ? p.first : p.second))];
  }
  std::vector<float> scales() const {
    std::vector<float> s;
    for (int64_t r = 0; r < n; ++r) s.push_back(1.0f + static_cast<float>(r) / 8);
    return s;
  }
  /// (q - zero) * scale, and +0 where not kept.
  std::vector<float> values(int zero) const {
    std::vector<float> out;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < k; ++c) {
        const int q = codes[static_cast<size_t>(r * k + c)];
        out.push_back(keeps(r, c) ? static_cast<float>(q - zero) * scales()[static_cast<size_t>(r)] : 0.0f);
      }
    }
    return out;
  }
  std::vector<uint8_t> kept_bytes() const {
    std::vector<uint8_t> bytes;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < k / 2; i += 2) bytes.push_back(static_cast<uint8_t>(kept(r, i) | kept(r, i + 1) << 4));
    }
    return bytes;
  }
  std::vector<uint8_t> bitmask() const {
    const int64_t width = (k + 7) / 8;
    std::vector<uint8_t> bytes(static_cast<size_t>(n * width));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < k; ++c) {
        if (keeps(r, c)) bytes[static_cast<size_t>(r * width + c / 8)] |= static_cast<uint8_t>(1 << c % 8);
      }
    }
    return bytes;
  }
  std::vector<uint16_t> nibbles() const {
    const int64_t width = (k + 15) / 16;
    std::vector<uint16_t> units(static_cast<size_t>(n * width));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t b = 0; b < k / 4; ++b) {
        units[static_cast<size_t>(r * width + b / 4)] |= static_cast<uint16_t>(kPairs[pair(r, b)].nibble << b % 4 * 4);
      }
    }
    return units;
  }
  std::vector<uint32_t> words() const {
    std::vector<uint32_t> out(static_cast<size_t>(2 * ((k + 31) / 32) * n));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t i = 0; i < k / 2; ++i) out[static_cast<size_t>(i / 8 * n + r)] |= uint32_t{kept(r, i)} << i % 8 * 4;
    }
    return out;
  }
  std::vector<uint32_t> meta_words() const {
    std::vector<uint32_t> out(static_cast<size_t>((k + 31) / 32 * n));
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t b = 0; b < k / 4; ++b) out[static_cast<size_t>(b / 8 * n + r)] |= kPairs[pair(r, b)].nibble << b % 8 * 4;
    }
    return out;
  }
};

constexpr std::pair<int64_t, int64_t> kShapes[] = {{1, 4}, {1, 8}, {3, 12}, {5, 20}, {2, 32}, {9, 36}, {4, 64}, {3, 100}};

TEST(CheckpointSparse, RowsWithEitherMetadata) {
  for (const auto& [n, k] : kShapes) {
    SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k));
    const Drawn drawn(n, k, static_cast<uint32_t>(k));
    const Operand q("values", MARLIN_U8, {n, k / 4}, drawn.kept_bytes()), s("scales", MARLIN_F32, {n, 1}, drawn.scales());
    const Operand mask("sparse_meta", MARLIN_U8, {n, (k + 7) / 8}, drawn.bitmask());
    const Operand nibbles("sparse_meta", MARLIN_I16, {n, (k + 15) / 16}, drawn.nibbles());
    LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, n, k, k, q, s);
    for (const Operand* meta : {&mask, &nibbles}) {
      o.sparse_meta = meta->view;
      const auto source = must(make_source(o));
      EXPECT_TRUE(source->meta().sparse);
      const auto found = decode(o);
      EXPECT_EQ(found, drawn.values(8));
      for (const float v : found) EXPECT_FALSE(v == 0 && std::signbit(v)) << "an element that is not kept is +0";
    }
  }
}

TEST(CheckpointSparse, K8n) {
  for (const auto& [n, k] : kShapes) {
    SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k));
    const Drawn drawn(n, k, static_cast<uint32_t>(k + 1));
    auto words = drawn.words();
    auto meta = drawn.meta_words();
    if (k % 32 != 0) {  // what lies behind k is never looked at, as long as its metadata are valid
      meta.back() |= 0xeu << 28;
      words.back() |= 0xf0000000u;
    }
    const Operand q("values", MARLIN_U32, {2 * ((k + 31) / 32), n}, words), s("scales", MARLIN_F32, {1, n}, drawn.scales()),
        m("sparse_meta", MARLIN_U32, {(k + 31) / 32, n}, meta);
    LayoutOperands o = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_INT4, n, k, k, q, s);
    o.sparse_meta = m.view;
    EXPECT_EQ(decode(o), drawn.values(8));
  }
}

TEST(CheckpointSparse, GroupsCountDenseElementsAndZerosConcernKeptOnes) {
  // k = 32, groups of 16: 0b0011 everywhere; codes 5 and 9; zero points 5 and 2.
  const Operand q("values", MARLIN_U8, {1, 8}, std::vector<uint8_t>(8, 0x95)),
      s("scales", MARLIN_F16, {1, 2}, std::vector<uint16_t>{kOne, kHalf}),
      z("zeros", MARLIN_U8, {1, 2}, std::vector<uint8_t>{5, 2}),
      m("sparse_meta", MARLIN_I16, {1, 2}, std::vector<uint16_t>(2, 0x4444));
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 1, 32, 16, q, s, z);
  o.sparse_meta = m.view;
  const auto values = decode(o);
  EXPECT_EQ(values[0], 0.0f);
  EXPECT_EQ(values[1], 4.0f);
  EXPECT_EQ(values[2], 0.0f) << "not -5";
  EXPECT_EQ(values[16], 1.5f);
  EXPECT_EQ(values[17], 3.5f);
  EXPECT_EQ(values[31], 0.0f);
}

TEST(CheckpointSparse, StridedOperands) {
  const Drawn drawn(3, 24, 5);
  std::vector<uint8_t> q, m;
  std::vector<float> s;
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < 8; ++i) q.push_back(i < 6 ? drawn.kept_bytes()[static_cast<size_t>(r * 6 + i)] : 0xee);
    for (int64_t i = 0; i < 5; ++i) m.push_back(i < 3 ? drawn.bitmask()[static_cast<size_t>(r * 3 + i)] : 0xee);
    s.push_back(drawn.scales()[static_cast<size_t>(r)]);
  }
  const Operand values("values", MARLIN_U8, {3, 6}, q), scales("scales", MARLIN_F32, {3, 1}, s),
      meta("sparse_meta", MARLIN_U8, {3, 3}, m);
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 3, 24, 24, values, scales);
  o.sparse_meta = meta.view;
  o.values.row_stride = 8;
  o.sparse_meta.row_stride = 5;
  EXPECT_EQ(decode(o), drawn.values(8));
  o.values.dtype = MARLIN_U4;
  o.values.dims = {3, 12};
  o.values.row_stride = 16;
  EXPECT_EQ(decode(o), drawn.values(8));
}

TEST(CheckpointSparse, EveryInvalidNibbleAndMaskIsNamed) {
  const Drawn drawn(3, 32, 9);
  const Operand q("values", MARLIN_U8, {3, 8}, drawn.kept_bytes()), w("values", MARLIN_U32, {2, 3}, drawn.words()),
      s("scales", MARLIN_F32, {3, 1}, drawn.scales()), st("scales", MARLIN_F32, {1, 3}, drawn.scales());
  LayoutOperands rows = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 3, 32, 32, q, s);
  LayoutOperands words = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_INT4, 3, 32, 32, w, st);
  const auto expect = [](const LayoutOperands& o, const std::string& found) {
    EXPECT_THAT(error_of(o),
                Fails(MARLIN_E_FORMAT, AllOf(HasSubstr("sparse_meta: row 1, block 5:"), HasSubstr("found " + found))));
  };
  size_t invalid = 0;
  for (unsigned nibble = 0; nibble < 16; ++nibble) {
    const bool valid = std::any_of(std::begin(kPairs), std::end(kPairs), [&](const auto& p) { return p.nibble == nibble; });
    if (valid) continue;
    ++invalid;
    auto units = drawn.nibbles();
    units[2 + 1] = static_cast<uint16_t>((units[2 + 1] & ~0xf0u) | nibble << 4);
    const Operand m("sparse_meta", MARLIN_I16, {3, 2}, units);
    rows.sparse_meta = m.view;
    expect(rows, std::to_string(nibble));
    auto meta = drawn.meta_words();
    meta[1] = (meta[1] & ~0xf00000u) | nibble << 20;
    const Operand mw("sparse_meta", MARLIN_U32, {1, 3}, meta);
    words.sparse_meta = mw.view;
    expect(words, std::to_string(nibble));
  }
  EXPECT_EQ(invalid, 10u);
  for (unsigned mask = 0; mask < 16; ++mask) {
    if (__builtin_popcount(mask) == 2) continue;
    auto bytes = drawn.bitmask();
    bytes[4 + 2] = static_cast<uint8_t>((bytes[4 + 2] & 0x0fu) | mask << 4);
    const Operand m("sparse_meta", MARLIN_U8, {3, 4}, bytes);
    rows.sparse_meta = m.view;
    expect(rows, mask < 10 ? "mask 0x" + std::to_string(mask) : "mask 0x");
  }
}

TEST(CheckpointSparse, BitsBehindTheLastBlock) {
  const Drawn drawn(2, 12, 3);
  const Operand q("values", MARLIN_U8, {2, 3}, drawn.kept_bytes()), s("scales", MARLIN_F32, {2, 1}, drawn.scales()),
      st("scales", MARLIN_F32, {1, 2}, drawn.scales());
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 2, 12, 12, q, s);
  auto mask = drawn.bitmask();
  mask[3] |= 0x30;  // a valid block that is not there
  const Operand m("sparse_meta", MARLIN_U8, {2, 2}, mask);
  o.sparse_meta = m.view;
  EXPECT_THAT(error_of(o), Fails(MARLIN_E_FORMAT, HasSubstr("row 1: expected 0 in the bits behind the last block, found 0x3")));
  auto nibbles = drawn.nibbles();
  nibbles[1] |= 0x4000;
  const Operand i("sparse_meta", MARLIN_I16, {2, 1}, nibbles);
  o.sparse_meta = i.view;
  EXPECT_THAT(error_of(o).message(), HasSubstr("found 0x4"));
  auto words = drawn.meta_words();
  words[1] |= 0x30000000u;
  const Operand w("sparse_meta", MARLIN_U32, {1, 2}, words), v("values", MARLIN_U32, {2, 2}, drawn.words());
  o = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_INT4, 2, 12, 12, v);
  o.scales = st.view;
  o.sparse_meta = w.view;
  EXPECT_THAT(error_of(o), Fails(MARLIN_E_FORMAT, HasSubstr("row 1, block 7")));
}

TEST(CheckpointSparse, ShapesTypesAndPlaces) {
  const Drawn drawn(2, 32, 1);
  const Operand q("values", MARLIN_U8, {2, 8}, drawn.kept_bytes()), s("scales", MARLIN_F32, {2, 1}, drawn.scales()),
      m("sparse_meta", MARLIN_U8, {2, 4}, drawn.bitmask());
  LayoutOperands good = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 2, 32, 32, q, s);
  good.sparse_meta = m.view;
  EXPECT_TRUE(error_of(good).ok());
  const auto expect = [&](marlin_status code, const char* text, auto change) {
    LayoutOperands o = good;
    change(o);
    EXPECT_THAT(error_of(o), Fails(code, HasSubstr(text)));
  };
  expect(MARLIN_E_SHAPE, "sparse_meta: expected [2, 4], found [2, 3]", [](auto& o) { o.sparse_meta.dims = {2, 3}; });
  expect(MARLIN_E_SHAPE, "sparse_meta: expected [2, 2]", [](auto& o) { o.sparse_meta.dtype = MARLIN_I16; });
  expect(MARLIN_E_UNSUPPORTED, "sparse_meta: dtype", [](auto& o) { o.sparse_meta.dtype = MARLIN_U32; });
  expect(MARLIN_E_SHAPE, "values: expected [2, 8], found [2, 16]", [](auto& o) { o.values.dims = {2, 16}; });
  expect(MARLIN_E_SHAPE, "whole blocks of 4", [](auto& o) { o.k = 30; });
  expect(MARLIN_E_UNSUPPORTED, "no sparse form", [](auto& o) { o.format = MARLIN_FORMAT_INT8; });
  expect(MARLIN_E_ARGUMENT, "OBEYS_2_4", [](auto& o) { o.flags = MARLIN_PACK_OBEYS_2_4; });
  for (const marlin_layout layout : {MARLIN_LAYOUT_GPTQ_V1, MARLIN_LAYOUT_GPTQ_V2, MARLIN_LAYOUT_AWQ, MARLIN_LAYOUT_AWQ_GEMV,
                                     MARLIN_LAYOUT_AWQ_GEMV_FAST, MARLIN_LAYOUT_GGUF, MARLIN_LAYOUT_MARLIN}) {
    expect(MARLIN_E_ARGUMENT, "sparse_meta: expected none in this layout", [&](auto& o) { o.layout = layout; });
  }
  const std::vector<int32_t> shuffled{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                      0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const Operand g("group_index", MARLIN_I32, {1, 32}, shuffled), two("scales", MARLIN_F32, {2, 2}, std::vector<float>(4, 1.0f));
  expect(MARLIN_E_UNSUPPORTED, "group_index", [&](auto& o) {
    o.group_size = 16;
    o.scales = two.view;
    o.group_index = g.view;
  });
}

// --- dense values that obey -------------------------------------------------------------------------------------------------

/// The masks of row 0.
std::vector<int> kept_of(const LayoutOperands& o) {
  const auto source = make_source(o);
  EXPECT_TRUE(source.ok()) << source.status().message();
  if (!source.ok()) return {};
  Stripe stripe;
  const Status status = source.value()->read(0, 1, stripe);
  EXPECT_TRUE(status.ok()) << status.message();
  return {stripe.kept.begin(), stripe.kept.end()};
}

std::vector<uint8_t> packed(std::initializer_list<int> codes) {
  std::vector<uint8_t> bytes;
  for (auto at = codes.begin(); at != codes.end(); at += 2) bytes.push_back(static_cast<uint8_t>(at[0] | at[1] << 4));
  return bytes;
}

TEST(CheckpointObeys, KeepsNonZerosThenTheLowest) {
  // Symmetric INT4: 8 is 0.
  const Operand q("values", MARLIN_U8, {1, 8}, packed({8, 8, 8, 8, 8, 8, 8, 1, 8, 9, 8, 0, 15, 8, 8, 8}));
  const Operand s("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kOne});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 1, 16, 16, q, s);
  o.flags = MARLIN_PACK_OBEYS_2_4;
  EXPECT_EQ(kept_of(o), (std::vector<int>{0b0011, 0b1001, 0b1010, 0b0011}));
  EXPECT_EQ(decode(o), (std::vector<float>{0, 0, 0, 0, 0, 0, 0, -7, 0, 1, 0, -8, 7, 0, 0, 0}));
}

TEST(CheckpointObeys, ZeroIsWhatTheFormatCallsZero) {
  const Operand q("values", MARLIN_U8, {1, 4}, packed({8, 0, 1, 9, 3, 3, 2, 4}));
  const Operand s("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kOne}),
      h("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kHalf});
  LayoutOperands fp4 = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_FP4, 1, 8, 8, q, s);
  fp4.flags = MARLIN_PACK_OBEYS_2_4;
  EXPECT_EQ(error_of(fp4).code(), MARLIN_E_FORMAT) << "block 1 has four";
  fp4.values.dims = {1, 2};
  fp4.k = fp4.group_size = 4;
  EXPECT_EQ(kept_of(fp4), std::vector<int>{0b1100}) << "codes 0 and 8 are +0 and -0";
  // Integer zero points: 3 is 0. The first block has four others.
  const Operand z("zeros", MARLIN_U8, {1, 1}, std::vector<uint8_t>{3});
  const Operand last("values", MARLIN_U8, {1, 2}, packed({3, 3, 2, 4}));
  LayoutOperands int4 = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 1, 4, 4, last, s, z);
  int4.flags = MARLIN_PACK_OBEYS_2_4;
  EXPECT_EQ(kept_of(int4), std::vector<int>{0b1100});
  // Additive: 0.5 q - 1.5 is 0 for q = 3.
  const Operand a("zeros", MARLIN_F32, {1, 1}, std::vector<float>{-1.5f});
  int4.scales = h.view;
  int4.zeros = a.view;
  int4.flags |= MARLIN_PACK_ADDITIVE_ZEROS;
  EXPECT_EQ(kept_of(int4), std::vector<int>{0b1100});
  EXPECT_EQ(decode(int4), (std::vector<float>{0, 0, -0.5f, 0.5f}));
}

TEST(CheckpointObeys, ThreeNonZerosAreNamed) {
  std::vector<uint8_t> bytes(2 * 16, 0x88);
  bytes[16 + 6] = 0x11;
  bytes[16 + 7] = 0x18;
  const Operand q("values", MARLIN_U8, {2, 16}, bytes), s("scales", MARLIN_F16, {2, 1}, std::vector<uint16_t>(2, kOne));
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 2, 32, 32, q, s);
  o.flags = MARLIN_PACK_OBEYS_2_4;
  EXPECT_THAT(error_of(o), Fails(MARLIN_E_FORMAT, AllOf(HasSubstr("row 1, block 3 (columns 12..15)"), HasSubstr("found 3"))));
  o.k = 30;
  o.values.dims = {2, 15};
  o.values.row_stride = 16;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
}

TEST(CheckpointObeys, InEveryLayoutOfCodes) {
  const Operand q("values", MARLIN_U32, {1, 2}, std::vector<uint32_t>{0x88188881u, 0x88888888u}),
      s("scales", MARLIN_F16, {1, 2}, std::vector<uint16_t>(2, kOne));
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V2, MARLIN_FORMAT_INT4, 2, 8, 8, q, s);
  o.flags = MARLIN_PACK_OBEYS_2_4;
  EXPECT_EQ(kept_of(o), (std::vector<int>{0b0011, 0b0011}));
  o.layout = MARLIN_LAYOUT_K8N;
  EXPECT_EQ(decode(o)[0], -7.0f);
}

TEST(CheckpointSparse, FloatsKeepTheirPattern) {
  // The worked example: a, b, c, d and mask 0xA5 are a, 0, b, 0, 0, c, 0, d. b is 0 and keeps its place.
  const Operand v("values", MARLIN_F32, {1, 4}, std::vector<float>{-7, 0, 3, 1}),
      mask("sparse_meta", MARLIN_U8, {1, 1}, std::vector<uint8_t>{0xa5}),
      nibbles("sparse_meta", MARLIN_I16, {1, 1}, std::vector<uint16_t>{0x00d8});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 1, 8, 8, v);
  for (const Operand* meta : {&mask, &nibbles}) {
    o.sparse_meta = meta->view;
    EXPECT_EQ(kept_of(o), (std::vector<int>{0b0101, 0b1010}));
    EXPECT_EQ(decode(o), (std::vector<float>{-7, 0, 0, 0, 0, 3, 0, 1}));
  }
  o.sparse_meta.dims = {1, 2};
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
  const Operand bad("sparse_meta", MARLIN_U8, {1, 1}, std::vector<uint8_t>{0xb5});
  o.sparse_meta = bad.view;
  EXPECT_THAT(error_of(o), Fails(MARLIN_E_FORMAT, HasSubstr("row 0, block 1")));
  o.sparse_meta = mask.view;
  o.k = 6;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
}

TEST(CheckpointSparse, ShardsAndConcatenation) {
  const Drawn drawn(5, 64, 11);
  const Operand q("values", MARLIN_U8, {5, 16}, drawn.kept_bytes()), s("scales", MARLIN_F32, {5, 1}, drawn.scales()),
      m("sparse_meta", MARLIN_U8, {5, 8}, drawn.bitmask());
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 5, 64, 64, q, s);
  o.sparse_meta = m.view;
  const auto whole = drawn.values(8);
  auto part = must(make_shard(make_source(o).take(), 2, 3, 8, 24));
  const auto found = must(decode_all(*part, 2));
  for (size_t r = 0; r < 3; ++r) {
    for (size_t c = 0; c < 24; ++c) EXPECT_EQ(found[r * 24 + c], whole[(r + 2) * 64 + c + 8]);
  }
  EXPECT_EQ(make_shard(make_source(o).take(), 0, 5, 2, 8).status().code(), MARLIN_E_SHAPE);
  std::vector<std::unique_ptr<WeightSource>> both;
  both.push_back(make_source(o).take());
  both.push_back(make_source(o).take());
  const auto all = must(make_concat(std::move(both)));
  const auto twice = must(decode_all(*all, 4));
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), twice.begin() + static_cast<ptrdiff_t>(whole.size())));
}

}  // namespace
}  // namespace metal_marlin::testing
