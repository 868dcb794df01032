// NVFP4 in safetensors: ModelOpt (its tensor scale multiplies) and compressed-tensors (its tensor
// scale divides). Scales of activations (input_scale, input_global_scale) are not part of the
// weights.
#include <algorithm>

#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

struct Nvfp4Names {
  const char *codes, *tensor_scale;
  uint32_t flags;
};
constexpr Nvfp4Names kNvfp4Names[] = {
    {".weight", ".weight_scale_2", 0},
    {".weight_packed", ".weight_global_scale", MARLIN_PACK_DIVIDE_SCALE}};

}  // namespace

std::optional<Finding> recognize_nvfp4(const Finder& finder, const TensorView& tensor) {
  for (const Nvfp4Names& names : kNvfp4Names) {
    const auto base = without_suffix(tensor.name, names.codes);
    if (!base || tensor.dtype != MARLIN_U8 || tensor.dims.size() < 2) continue;
    const TensorView scales = finder.find(*base, ".weight_scale"),
                     global = finder.find(*base, names.tensor_scale);
    if (!present(global) && scales.dtype != MARLIN_E4M3) continue;
    Finding found;
    found.layer.name = *base;
    found.layer.format = MARLIN_NVFP4;
    found.set_layout(LayoutId::rows);
    found.take_matrix(tensor);
    found.layer.k = std::min<int64_t>(found.layer.k, INT32_MAX) * 2;
    LayoutOperands& o = found.operands;
    o.format = MARLIN_NVFP4;
    o.n = found.layer.n;
    o.k = found.layer.k;
    o.flags = names.flags;
    o.scales = scales;
    o.tensor_scale = global;
    if (!present(scales)) found.set_missing(".weight_scale");
    if (!present(global)) found.set_missing(names.tensor_scale);
    return found;
  }
  return std::nullopt;
}

}  // namespace metal_marlin
