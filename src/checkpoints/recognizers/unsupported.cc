// Codes that are known but not read. They are listed with the reason.
#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {

std::optional<Finding> recognize_unsupported(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  const bool eight_bits = tensor.dtype == MARLIN_E4M3 || tensor.dtype == MARLIN_I8;
  const bool scaled_bytes =
      tensor.dtype == MARLIN_U8 && base && present(finder.find(*base, ".weight_scale"));
  if (!base || !(eight_bits || scaled_bytes) || tensor.dims.size() != 2) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.take_matrix(tensor);
  found.layer.dtype = tensor.dtype;
  if (present(finder.find(*base, ".SCB"))) {
    found.layer.status = view_error(tensor, MARLIN_E_UNSUPPORTED,
                                    "LLM.int8 of bitsandbytes (I8 beside SCB) is not read");
  } else if (eight_bits) {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "weights of 8 bits (%.*s) are not read",
                   static_cast<int>(tensor.type_name.size()), tensor.type_name.data());
  } else {  // ModelOpt's INT4 packs along N
    const TensorView scales = finder.find(*base, ".weight_scale");
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "codes in U8 with %.*s scales are not read",
                   static_cast<int>(scales.type_name.size()), scales.type_name.data());
  }
  return found;
}

}  // namespace metal_marlin
