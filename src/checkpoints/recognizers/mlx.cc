// MLX: `weight`, `scales`, and `biases` in the affine mode. The config names the mode of all layers
// or of one.
#include <algorithm>
#include <string>

#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

/// "affine", "mxfp4" or "nvfp4": from the config, else from the tensors.
std::string mode_of(const QuantConfig::Mlx& config, const TensorView& weight,
                    const TensorView& scales, bool has_biases) {
  if (!config.mode.empty()) return config.mode;
  if (has_biases || scales.dtype != MARLIN_U8) return "affine";
  return cols_of(scales) * 4 == cols_of(weight) ? "mxfp4" : "nvfp4";
}

void set_affine(const TensorView& biases, const QuantConfig::Mlx& mlx, Finding& found) {
  LayoutOperands& o = found.operands;
  o.format = MARLIN_INT4;
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  o.zeros = biases;
  const int64_t groups = std::max<int64_t>(cols_of(o.scales), 1);
  o.group_size = mlx.group_size.value_or(o.k % groups == 0 ? o.k / groups : 0);
  if (!present(biases)) found.set_missing(".biases");
}

}  // namespace

std::optional<Finding> recognize_mlx(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  if (!base || tensor.dtype != MARLIN_U32 || tensor.dims.size() < 2 || tensor.dims.size() > 3)
    return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.set_layout(LayoutId::mlx);
  found.take_matrix(tensor);
  LayoutOperands& o = found.operands;
  o.scales = finder.find(*base, ".scales");
  found.layer.k = o.k = std::min<int64_t>(found.layer.k, INT32_MAX) * 8;
  o.n = found.layer.n;
  if (!present(o.scales)) {
    found.set_missing(".scales");
    return found;
  }
  const TensorView biases = finder.find(*base, ".biases");
  const QuantConfig::Mlx mlx = finder.config.mlx_of(*base);
  const std::string mode = mode_of(mlx, tensor, o.scales, present(biases));
  const int64_t bits = mlx.bits.value_or(4);
  if (bits != 4) {
    found.layer.k = 0;
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "expected 4-bit codes, the config says %lld bits",
                   static_cast<long long>(bits));
  } else if (mode == "affine") {
    set_affine(biases, mlx, found);
  } else if (mode == "mxfp4" || mode == "nvfp4") {
    o.format = mode == "mxfp4" ? MARLIN_MXFP4 : MARLIN_NVFP4;
  } else {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "the mode '%.40s' is not known", mode.c_str());
  }
  return found;
}

}  // namespace metal_marlin
