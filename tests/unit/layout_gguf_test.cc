// Every type of GGUF blocks is written as it is read: random blocks come back, bit for bit.
#include <gtest/gtest.h>

#include <random>

#include "checkpoint_operands.h"
#include "formats/format_table.h"
#include "layouts/gguf_types.h"
#include "layouts/layout_table.h"

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
    auto source = read_layout(layout_row(LayoutId::gguf), operands_of(values), Depth::full);
    EXPECT_TRUE(source.ok()) << source.status().message();
    return source.ok() ? source.take() : nullptr;
  }

  /// The blocks of a source, written in two stripes.
  std::vector<uint8_t> write(const WeightSource& source) const {
    const LayoutEncoder encoder = layout_row(LayoutId::gguf).encoder();
    EXPECT_TRUE(encoder.check(source.meta()).ok()) << encoder.check(source.meta()).message();
    const auto tensors = encoder.tensors(source.meta(), 1);
    EXPECT_TRUE(tensors.ok()) << tensors.status().message();
    EXPECT_EQ(tensors.value()[0].type, type().element.name);
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

TEST_P(Blocks, ComeBackBitForBit) {
  std::mt19937 random(3);
  std::vector<uint8_t> bytes(kRows * row_bytes());
  const bool fp4 = format_row(type().block->format)->codebook == kE2m1;
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % (fp4 ? 0x78 : 0x100));  // FP4: no scale that is none
  const Operand values("values", MARLIN_U8, {kRows, static_cast<int64_t>(row_bytes())}, bytes);
  auto source = read(values);
  ASSERT_NE(source, nullptr);
  std::vector<uint8_t> written;
  if (type().block->format == MARLIN_NVFP4) {  // the encoder wants the tensor scale that files have
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

std::vector<const GgufType*> all_blocks() {
  std::vector<const GgufType*> all;
  for (const GgufType& type : gguf_types()) {
    if (type.block != nullptr) all.push_back(&type);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Blocks, ::testing::ValuesIn(all_blocks()),
                         [](const auto& info) { return std::string(info.param->element.name); });

TEST(GgufTypes, EachKindOfWeightsHasOneType) {
  EXPECT_GE(all_blocks().size(), 14u);
  for (const GgufType* type : all_blocks()) {
    const WeightMeta meta = gguf_meta(*type, 2, 512);
    EXPECT_TRUE(check_meta(meta).ok()) << check_meta(meta).message();
    for (const GgufType* other : all_blocks()) EXPECT_EQ(other->block->holds(meta), other == type) << other->element.name;
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
