// E4M3 codes: one scale for the tensor, each row or a block of rows and columns (compressed-tensors
// "float-quantized", DeepSeek, FBGEMM, ModelOpt), or MXFP8.
#include <algorithm>

#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

constexpr int64_t kBlock = 128;  // if the config does not say more

bool is_byte_exponent(marlin_dtype dtype) { return dtype == MARLIN_U8 || dtype == MARLIN_E8M0; }

/// Sets the rows and columns that share a scale, which the shape of the scales tells, but for the
/// size of blocks.
void set_blocks(const QuantConfig& config, Finding& found) {
  LayoutOperands& o = found.operands;
  TensorView& scales = o.scales;
  const int64_t rows = rows_of(scales), cols = cols_of(scales);
  o.group_size = std::max<int64_t>(o.k, 1);
  if (rows == 1 && cols == 1) return share_among_rows(scales, o.n);
  if (scales.dims.size() == 1 && scales.dims[0] == o.n) {
    scales.dims = {o.n, 1};
    scales.row_stride = 1;
  }
  if (rows_of(scales) == o.n && cols_of(scales) == 1) return;
  if (rows == o.n && is_byte_exponent(scales.dtype)) {
    o.group_size = 32;
    return;
  }
  const bool named = config.block.size() == 2 && config.block[0] >= 1 && config.block[1] >= 1;
  o.scale_rows = named ? config.block[0] : kBlock;
  o.group_size = named ? config.block[1] : kBlock;
}

}  // namespace

std::optional<Finding> recognize_fp8(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  if (!base || tensor.dtype != MARLIN_E4M3 || tensor.dims.size() != 2) return std::nullopt;
  TensorView scales = finder.find(*base, ".weight_scale_inv");
  if (!present(scales)) scales = finder.find(*base, ".weight_scale");
  Finding found;
  found.layer.name = *base;
  found.layer.format = MARLIN_FP8;
  found.set_layout(LayoutId::rows);
  found.take_matrix(tensor);
  LayoutOperands& o = found.operands;
  o.format = MARLIN_FP8;
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.scales = scales;
  if (!present(scales)) {
    found.set_missing(".weight_scale");
    return found;
  }
  set_blocks(finder.config, found);
  return found;
}

}  // namespace metal_marlin
