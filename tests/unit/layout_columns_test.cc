// A shard of columns: what a source gives from a column on is what it gave of these columns before.
#include "checkpoint_operands.h"
#include "problem/memory_source.h"
#include "sources/interleave.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

template <class T>
std::vector<T> noise(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random());
  return values;
}
std::vector<uint16_t> some_f16(size_t count) {
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<uint16_t>(0x3000 + 16 * i);
  return values;
}

/// Compares columns [first, first + count) with those of the whole.
void expect_columns(const LayoutOperands& o, int64_t first, int64_t count) {
  const std::vector<float> whole = decode(o);
  ASSERT_EQ(whole.size(), static_cast<size_t>(o.n * o.k));
  auto source = make_source(o).take();
  ASSERT_EQ(first % source->column_unit(), 0);
  source->narrow(first, count);
  const auto part = must(decode_all(*source, 3));
  ASSERT_EQ(part.size(), static_cast<size_t>(o.n * count));
  for (int64_t n = 0; n < o.n; ++n)
    for (int64_t k = 0; k < count; ++k)
      ASSERT_EQ(part[static_cast<size_t>(n * count + k)], whole[static_cast<size_t>(n * o.k + first + k)]) << n << ", " << k;
}

constexpr int64_t kN = 8, kK = 128, kGroup = 32, kGroups = kK / kGroup;

TEST(LayoutColumns, OfWordsAlongK) {
  const Operand words("values", MARLIN_U32, {kK / 8, kN}, noise<uint32_t>(kK / 8 * kN, 1)),
      half_words("values", MARLIN_U32, {kK / 16, kN}, noise<uint32_t>(kK / 16 * kN, 1)),
      scales("scales", MARLIN_F16, {kGroups, kN}, some_f16(kGroups * kN)),
      packed("zeros", MARLIN_U32, {kGroups, kN / 8}, noise<uint32_t>(kGroups, 2)),
      bytes("zeros", MARLIN_U8, {kGroups, kN}, std::vector<uint8_t>(kGroups * kN, 7)),
      additive("zeros", MARLIN_F16, {kGroups, kN}, some_f16(kGroups * kN)),
      pattern("sparse_meta", MARLIN_U32, {kK / 32, kN}, std::vector<uint32_t>(kK / 32 * kN, 0x444ee994u));
  for (const marlin_layout layout : {MARLIN_LAYOUT_GPTQ_V2, MARLIN_LAYOUT_K8N}) {
    LayoutOperands o = operands(layout, MARLIN_FORMAT_INT4, kN, kK, kGroup, words, scales);
    expect_columns(o, 32, 64);
    o.zeros = layout == MARLIN_LAYOUT_K8N ? bytes.view : packed.view;
    expect_columns(o, 64, 64);
    if (layout != MARLIN_LAYOUT_K8N) continue;
    o.zeros = additive.view;
    o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
    expect_columns(o, 96, 32);
  }
  LayoutOperands sparse = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_INT4, kN, kK, kGroup, half_words, scales);
  sparse.sparse_meta = pattern.view;
  expect_columns(sparse, 64, 32);
  LayoutOperands promised = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_INT4, kN, kK, kGroup, words, scales);
  promised.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  EXPECT_STREQ(error_of(promised).message(), "zeros: the flags promise additive zeros, found none");
}

TEST(LayoutColumns, OfAwq) {
  const Operand words("values", MARLIN_I32, {kK, kN / 8}, noise<uint32_t>(kK * kN / 8, 3)),
      scales("scales", MARLIN_F16, {kGroups, kN}, some_f16(kGroups * kN)),
      zeros("zeros", MARLIN_I32, {kGroups, kN / 8}, noise<uint32_t>(kGroups, 4));
  LayoutOperands o = operands(MARLIN_LAYOUT_AWQ, MARLIN_FORMAT_INT4, kN, kK, kGroup, words, scales);
  expect_columns(o, 64, 33);
  o.zeros = zeros.view;
  expect_columns(o, 32, 64);
  o.n = 4;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
  EXPECT_STREQ(error_of(o).message(), "values: n: AWQ packs multiples of 8 columns, found 4");
}

