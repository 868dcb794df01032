// MLX: `weight`, `scales`, and `biases` in the affine mode. The config names the mode of all layers
// or of one.
#include <algorithm>
#include <string>

#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

/// "affine", "mxfp4", "nvfp4" or "mxfp8": from the config, else from the tensors.
std::string mode_of(const QuantConfig::Mlx& config, const TensorView& weight,
                    const TensorView& scales, bool has_biases) {
  if (!config.mode.empty()) return config.mode;
  if (has_biases || scales.dtype != MARLIN_U8) return "affine";
  if (cols_of(scales) * 8 == cols_of(weight)) return "mxfp8";
  return cols_of(scales) * 4 == cols_of(weight) ? "mxfp4" : "nvfp4";
}

/// Nothing if the library has no format for affine codes of this width.
std::optional<marlin_format> affine_format(int64_t bits) {
  return bits == 8 ? MARLIN_UINT8 : integer_format(bits);
}

void set_affine(const TensorView& biases, const QuantConfig::Mlx& mlx, marlin_format format,
                Finding& found) {
  LayoutOperands& o = found.operands;
  o.format = format;
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
  const int64_t words = std::min<int64_t>(found.layer.k, INT32_MAX);
  found.layer.k = o.k = words * 8;
  o.n = found.layer.n;
  if (!present(o.scales)) {
    found.set_missing(".scales");
    return found;
  }
  const TensorView biases = finder.find(*base, ".biases"),
                   largest = finder.find(*base, ".global_scale");
  const QuantConfig::Mlx mlx = finder.config.mlx_of(*base);
  const std::string mode = mode_of(mlx, tensor, o.scales, present(biases));
  const int64_t bits = mlx.bits.value_or(mode == "mxfp8" ? 8 : 4);
  const auto format = affine_format(bits);
  const bool own_bits = mode == "affine" || bits == (mode == "mxfp8" ? 8 : 4);
  if (!format || !own_bits) {
    found.layer.k = 0;
    found.layer.status = view_error(
        tensor, MARLIN_E_UNSUPPORTED,
        "expected affine codes of 2 to 6 or 8 bits, mxfp8 or codes of 4 bits, the config "
        "says %lld bits",
        static_cast<long long>(bits));
  } else if (present(largest) && mode != "nvfp4") {
    found.layer.k = words * 8;
    found.layer.status = view_error(largest, MARLIN_E_UNSUPPORTED,
                                    "expected codes in the mode nvfp4 beside it, found the mode "
                                    "'%.40s'",
                                    mode.c_str());
  } else if (words * 32 % bits != 0) {
    found.layer.k = 0;
    found.layer.status = view_error(tensor, MARLIN_E_SHAPE,
                                    "expected rows of whole codes of %lld bits, found %lld words",
                                    static_cast<long long>(bits), static_cast<long long>(words));
  } else if (mode == "affine") {
    found.layer.k = o.k = words * 32 / bits;
    set_affine(biases, mlx, *format, found);
  } else if (mode == "mxfp8") {
    found.layer.k = o.k = words * 4;
    o.format = MARLIN_FP8;
    o.group_size = 32;
    found.layer.status = expect_dtype(o.scales, {MARLIN_U8});
  } else if (mode == "mxfp4" || mode == "nvfp4") {
    o.format = mode == "mxfp4" ? MARLIN_MXFP4 : MARLIN_NVFP4;
    o.tensor_scale = largest;
  } else {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "the mode '%.40s' is not known", mode.c_str());
  }
  return found;
}

}  // namespace metal_marlin
