// MLX: `weight`, `scales`, and `biases` in the affine mode. The config names the mode of all layers
// or of one, and the tensors decide where they can.
#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <string>

#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

/// "affine", "mxfp4", "nvfp4" or "mxfp8": from the tensors, where they tell it, else from the
/// config. Only affine codes have biases.
std::string mode_of(const QuantConfig::Mlx& config, const TensorView& weight,
                    const TensorView& scales, bool has_biases) {
  if (has_biases) return "affine";
  if (!config.mode.empty()) return config.mode;
  if (scales.dtype != MARLIN_U8) return "affine";
  if (cols_of(scales) * 8 == cols_of(weight)) return "mxfp8";
  return cols_of(scales) * 4 == cols_of(weight) ? "mxfp4" : "nvfp4";
}

/// The widths of affine codes, and the sizes of their groups.
constexpr int64_t kAffineWidths[] = {2, 3, 4, 5, 6, 8}, kAffineSizes[] = {32, 64, 128};

bool is_affine_width(int64_t bits) {
  return std::find(std::begin(kAffineWidths), std::end(kAffineWidths), bits) !=
         std::end(kAffineWidths);
}

struct Affine {
  int64_t bits = 0, group_size = 0;
};

/// A row of `words` words and its number of groups give the product of the bits of a code and the
/// size of a group. The config tells one of both, and where it contradicts the shapes, they count.
Result<Affine> affine_of(const TensorView& weight, const QuantConfig::Mlx& config, int64_t words,
                         int64_t groups) {
  const int64_t product = groups >= 1 && words * 32 % groups == 0 ? words * 32 / groups : 0;
  const int64_t bits = config.bits.value_or(0), size = config.group_size.value_or(0);
  if (product > 0 && size > 0 && product % size == 0 && is_affine_width(product / size))
    return Affine{product / size, size};
  if (product > 0 && is_affine_width(bits) && product % bits == 0)
    return Affine{bits, product / bits};
  if (product <= 0 || bits > 0 || size > 0) {
    return view_error(weight, MARLIN_E_SHAPE,
                      "expected rows of whole codes, found %" PRId64 " words and %" PRId64
                      " groups, and %" PRId64 " bits in groups of %" PRId64 " in the config",
                      words, groups, bits, size);
  }
  std::string fits;
  Affine last;
  int count = 0;
  for (const int64_t width : kAffineWidths) {
    for (const int64_t group : kAffineSizes) {
      if (width * group != product) continue;
      last = {width, group};
      fits += (count++ == 0 ? "" : " or ") + std::to_string(width) + " bits in groups of " +
              std::to_string(group);
    }
  }
  if (count == 1) return last;
  return view_error(weight, MARLIN_E_UNSUPPORTED,
                    "cannot tell the codes (%s): expected bits or group_size in config.json",
                    count == 0 ? "no width fits" : fits.c_str());
}

void set_affine(const TensorView& biases, const Affine& affine, int64_t words, Finding& found) {
  LayoutOperands& o = found.operands;
  found.layer.k = o.k = words * 32 / affine.bits;
  o.format = affine.bits == 8 ? MARLIN_FORMAT_UINT8
                              : integer_format(affine.bits).value_or(MARLIN_FORMAT_NONE);
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  o.zeros = biases;
  o.group_size = affine.group_size;
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
  const int64_t bits = mlx.bits.value_or(0), own = mode == "mxfp8" ? 8 : 4;
  if (present(largest) && mode != "nvfp4") {
    found.layer.status = view_error(largest, MARLIN_E_UNSUPPORTED,
                                    "expected codes in the mode nvfp4 beside it, found the mode "
                                    "'%.40s'",
                                    mode.c_str());
  } else if (mode == "affine") {
    const auto affine = affine_of(tensor, mlx, words, cols_of(o.scales));
    if (affine.ok()) {
      set_affine(biases, affine.value(), words, found);
    } else {
      found.layer.k = 0;
      found.layer.status = affine.status();
      o.zeros = biases;
    }
  } else if (bits != 0 && bits != own) {
    found.layer.k = 0;
    found.layer.status = view_error(tensor, MARLIN_E_UNSUPPORTED,
                                    "mode %.20s: expected codes of %" PRId64
                                    " bits, the config says %" PRId64 " bits",
                                    mode.c_str(), own, bits);
  } else if (mode == "mxfp8") {
    found.layer.k = o.k = words * 4;
    o.format = MARLIN_FORMAT_FP8;
    o.group_size = 32;
    found.layer.status = expect_dtype(o.scales, {MARLIN_U8});
  } else if (mode == "mxfp4" || mode == "nvfp4") {
    o.format = mode == "mxfp4" ? MARLIN_FORMAT_MXFP4 : MARLIN_FORMAT_NVFP4;
    o.tensor_scale = largest;
  } else {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "the mode '%.40s' is not known", mode.c_str());
  }
  return found;
}

}  // namespace metal_marlin
