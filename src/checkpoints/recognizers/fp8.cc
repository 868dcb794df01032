// E4M3 codes: one scale for the tensor, each row, some columns of a row or a block of rows and
// columns (compressed-tensors "float-quantized", DeepSeek, FBGEMM, ModelOpt, ComfyUI), MXFP8, or no
// scale at all. E5M2 without scales is float16 with fewer bits.
#include <algorithm>

#include "checkpoints/recognizers/comfy.h"
#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/recognizers/scales.h"
#include "checkpoints/recognizers/stacks.h"

namespace metal_marlin {
namespace {

bool is_matrix(const TensorView& tensor) {
  return tensor.dims.size() == 2 || tensor.dims.size() == 3;
}

/// Whether nothing says that the codes have scales: they are nothing but a cast.
bool is_cast(const Finder& finder, std::string_view base) {
  if (!finder.config.method.empty() || present(finder.tensors.view("scaled_fp8"))) return false;
  bool has_scale = false;
  finder.tensors.for_each_with_prefix(base, [&](size_t index) {
    const std::string_view rest = finder.tensors.name(index).substr(base.size());
    has_scale |= rest.find("scale") != std::string_view::npos &&
                 rest.find('.', 1) == std::string_view::npos &&
                 rest.find("input") == std::string_view::npos;
  });
  return !has_scale;
}

/// A scale of 1.
void take_one(Finding& found) {
  static constexpr float kOne = 1;
  TensorView& scale = found.operands.scales;
  scale.name = "scale";
  scale.dtype = MARLIN_F32;
  scale.dims = {found.operands.n, 1};
  scale.data = reinterpret_cast<const std::byte*>(&kOne);
  scale.bytes = sizeof kOne;
}

}  // namespace

std::optional<Finding> recognize_fp8(const Finder& finder, const TensorView& tensor) {
  const auto base = finder.base_of(tensor.name, ".weight");
  if (!base || tensor.dtype != MARLIN_E4M3 || !is_matrix(tensor)) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.layer.format = MARLIN_FORMAT_FP8;
  found.set_layout(LayoutId::rows);
  found.take_matrix(tensor);
  LayoutOperands& o = found.operands;
  o.format = MARLIN_FORMAT_FP8;
  o.n = found.layer.n;
  o.k = found.layer.k;
  const TensorView scales = finder.find_any(*base, kScaleNames);
  settle_order(finder, scales, found);
  if (!found.layer.status.ok()) {
    o.scales = scales;
    return found;
  }
  take_comfy(finder, "float8_e4m3fn", found);
  if (present(scales)) {
    take_scales(finder, scales, found);
  } else if (is_cast(finder, *base)) {
    take_one(found);
    o.group_size = std::max<int64_t>(o.k, 1);
  } else {
    found.set_missing(".weight_scale");
  }
  return found;
}

std::optional<Finding> recognize_e5m2(const Finder& finder, const TensorView& tensor) {
  const auto base = finder.base_of(tensor.name, ".weight");
  if (!base || tensor.type_name != "F8_E5M2" || !is_matrix(tensor)) return std::nullopt;
  if (!is_cast(finder, *base) || (tensor.dims.size() == 3 && !is_stack(finder, tensor)))
    return std::nullopt;
  TensorView halves = tensor;
  halves.dtype = MARLIN_F16;
  Finding found = take_floats(finder, *base, halves);
  found.rearrange(&LayoutOperands::values, Rearrangement::widen_e5m2);
  return found;
}

}  // namespace metal_marlin
