// The worked examples of codes of other widths in docs/formats.md.
#include "checkpoint_operands.h"
#include "layouts/layout_table.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

/// A matrix of one block of 256 elements that the bytes describe.
std::vector<float> decode_k_quant(marlin_format format, uint32_t flags, const std::vector<uint8_t>& bytes) {
  const Operand q("values", MARLIN_U8, {1, static_cast<int64_t>(bytes.size())}, bytes);
  LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, format, 1, 256, 0, q);
  o.flags = MARLIN_PACK_TWO_LEVEL_SCALES | flags;
  return decode(o);
}

TEST(CheckpointGguf, KQuants) {
  auto q4 = block({0x00, 0x38, 0x00, 0x34, 1, 2, 3, 0xc4, 5, 6, 7, 8, 0x9a, 0xbc, 0xde, 0xf0, 0x93}, 144);
  q4[16 + 96] = 0x7c;
  const auto v4 = decode_k_quant(MARLIN_FORMAT_INT4, MARLIN_PACK_ADDITIVE_ZEROS, q4);
  EXPECT_EQ((std::vector<float>{v4[0], v4[32], v4[128], v4[192], v4[224]}),
            (std::vector<float>{0.25f, 7.5f, -2.25f, 80.75f, 164.25f}));
  std::vector<uint8_t> q6(210, 0);
  q6[0] = 0x5a;
  q6[32] = 0x7c;
  q6[128] = 0xe4;
  q6[192] = 2;
  q6[194] = 0xff;
  q6[196] = 3;
  q6[198] = 0x80;
  q6[209] = 0x38;
  const auto v6 = decode_k_quant(MARLIN_FORMAT_INT6, 0, q6);
  EXPECT_EQ((std::vector<float>{v6[0], v6[32], v6[64], v6[96]}), (std::vector<float>{-22, 2, 7.5f, -1472}));
  auto iq4 = block({0x00, 0x38, 0x09, 0x00, 0x21, 0, 0, 0, 0xf3}, 136);
  iq4[8 + 16] = 0xf3;
  const auto v_iq4 = decode_k_quant(MARLIN_FORMAT_IQ4, 0, iq4);
  EXPECT_EQ((std::vector<float>{v_iq4[0], v_iq4[16], v_iq4[32], v_iq4[48]}), (std::vector<float>{487.5f, -847.5f, -65, 113}));
}

TEST(CheckpointMlx, CodesOfThreeBits) {
  const Operand codes("values", MARLIN_U32, {1, 3}, std::vector<uint32_t>{0x88fac688, 0xc688fac6, 0xfac688fa});
  const Operand scales("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kOne});
  const Operand zeros("zeros", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kHalf});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT3, 1, 32, 32, codes);
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  o.scales = scales.view;
  o.zeros = zeros.view;
  const auto source = must(read_layout(layout_row(LayoutId::mlx), o, Depth::full));
  const auto values = must(decode_all(*source, 1));
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], static_cast<float>(i % 8) + 0.5f) << i;
}

}  // namespace
}  // namespace metal_marlin::testing