TEST(LayoutColumns, OfRows) {
  const Operand nibbles("values", MARLIN_U8, {kN, kK / 2}, noise<uint8_t>(kN * kK / 2, 5)),
      half("values", MARLIN_U8, {kN, kK / 4}, noise<uint8_t>(kN * kK / 4, 5)),
      scales("scales", MARLIN_F16, {kN, kGroups}, some_f16(kN * kGroups)),
      bytes("zeros", MARLIN_U8, {kN, kGroups}, std::vector<uint8_t>(kN * kGroups, 9)),
      additive("zeros", MARLIN_F32, {kN, kGroups}, std::vector<float>(kN * kGroups, 0.5f)),
      masks("sparse_meta", MARLIN_U8, {kN, kK / 8}, std::vector<uint8_t>(kN * kK / 8, 0x39)),
      pattern("sparse_meta", MARLIN_I16, {kN, kK / 16}, std::vector<uint16_t>(kN * kK / 16, 0x4e94));
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, kN, kK, kGroup, nibbles, scales);
  expect_columns(o, 32, 96);
  o.zeros = bytes.view;
  expect_columns(o, 64, 32);
  o.zeros = additive.view;
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  expect_columns(o, 96, 32);
  for (const Operand* meta : {&masks, &pattern}) {
    LayoutOperands sparse = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, kN, kK, kGroup, half, scales);
    sparse.sparse_meta = meta->view;
    expect_columns(sparse, 64, 64);
  }
}

TEST(LayoutColumns, OfAwqGemv) {
  // Groups of 32: the scales of a row are padded to 32 groups, its zeros to four words of eight groups each.
  constexpr int64_t kLong = 512;
  const Operand words("values", MARLIN_I32, {kN, kLong / 8}, noise<uint32_t>(kN * kLong / 8, 6)),
      scales("scales", MARLIN_F16, {kN, 32}, some_f16(kN * 32)),
      zeros("zeros", MARLIN_I32, {kN, 4}, noise<uint32_t>(kN * 4, 7));
  LayoutOperands o = operands(MARLIN_LAYOUT_AWQ_GEMV, MARLIN_FORMAT_INT4, kN, kLong, kGroup, words, scales);
  expect_columns(o, 256, 64);
  o.zeros = zeros.view;
  expect_columns(o, 256, 256);
  o.k = o.group_size = 132;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
  EXPECT_STREQ(error_of(o).message(), "values: k: expected a multiple of 8, found 132");
}

TEST(LayoutColumns, OfFloats) {
  std::string values;
  for (int i = 0; i < 16; ++i) append(values, static_cast<float>(i));
  const auto opened = must(open_memory({{"f.safetensors", safetensors({{"a.weight", "F32", "2,8", values}})}}));
  auto source = opened->source(0, 0, {}).take();
  source->narrow(3, 2);
  EXPECT_EQ(decode_all(*source).value(), (std::vector<float>{3, 4, 11, 12}));
}

/// A reading of a matrix that a file left open.
class DoubtfulSource final : public WeightSource {
 public:
  DoubtfulSource() {
    meta_ = int4_of_two_rows(ScaleType::f16);
    warning_ = "doubtful";
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes = {static_cast<uint8_t>(first), static_cast<uint8_t>(count)};
    return {};
  }
  int64_t column_unit() const override { return 32; }
  void narrow(int64_t, int64_t count) override { meta_.k = count; }
};

TEST(LayoutColumns, OfPairsOfGateAndUp) {
  const auto source = make_interleaved(std::make_unique<DoubtfulSource>()).take();
  EXPECT_EQ(source->warning(), "doubtful");
  EXPECT_EQ(source->column_unit(), 32);
  for (const int64_t k : {64, 32}) {
    EXPECT_TRUE(source->meta().gate_up_interleaved);
    EXPECT_EQ(source->meta().k, k);
    source->narrow(0, 32);
  }
  Stripe stripe;
  ASSERT_TRUE(source->read(1, 1, stripe).ok());
  EXPECT_EQ(stripe.codes, (std::vector<uint8_t>{1, 1}));
}

TEST(LayoutColumns, RowsOfOneStrideOnlyWhereALayoutHasSuch) {
  const Operand words("values", MARLIN_U32, {kK / 8, kN}, noise<uint32_t>(kK / 8 * kN + kK, 1)),
      scales("scales", MARLIN_F16, {kGroups, kN}, some_f16(kGroups * kN));
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V2, MARLIN_FORMAT_INT4, kN, kK, kGroup, words, scales);
  o.values.row_stride = kN + 1;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_UNSUPPORTED);
  EXPECT_STREQ(error_of(o).message(), "values: row_stride: this layout takes contiguous rows of 8, found 9");
}

}  // namespace
}  // namespace metal_marlin::testing
