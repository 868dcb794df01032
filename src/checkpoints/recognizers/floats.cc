// Matrices of floats, which are quantized when they are read.
#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/recognizers/stacks.h"

namespace metal_marlin {

Finding take_floats(const Finder& finder, std::string_view base, const TensorView& tensor) {
  Finding found;
  found.layer.name = finder.is_gguf ? tensor.name : base;
  found.take_matrix(tensor);
  found.layer.layout = finder.is_gguf ? MARLIN_LAYOUT_GGUF : MARLIN_LAYOUT_ROWS;
  found.layer.dtype = tensor.dtype;
  found.operands.n = found.layer.n;
  found.operands.k = found.layer.k;
  if (!finder.is_gguf) settle_order(finder, {}, found);
  found.layer.group_size = found.layer.k;
  const bool sane = found.layer.n >= 1 && found.layer.n <= INT32_MAX && found.layer.k >= 1 &&
                    found.layer.k <= INT32_MAX;
  if (!sane || found.layer.experts < 1) {
    found.layer.status =
        view_error(tensor, MARLIN_E_SHAPE, "n, k, experts: expected 1..2147483647 each");
  }
  // gpt-oss alternates the columns of gate and up.
  if (found.stacked && finder.config.sizes.model_type == "gpt_oss" &&
      base.ends_with("gate_up_proj"))
    found.layer.flags |= found.operands.flags |= MARLIN_PACK_GATE_UP_INTERLEAVED;
  return found;
}

std::optional<Finding> recognize_floats(const Finder& finder, const TensorView& tensor) {
  auto base = finder.base_of(tensor.name, ".weight");
  if (finder.is_gguf && !base) base = tensor.name;
  if (!base || !is_float(tensor.dtype)) return std::nullopt;
  if (tensor.dims.size() != 2 && !is_stack(finder, tensor)) return std::nullopt;
  const std::string_view suffix = ".weight";
  const bool is_weight = tensor.name.ends_with(suffix);
  // A vector is a matrix only if it is called a weight.
  if (!is_weight && (tensor.dims.back() <= 1 || tensor.dims[tensor.dims.size() - 2] <= 1))
    return std::nullopt;
  Finding found = take_floats(finder, *base, tensor);
  if (finder.is_gguf && is_weight && present(finder.find(*base, ".scale"))) {
    found.layer.status = view_error(tensor, MARLIN_E_UNSUPPORTED,
                                    "floats with a tensor of scale beside them are not read");
  }
  return found;
}

}  // namespace metal_marlin
