// NVFP4 in safetensors: ModelOpt (its tensor scale multiplies), compressed-tensors (its tensor
// scale divides) and ComfyUI (ModelOpt's names, but other orders of codes and scales). Scales of
// activations (input_scale, input_global_scale) are not part of the weights.
#include <algorithm>

#include "base/bits.h"
#include "checkpoints/recognizers/comfy.h"
#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/recognizers/scales.h"

namespace metal_marlin {
namespace {

/// Bytes of two codes, or the same under the type F4 of safetensors, whose shape counts codes.
std::optional<TensorView> bytes_of_codes(const TensorView& tensor) {
  if (tensor.dims.size() < 2 || tensor.dims.size() > 3) return std::nullopt;
  if (tensor.dtype == MARLIN_U8) return tensor;
  if (tensor.type_name != "F4" || tensor.dims.back() % 2 != 0) return std::nullopt;
  TensorView bytes = tensor;
  bytes.dtype = MARLIN_U8;
  bytes.dims.back() /= 2;
  bytes.row_stride = bytes.dims.back();
  return bytes;
}

/// ComfyUI puts even elements into high halves, and scales into the tiles of cuBLAS.
void take_comfy_order(Finding& found) {
  LayoutOperands& o = found.operands;
  found.rearrange(&LayoutOperands::values, Rearrangement::swap_nibbles);
  const int64_t columns = ceil_div(o.k, 16);
  Status status = expect_dtype(o.scales, {MARLIN_E4M3, MARLIN_U8});
  if (status.ok() && (o.n > INT32_MAX || o.scales.dims.size() != 2))
    status = view_error(o.scales, MARLIN_E_SHAPE, "expected tiles of one matrix");
  if (status.ok()) status = expect_shape(o.scales, tiled_rows(o.n), tiled_columns(columns));
  if (!status.ok()) {
    found.layer.status = status;
    return;
  }
  o.scales.dims = {o.n, columns};
  o.scales.row_stride = columns;
  found.rearrange(&LayoutOperands::scales, Rearrangement::scale_tiles);
}

}  // namespace

std::optional<Finding> recognize_nvfp4(const Finder& finder, const TensorView& tensor) {
  const auto values = bytes_of_codes(tensor);
  if (!values) return std::nullopt;
  std::optional<std::string_view> base;
  for (const char* suffix : {".weight_packed", ".packed", ".weight"})
    if (!base) base = finder.base_of(tensor.name, suffix);
  if (!base) return std::nullopt;
  const TensorView scales = finder.find_any(*base, kScaleNames),
                   factor = finder.find_any(*base, kTensorScaleNames),
                   divisor = finder.find_any(*base, kTensorDivisorNames);
  if (!present(factor) && !present(divisor) && scales.dtype != MARLIN_E4M3) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.layer.format = MARLIN_FORMAT_NVFP4;
  found.set_layout(LayoutId::rows);
  found.take_matrix(*values);
  found.layer.k = std::min<int64_t>(found.layer.k, INT32_MAX) * 2;
  LayoutOperands& o = found.operands;
  o.format = MARLIN_FORMAT_NVFP4;
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.scales = scales;
  const bool divides = !present(factor) && (present(divisor) || tensor.name.ends_with("packed"));
  o.tensor_scale = present(factor) ? factor : divisor;
  if (divides) o.flags = MARLIN_PACK_DIVIDE_SCALE;
  if (!present(scales)) found.set_missing(".weight_scale");
  if (!present(o.tensor_scale))
    found.set_missing(divides ? ".weight_global_scale" : ".weight_scale_2");
  if (take_comfy(finder, "nvfp4", found) && found.layer.status.ok()) take_comfy_order(found);
  return found;
}

}  // namespace metal_marlin
