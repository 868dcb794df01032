// Every type of GGUF blocks is written as it is read: random blocks come back, bit for bit.
#include "checkpoint_operands.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "layouts/gguf_types.h"
#include "layouts/layout_table.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

class Blocks : public ::testing::TestWithParam<const GgufType*> {
 protected:
  const GgufType& type() const { return *GetParam(); }
  static constexpr int64_t kRows = 5;
  int64_t k() const { return 3 * type().element.block; }
  size_t row_bytes() const { return 3 * type().element.bytes; }

  LayoutOperands operands_of(const Operand& values) const {
    LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, type().block->format, kRows, k(), 0, values);
    o.values.type_name = type().element.name;
    return o;
  }

  std::unique_ptr<WeightSource> read(const Operand& values) const {
    return must(read_layout(layout_row(LayoutId::gguf), operands_of(values), Depth::full));
  }

  /// The blocks of a source, written in two stripes.
  std::vector<uint8_t> write(const WeightSource& source) const {
    const LayoutEncoder encoder = layout_row(LayoutId::gguf).encoder();
    EXPECT_TRUE(encoder.check(source.meta()).ok()) << encoder.check(source.meta()).message();
    EXPECT_EQ(must(encoder.tensors(source.meta(), 1))[0].type, type().element.name);
    std::vector<uint8_t> written(kRows * row_bytes());
    const TensorWriter out = [&](size_t tensor, uint64_t offset, std::span<const std::byte> bytes) {
      if (tensor == 0) std::memcpy(written.data() + offset, bytes.data(), bytes.size());
      return Status();
    };
    const auto made = encoder.make(source.meta());
    for (const auto& [first, count] : {std::pair{0, 2}, std::pair{2, 3}}) {
      Stripe stripe;
      EXPECT_TRUE(source.read(first, count, stripe).ok());
      EXPECT_TRUE(made->encode(stripe, first, count, out).ok());
    }
    return written;
  }
};

/// What holds() says is true of every code, not only of those that the type's own blocks have.
TEST_P(Blocks, HoldEveryCodeOfTheFormat) {
  const FormatRow& row = *format_row(type().block->format);
  const uint32_t codes = 1u << row.code_bits;
  const int64_t elements = type().element.block;
  const WeightMeta meta = gguf_meta(type(), 1, elements);
  const auto scales = static_cast<size_t>(meta.groups);
  for (uint32_t first = 0; first < codes; first += 16) {
    Stripe stripe;
    for (int64_t i = 0; i < elements; ++i)
      stripe.codes.push_back(static_cast<uint8_t>((first + static_cast<uint32_t>(i) * 7) % codes));
    stripe.scales.assign(scales * scale_bytes(meta.scale_type), 8);
    if (meta.zero_kind == ZeroKind::additive) stripe.zeros.assign(scales * scale_bytes(meta.zero_type), 8);
    if (meta.has_two_level_scales()) stripe.scale_factors.assign(kFactorBytes, 0x11);
    if (meta.has_two_level_zeros()) stripe.zero_factors.assign(kFactorBytes, 0x11);
    std::vector<std::byte> block(type().element.bytes);
    type().block->write(meta, stripe, 1, block.data());
    std::vector<uint8_t> bytes(block.size());
    std::memcpy(bytes.data(), block.data(), block.size());
    const Operand values("values", MARLIN_U8, {1, static_cast<int64_t>(bytes.size())}, bytes);
    LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, type().block->format, 1, elements, 0, values);
    o.values.type_name = type().element.name;
    const auto source = must(read_layout(layout_row(LayoutId::gguf), o, Depth::full));
    Stripe again;
    ASSERT_TRUE(source->read(0, 1, again).ok());
    if (row.codebook == kE2m1)
      for (uint8_t& code : stripe.codes) code = code == 8 ? 0 : code;  // ggml has no -0
    EXPECT_EQ(again.codes, stripe.codes);
    EXPECT_EQ(again.scales, stripe.scales);
    EXPECT_EQ(again.zeros, stripe.zeros);
  }
}

TEST_P(Blocks, ComeBackBitForBit) {
  std::mt19937 random(3);
  std::vector<uint8_t> bytes(kRows * row_bytes());
  const bool fp4 = format_row(type().block->format)->codebook == kE2m1;
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % (fp4 ? 0x78 : 0x100));  // FP4: no scale that is none
  const Operand values("values", MARLIN_U8, {kRows, static_cast<int64_t>(row_bytes())}, bytes);
  auto source = read(values);
  ASSERT_NE(source, nullptr);
  std::vector<uint8_t> written;
  if (type().block->format == MARLIN_FORMAT_NVFP4) {  // the encoder wants the tensor scale that files have
    LayoutOperands o = operands_of(values);
    const Operand one("scale", MARLIN_F32, {1, 1}, std::vector<float>{1});
    o.tensor_scale = one.view;
    source = read_layout(layout_row(LayoutId::gguf), o, Depth::full).take();
  }
  written = write(*source);
  if (!fp4) {
    EXPECT_EQ(written, bytes);
    return;
  }
  const Operand again("values", MARLIN_U8, {kRows, static_cast<int64_t>(row_bytes())}, written);
  EXPECT_EQ(decode(operands_of(again)), decode(operands_of(values)));  // the code of -0 becomes that of 0
}

