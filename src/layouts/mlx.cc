// MLX: `weight` words of codes along K, a stream of 2 to 8 bits a code (4 bits, as bytes: low
// nibble = even k), `scales`, and `biases` in the affine mode.
#include <algorithm>

#include "layouts/layout_table.h"
#include "layouts/nonstandard_scales.h"
#include "layouts/rows.h"

namespace metal_marlin {
namespace {

/// The largest magnitude that codes and scales of NVFP4 express without a tensor scale: 6 * 448.
/// `global_scale` is the largest weight, which this one stands for.
constexpr float kLargest = 2688;

bool any_byte(const RowsOperands& parts, uint8_t a, uint8_t b) {
  for (int64_t n = 0; n < parts.meta.n; ++n) {
    const std::byte* row = parts.scales + n * parts.scale_stride;
    const bool found = std::any_of(row, row + parts.meta.groups, [&](std::byte s) {
      return std::to_integer<uint8_t>(s) == a || std::to_integer<uint8_t>(s) == b;
    });
    if (found) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_mlx(const LayoutOperands& operands, Depth depth) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(operands.values, {MARLIN_U32}));
  LayoutOperands rows = operands;
  rows.values.dtype = MARLIN_U8;
  rows.values.dims.back() *= 4;
  rows.values.row_stride *= 4;
  MARLIN_ASSIGN(RowsOperands parts, check_rows(rows, depth, CodeForm::stream));
  for (TensorScale& scale : parts.meta.tensor_scales) scale.divisor = kLargest;
  if (depth == Depth::full && parts.meta.scale_type == ScaleType::e8m0 &&
      any_byte(parts, 0xff, 0xff)) {
    parts.meta.scale_type = ScaleType::bf16;
    parts.scale_meaning = &kMlxE8m0;
  } else if (depth == Depth::full && parts.meta.scale_type == ScaleType::e4m3 &&
             any_byte(parts, 0x7f, 0xff)) {
    parts.meta.scale_type = ScaleType::f16;
    parts.scale_meaning = &kMlxE4m3;
  }
  return make_rows_source(std::move(parts));
}

}  // namespace metal_marlin
