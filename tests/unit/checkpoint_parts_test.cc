// Parts of matrices, and several matrices as one.
#include "checkpoint_operands.h"
#include "layouts/floats.h"
#include "sources/concat.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

std::unique_ptr<WeightSource> rows_source(const Operand& q, const Operand& s, marlin_format format, int64_t n, int64_t k) {
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, format, n, k, 0, q, s);
  return must(make_source(o));
}

TEST(CheckpointShard, OutsideIsRefused) {
  const Operand q("values", MARLIN_U8, {4, 32}, std::vector<uint8_t>(128, 0x11)),
      s("scales", MARLIN_U8, {4, 2}, std::vector<uint8_t>(8, 127));
  constexpr int64_t kBad[][4] = {{-1, 1, 0, 64}, {0, 5, 0, 64}, {4, 1, 0, 64},         {0, 0, 0, 64},        {0, 4, 0, 65},
                                 {0, 4, 64, 1},  {0, 4, 1, 64}, {1, INT64_MAX, 0, 64}, {0, 4, INT64_MAX, 1}, {0, 4, 0, 0}};
  for (const auto& bad : kBad) {
    const auto shard = make_shard(rows_source(q, s, MARLIN_FORMAT_MXFP4, 4, 64), bad[0], bad[1], bad[2], bad[3]);
    EXPECT_EQ(shard.status().code(), MARLIN_E_SHAPE);
  }
}

TEST(CheckpointShard, PairsOfGateAndUpStayWhole) {
  const Operand q("values", MARLIN_U8, {4, 16}, std::vector<uint8_t>(64, 0)),
      s("scales", MARLIN_U8, {4, 1}, std::vector<uint8_t>(4, 127));
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_MXFP4, 4, 32, 0, q, s);
  o.flags = MARLIN_PACK_GATE_UP_INTERLEAVED;
  EXPECT_EQ(make_shard(make_source(o).take(), 1, 2, 0, 32).status().code(), MARLIN_E_SHAPE);
  EXPECT_EQ(make_shard(make_source(o).take(), 0, 3, 0, 32).status().code(), MARLIN_E_SHAPE);
  EXPECT_TRUE(make_shard(make_source(o).take(), 2, 2, 0, 32).value()->meta().gate_up_interleaved);
}

/// 1 + 2^-11 lies between two numbers of F16, and 1 + 2^-8 between two of BF16: to nearest even. Rows have a stride.
TEST(CheckpointFloats, AreRoundedToAShorterType) {
  const float half = 0x1p-11f, brain = 0x1p-8f;
  Operand f("values", MARLIN_F32, {2, 3},
            std::vector<float>{1 + half, 1 + 3 * half, -2, 77, 1 + brain, 1 + 3 * brain, 65520, 77});
  f.view.row_stride = 4;
  const auto read_as = [&](marlin_format format) {
    const auto source = quantize_floats(operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_NONE, 2, 3, 0, f), {.quantize_to = format});
    EXPECT_TRUE(source.ok()) << source.status().message();
    return decode_all(*source.value(), 1).value();
  };
  EXPECT_EQ(read_as(MARLIN_FORMAT_NONE), (std::vector<float>{1 + half, 1 + 3 * half, -2, 1 + brain, 1 + 3 * brain, 65520}));
  EXPECT_EQ(read_as(MARLIN_FORMAT_FLOAT16),
            (std::vector<float>{1, 1 + 4 * half, -2, 1 + brain, 1 + 3 * brain, std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(read_as(MARLIN_FORMAT_BFLOAT16), (std::vector<float>{1, 1, -2, 1, 1 + 4 * brain, 65536}));
}

TEST(CheckpointConcat, PartsMustAgree) {
  const Operand q("values", MARLIN_U8, {2, 16}, std::vector<uint8_t>(32, 0x21)),
      e("scales", MARLIN_U8, {2, 1}, std::vector<uint8_t>(2, 127)),
      h("scales", MARLIN_F16, {2, 1}, std::vector<uint16_t>(2, kOne)),
      f("scales", MARLIN_F32, {2, 1}, std::vector<float>(2, 1.0f));
  const auto concat = [](std::unique_ptr<WeightSource> a, std::unique_ptr<WeightSource> b) {
    std::vector<std::unique_ptr<WeightSource>> parts;
    parts.push_back(std::move(a));
    parts.push_back(std::move(b));
    return make_concat(std::move(parts));
  };
  EXPECT_EQ(make_concat({}).status().code(), MARLIN_E_ARGUMENT);
  EXPECT_EQ(concat(rows_source(q, e, MARLIN_FORMAT_MXFP4, 2, 32), rows_source(q, h, MARLIN_FORMAT_FP4, 2, 32)).status().code(),
            MARLIN_E_SHAPE);
  EXPECT_EQ(concat(rows_source(q, h, MARLIN_FORMAT_INT4, 2, 32), rows_source(q, f, MARLIN_FORMAT_INT4, 2, 32)).status().code(),
            MARLIN_E_SHAPE);
  EXPECT_EQ(concat(rows_source(q, h, MARLIN_FORMAT_INT4, 2, 32), rows_source(q, h, MARLIN_FORMAT_INT4, 2, 31)).status().code(),
            MARLIN_E_SHAPE);
  EXPECT_TRUE(concat(rows_source(q, h, MARLIN_FORMAT_INT4, 2, 32), rows_source(q, h, MARLIN_FORMAT_INT4, 2, 32)).ok());
}

TEST(CheckpointConcat, OddScaleBytesInOnePartOnly) {
  std::vector<uint8_t> plain(36, 0x22), odd(36, 0x22);
  std::fill_n(plain.begin(), 4, uint8_t{0x38});
  std::fill_n(odd.begin(), 4, uint8_t{0xff});
  const Operand a("values", MARLIN_U8, {1, 36}, plain), b("values", MARLIN_U8, {1, 36}, odd);
  std::vector<std::unique_ptr<WeightSource>> parts;
  for (const Operand* q : {&a, &b, &a}) {
    parts.push_back(make_source(operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_NVFP4, 1, 64, 0, *q)).take());
  }
  const auto all = must(make_concat(std::move(parts)));
  EXPECT_EQ(all->meta().scale_type, ScaleType::f16);
  for (const int64_t stripe : {1, 2, 3}) {
    const auto values = decode_all(*all, stripe).value();
    EXPECT_EQ(values[0], 1.0f);
    EXPECT_EQ(values[64], 480.0f);
    EXPECT_EQ(values[128], 1.0f);
  }
}

}  // namespace
}  // namespace metal_marlin::testing
