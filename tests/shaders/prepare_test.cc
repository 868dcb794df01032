// The kernel that quantizes activations, alone: where float32 subnormals are kept, the codes of a block stay in their range.
#include <algorithm>
#include <array>
#include <cmath>

#include "problem.h"

namespace shaders {
namespace {

using Codes = std::array<int8_t, kActivationBlock>;

/// A block whose largest element is 180 of the smallest float. Its scale, 180 / 127 of that float, is rounded to one of it, so
/// that the quotient is 180. Conversion to char alone would make -128 of -180.
Codes quantized(const Setting& setting) {
  std::array<float, kActivationBlock> a{};
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<float>(static_cast<int>(i % 2 == 0 ? 11 * i : 200) - 180) * 0x1p-149f;
  auto kernel = library("metal/prepare.metal", {}, setting).kernel("quantize_f32");
  for (const uint32_t index : {MARLIN_CONSTANT_SLOT_TO_K, MARLIN_CONSTANT_ALIGNED}) kernel.constant(index, false);
  kernel.constant(MARLIN_CONSTANT_ROUTING, uint64_t{kRoutingNone});
  PrepareArgs args{};
  args.m = 1, args.k = args.slots = kActivationBlock, args.lda = args.group = kActivationBlock;
  Codes codes{};
  float scale = 0;
  auto dispatch = kernel.dispatch();
  dispatch.buffer(MARLIN_BUFFER_SOURCE, std::as_const(a)).output(MARLIN_BUFFER_QUANTIZED, codes);
  dispatch.output(MARLIN_BUFFER_QUANT_SCALES, &scale, sizeof scale).value(MARLIN_BUFFER_PREPARE_ARGS, args);
  const auto report = dispatch.groups(1).threads(32).check().run();
  EXPECT_TRUE(report.ok()) << report.message();
  EXPECT_EQ(report.value().text(), "");
  EXPECT_EQ(scale, 0x1p-149f);
  return codes;
}

TEST(Quantize, StaysInItsRangeWhereTheScaleIsSubnormal) {
  Codes expected{};
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = static_cast<int8_t>(std::clamp(i % 2 == 0 ? static_cast<int>(11 * i) - 180 : 20, -127, 127));
  EXPECT_EQ(quantized({}), expected);
  const Setting mistake{.changes = {{"metal/prepare.metal", "clamp(x[i + e] / d, -127.0f, 127.0f)", "x[i + e] / d"}}};
  EXPECT_NE(quantized(mistake), expected);
}

}  // namespace
}  // namespace shaders
