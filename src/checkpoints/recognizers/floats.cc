// Matrices of floats, which are quantized when they are read.
#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {

std::optional<Finding> recognize_floats(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  if (!base || !is_float(tensor.dtype) || tensor.dims.size() < 2 || tensor.dims.size() > 3)
    return std::nullopt;
  // Three dimensions mean experts only if the name says so, because convolutions have three, too.
  const bool experts = tensor.name.find("expert") != std::string_view::npos ||
                       tensor.name.find("_exps") != std::string_view::npos ||
                       tensor.name.find("switch_mlp") != std::string_view::npos;
  if (tensor.dims.size() == 3 && !experts) return std::nullopt;
  Finding found;
  found.layer.name = finder.is_gguf ? tensor.name : *base;
  found.take_matrix(tensor);
  found.layer.layout = finder.is_gguf ? MARLIN_LAYOUT_GGUF : MARLIN_LAYOUT_ROWS;
  found.layer.dtype = tensor.dtype;
  found.layer.group_size = found.layer.k;
  found.operands.n = found.layer.n;
  found.operands.k = found.layer.k;
  const bool sane = found.layer.n >= 1 && found.layer.n <= INT32_MAX && found.layer.k >= 1 &&
                    found.layer.k <= INT32_MAX;
  if (!sane || found.layer.experts < 1) {
    found.layer.status =
        view_error(tensor, MARLIN_E_SHAPE, "n, k, experts: expected 1..2147483647 each");
  }
  if (finder.is_gguf && present(finder.find(*base, ".scale"))) {
    found.layer.status = view_error(tensor, MARLIN_E_UNSUPPORTED,
                                    "floats with a tensor of scale beside them are not read");
  }
  return found;
}

}  // namespace metal_marlin
