// HQQ: the state of a layer, with its shape and settings as small tensors.
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

/// A setting, which is data of the file, but as small as a header. Nothing unless it is an integer.
std::optional<int64_t> setting(const Finder& finder, std::string_view base, const char* name) {
  const TensorView view = finder.find(base, name);
  if (!present(view)) return std::nullopt;
  if (view.dtype == MARLIN_I32 && view.bytes == 4) return load<int32_t>(view.data);
  if (view.dtype == MARLIN_I64 && view.bytes == 8) return load<int64_t>(view.data);
  if (view.dtype == MARLIN_U8 && view.bytes == 1) return load<uint8_t>(view.data);
  return std::nullopt;
}

/// Checks the settings that change the meaning of the tensors. If a setting is absent, the shapes
/// tell.
Status check_settings(const Finder& finder, std::string_view base, const LayoutOperands& o) {
  if (is_float(o.values.dtype)) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "codes under the type %.*s (view_as_float) are not read",
                      static_cast<int>(o.values.type_name.size()), o.values.type_name.data());
  }
  const int64_t bits = setting(finder, base, ".nbits").value_or(4);
  if (bits != 4) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "expected codes of 4 bits, found %" PRId64 " bits", bits);
  }
  for (const char* name : {".quant_scale", ".quant_zero"}) {
    if (setting(finder, base, name).value_or(0) != 0) {
      return view_error(o.values, MARLIN_E_UNSUPPORTED,
                        "scales and zeros that are quantized (%s) are not read", name + 1);
    }
  }
  const bool along_columns = rows_of(o.scales) == 1 && cols_of(o.scales) > 1;
  if (const int64_t axis = setting(finder, base, ".axis").value_or(along_columns ? 0 : 1);
      axis != 1) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "expected groups along axis 1, found axis %" PRId64, axis);
  }
  return {};
}

Status take_shape(const Finder& finder, std::string_view base, Finding& found) {
  const TensorView shape = finder.find(base, ".shape");
  MARLIN_RETURN_IF_ERROR(expect_dtype(shape, {MARLIN_I64}));
  if (shape.bytes != 16) MARLIN_RETURN_IF_ERROR(expect_shape(shape, 1, 2));
  const auto n = load<int64_t>(shape.data), k = load<int64_t>(shape.data + 8);
  if (n < 1 || n > INT32_MAX || k < 1 || k > INT32_MAX) {
    return view_error(shape, MARLIN_E_FORMAT,
                      "expected 1..2147483647 each, found [%" PRId64 ", %" PRId64 "]", n, k);
  }
  found.layer.n = found.operands.n = n;
  found.layer.k = found.operands.k = k;
  const int64_t size = cols_of(found.operands.values);
  found.operands.group_size = size;
  const int64_t said = setting(finder, base, ".group_size").value_or(size);
  if (said == size && size >= 1) return {};
  return view_error(found.operands.values, MARLIN_E_FORMAT,
                    "expected rows of a group of %" PRId64 ", found %" PRId64 " columns", said,
                    size);
}

}  // namespace

std::optional<Finding> recognize_hqq(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".W_q");
  if (!base) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.layer.format = MARLIN_FORMAT_INT4;
  found.set_layout(LayoutId::hqq);
  LayoutOperands& o = found.operands;
  o.format = MARLIN_FORMAT_INT4;
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  o.values = tensor;
  o.scales = finder.find(*base, ".scale");
  o.zeros = finder.find(*base, ".zero");
  found.layer.status = check_settings(finder, *base, o);
  if (!found.layer.status.ok()) return found;
  for (const char* part : {".scale", ".zero", ".shape"}) {
    if (present(finder.find(*base, part))) continue;
    found.set_missing(part);
    return found;
  }
  found.layer.status = take_shape(finder, *base, found);
  return found;
}

}  // namespace metal_marlin
