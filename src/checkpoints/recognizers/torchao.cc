// TorchAO: a tensor X.weight is stored in parts, X._weight_qdata and others. The type of its zeros
// tells Int4Tensor ("plain") from IntxUnpackedToInt8Tensor; Float8Tensor has none.
#include <algorithm>
#include <cinttypes>

#include "checkpoints/recognizers/recognizers.h"
#include "checkpoints/recognizers/scales.h"

namespace metal_marlin {
namespace {

/// Codes in two dimensions, with scales and zeros in two dimensions.
Status check_parts(const LayoutOperands& o) {
  if (o.values.dtype != MARLIN_I8 || o.values.dims.size() != 2 || o.values.dims[1] < 1) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "expected I8 codes in two dimensions, as Int4Tensor (plain) and "
                      "IntxUnpackedToInt8Tensor have them, found %.20s in %zu",
                      o.values.type_name.empty() ? "another type" : o.values.type_name.data(),
                      o.values.dims.size());
  }
  for (const TensorView* view : {&o.scales, &o.zeros})
    if (view->dims.size() != 2 || view->dims[0] < 1 || view->dims[1] < 1)
      return view_error(*view, MARLIN_E_SHAPE, "expected two dimensions, found %zu",
                        view->dims.size());
  return {};
}

/// The elements that share a scale, if `groups` scales cover rows of k.
Status set_group(Finding& found, int64_t groups) {
  LayoutOperands& o = found.operands;
  if (o.k % groups != 0)
    return view_error(o.scales, MARLIN_E_SHAPE,
                      "expected groups that divide K = %" PRId64 ", found %" PRId64 " of them", o.k,
                      groups);
  o.group_size = o.k / groups;
  return {};
}

Status take_parts(Finding& found) {
  LayoutOperands& o = found.operands;
  MARLIN_RETURN_IF_ERROR(check_parts(o));
  found.layer.n = o.n = o.values.dims[0];
  found.layer.k = o.k = o.values.dims[1];
  if (o.zeros.dtype == MARLIN_I8) return set_group(found, o.scales.dims[1]);
  if (o.k > INT32_MAX / 2)
    return view_error(o.values, MARLIN_E_SHAPE, "expected up to 2147483647 codes a row");
  found.layer.k = o.k = 2 * o.k;
  found.layer.format = o.format = MARLIN_FORMAT_INT4;
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  found.set_layout(LayoutId::torchao);
  return set_group(found, o.scales.dims[0]);
}

/// Float8Tensor has no zeros.
void take_float8(const Finder& finder, const TensorView& scales, Finding& found) {
  LayoutOperands& o = found.operands;
  found.layer.format = o.format = MARLIN_FORMAT_FP8;
  found.take_matrix(o.values);
  o.n = found.layer.n;
  o.k = found.layer.k;
  take_scales(finder, scales, found);
}

}  // namespace

std::optional<Finding> recognize_torchao(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, "._weight_qdata");
  if (!base) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  LayoutOperands& o = found.operands;
  // Codes and zeros of any integer type up to 8 bits are bytes in two's complement.
  found.layer.format = o.format = MARLIN_FORMAT_UINT8;
  found.set_layout(LayoutId::rows);
  o.values = tensor;
  o.scales = finder.find(*base, "._weight_scale");
  o.zeros = finder.find(*base, "._weight_zero_point");
  if (!present(o.scales))
    found.set_missing("._weight_scale");
  else if (tensor.dtype == MARLIN_E4M3 && tensor.dims.size() == 2)
    take_float8(finder, o.scales, found);
  else if (!present(o.zeros))
    found.set_missing("._weight_zero_point");
  else
    found.layer.status = take_parts(found);
  return found;
}

}  // namespace metal_marlin