/// The types that are read, or those that are also written.
std::vector<const GgufType*> all_blocks(bool written = true) {
  std::vector<const GgufType*> all;
  for (const GgufType& type : gguf_types()) {
    if (type.block != nullptr && (!written || type.block->is_written())) all.push_back(&type);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Blocks, ::testing::ValuesIn(all_blocks()),
                         [](const auto& info) { return std::string(info.param->element.name); });

TEST(GgufTypes, EachKindOfWeightsHasOneType) {
  EXPECT_GE(all_blocks().size(), 14u);
  for (const GgufType* type : all_blocks(false)) {
    const WeightMeta meta = gguf_meta(*type, 2, 512);
    EXPECT_TRUE(check_meta(meta).ok()) << check_meta(meta).message();
    for (const GgufType* other : all_blocks(false))
      EXPECT_EQ(other->block->holds(meta), other == type && type->block->is_written()) << other->element.name;
  }
}

TEST(GgufTypes, TypesThatAreOnlyReadAreOfferedNowhere) {
  const LayoutEncoder encoder = layout_row(LayoutId::gguf).encoder();
  for (const char* name : {"Q1_0", "Q2_0", "TQ1_0", "TQ2_0"}) {
    const GgufType& type = *gguf_type(name);
    ASSERT_NE(type.block, nullptr) << name;
    EXPECT_FALSE(type.block->is_written());
    EXPECT_FALSE(encoder.check(gguf_meta(type, 2, 512)).ok()) << name;
    for (const WeightMeta& kind : encoder.kinds(2, 512))
      EXPECT_TRUE(kind.format != MARLIN_FORMAT_INT2 || kind.has_two_level_scales());
    EXPECT_EQ(gguf_block_names().find(name), std::string::npos);
  }
}

/// Each value of random blocks, computed from the definition in docs/formats.md element by element.
TEST(GgufTypes, OneOrTwoBitsAnElement) {
  std::mt19937 random(41);
  for (const char* name : {"Q1_0", "Q2_0", "TQ1_0", "TQ2_0"}) {
    const GgufType& type = *gguf_type(name);
    const size_t d_at = name[0] == 'T' ? type.element.bytes - 2u : 0;
    for (int round = 0; round < 50; ++round) {
      std::vector<uint8_t> b(type.element.bytes);
      for (uint8_t& byte : b) byte = static_cast<uint8_t>(random());
      b[d_at + 1] = static_cast<uint8_t>((b[d_at + 1] & 0x83) | 0x38);  // d is finite, of either sign
      const float d = f16_to_f32(static_cast<uint16_t>(b[d_at] | b[d_at + 1] << 8));
      const Operand values("values", MARLIN_U8, {1, static_cast<int64_t>(b.size())}, b);
      LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_INT2, 1, type.element.block, 0, values);
      o.values.type_name = name;
      const std::vector<float> found = decode(o);
      ASSERT_EQ(found.size(), type.element.block);
      for (size_t i = 0; i < found.size(); ++i) {
        int steps = 0;
        if (name == std::string("Q1_0")) {
          steps = (b[2 + i / 8] >> (i % 8) & 1) != 0 ? 1 : -1;
        } else if (name == std::string("Q2_0")) {
          steps = (b[2 + i / 4] >> (2 * (i % 4)) & 3) - 1;
        } else if (name == std::string("TQ2_0")) {
          steps = (b[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3) - 1;
        } else {
          const size_t run = i < 160 ? i % 32 : i < 240 ? 32 + (i - 160) % 16 : 48 + (i - 240) % 4;
          const size_t digit = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
          uint8_t byte = b[run];
          for (size_t times = 0; times < digit; ++times) byte = static_cast<uint8_t>(byte * 3);
          steps = (byte * 3 >> 8) - 1;
        }
        ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(static_cast<float>(steps) * d)) << name << i;
      }
    }
  }
}

TEST(GgufTypes, WeightsWithoutATypeAreAnError) {
  WeightMeta meta = gguf_meta(*gguf_type("Q8_0"), 2, 64);
  meta.zero_kind = ZeroKind::additive;
  const Status status = layout_row(LayoutId::gguf).encoder().check(meta);
  EXPECT_EQ(status.code(), MARLIN_E_UNSUPPORTED);
  EXPECT_STREQ(status.message(), "GGUF: no block type for these scales of INT8; it has Q8_0");
}

}  // namespace
}  // namespace metal_marlin::testing
