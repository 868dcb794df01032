// GGUF: the type of each tensor says what it holds.
#include "checkpoints/recognizers/recognizers.h"
#include "layouts/gguf_types.h"

namespace metal_marlin {

std::optional<Finding> recognize_gguf(const Finder& finder, const TensorView& tensor) {
  if (!finder.is_gguf || tensor.dims.size() < 2 || tensor.dims.size() > 3 || tensor.dtype != 0)
    return std::nullopt;
  Finding found;
  found.layer.name = tensor.name;
  found.set_layout(LayoutId::gguf);
  found.take_matrix(tensor);
  const GgufType* type = gguf_type(tensor.type_name);
  if (is_unknown_type(tensor.type_name)) {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "%.*s is not known to this version",
                   static_cast<int>(tensor.type_name.size()), tensor.type_name.data());
    return found;
  }
  if (type == nullptr || type->block == nullptr) {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "type %.*s is not read by this version",
                   static_cast<int>(tensor.type_name.size()), tensor.type_name.data());
    return found;
  }
  LayoutOperands& o = found.operands;
  o.format = type->block->format;
  o.flags = (type->block->zeros.has_value() ? MARLIN_PACK_ADDITIVE_ZEROS : 0) |
            (type->block->two_level() ? MARLIN_PACK_TWO_LEVEL_SCALES : 0);
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.values.dtype = MARLIN_U8;
  o.values.dims.back() = o.k / type->element.block * type->element.bytes;
  o.values.row_stride = o.values.dims.back();
  const std::string_view suffix = ".weight";
  if (tensor.name.ends_with(suffix)) {
    o.tensor_scale =
        finder.find(tensor.name.substr(0, tensor.name.size() - suffix.size()), ".scale");
  }
  return found;
}

}  // namespace metal_marlin
