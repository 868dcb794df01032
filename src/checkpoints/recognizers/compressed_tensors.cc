// compressed-tensors "pack-quantized" and "sparse-24-bitmask", which holds pruned floats. The FP4
// formats of the same writer are in mxfp4.cc and nvfp4.cc, marlin-24 in marlin.cc.
#include <algorithm>
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/recognizers/recognizers.h"

namespace metal_marlin {
namespace {

/// Two numbers, which are data of the file, but as small as a header.
struct Shape {
  int64_t n, k;
};
Result<Shape> read_shape(const TensorView& shape) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(shape, {MARLIN_I64, MARLIN_I32}));
  const bool wide = shape.dtype == MARLIN_I64;
  if (shape.bytes != (wide ? 16 : 8)) MARLIN_RETURN_IF_ERROR(expect_shape(shape, 1, 2));
  return Shape{wide ? load<int64_t>(shape.data) : load<int32_t>(shape.data),
               wide ? load<int64_t>(shape.data + 8) : load<int32_t>(shape.data + 4)};
}

/// Takes n and k from weight_shape, or from the codes if it is absent.
Status take_shape(const TensorView& shape, Finding& found) {
  const TensorView& codes = found.operands.values;
  found.layer.n = rows_of(codes);
  found.layer.k = std::min<int64_t>(cols_of(codes), INT32_MAX) * 8;
  if (!present(shape)) return {};
  MARLIN_ASSIGN(const Shape said, read_shape(shape));
  const auto [n, k] = said;
  if (n != found.layer.n || k < 1 || k > INT32_MAX) {
    return view_error(shape, MARLIN_E_FORMAT,
                      "expected [%" PRId64 ", 1..2147483647], found [%" PRId64 ", %" PRId64 "]",
                      found.layer.n, n, k);
  }
  if (ceil_div(k, 8) != cols_of(codes)) {
    const bool bytes = ceil_div(k, 4) == cols_of(codes);
    return view_error(codes, bytes ? MARLIN_E_UNSUPPORTED : MARLIN_E_FORMAT,
                      "expected 4-bit codes: %" PRId64 " words for %" PRId64
                      " elements, found %" PRId64 "%s",
                      ceil_div(k, 8), k, cols_of(codes), bytes ? " (8-bit codes)" : "");
  }
  found.layer.k = k;
  return {};
}

/// sparse-24-bitmask: floats [n, k / 2], a mask of k bits per row, and the shape of the matrix.
Status check_bitmask(const TensorView& shape, const LayoutOperands& o) {
  MARLIN_RETURN_IF_ERROR(float_type(o.values).status());
  if (o.n < 1 || o.n > INT32_MAX || o.k < 1 || o.k % 4 != 0 || o.values.dims.size() != 2) {
    return view_error(o.values, MARLIN_E_SHAPE,
                      "expected the kept half of [1..2147483647, multiple of 4]");
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.sparse_meta, {MARLIN_U8}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.sparse_meta, o.n, ceil_div(o.k, 8)));
  if (!present(shape)) return {};
  MARLIN_ASSIGN(const Shape said, read_shape(shape));
  if (said.n == o.n && said.k == o.k) return {};
  return view_error(shape, MARLIN_E_FORMAT,
                    "expected [%" PRId64 ", %" PRId64 "], found [%" PRId64 ", %" PRId64 "]", o.n,
                    o.k, said.n, said.k);
}

}  // namespace

std::optional<Finding> recognize_compressed_tensors(const Finder& finder,
                                                    const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight_packed");
  if (!base || (tensor.dtype != MARLIN_I32 && tensor.dtype != MARLIN_U32)) return std::nullopt;
  if (present(finder.find(*base, ".meta"))) return std::nullopt;  // marlin-24
  Finding found;
  found.layer.name = *base;
  found.layer.format = MARLIN_INT4;
  found.set_layout(LayoutId::compressed_tensors);
  LayoutOperands& o = found.operands;
  o.format = MARLIN_INT4;
  o.values = tensor;
  o.scales = finder.find(*base, ".weight_scale");
  o.zeros = finder.find(*base, ".weight_zero_point");
  o.group_index = finder.find(*base, ".weight_g_idx");
  if (present(o.group_index)) found.layer.flags |= MARLIN_LAYER_ACT_ORDER;
  found.layer.status = take_shape(finder.find(*base, ".weight_shape"), found);
  if (!present(o.scales)) found.set_missing(".weight_scale");
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.group_size = group_size_of(finder.config, o.k, cols_of(o.scales)).value_or(0);
  return found;
}

std::optional<Finding> recognize_bitmask(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".compressed");
  if (!base || !present(finder.find(*base, ".bitmask"))) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  found.layer.layout = MARLIN_LAYOUT_ROWS;
  found.layer.flags = MARLIN_LAYER_SPARSE_2_4;
  found.layer.dtype = tensor.dtype;
  LayoutOperands& o = found.operands;
  o.values = tensor;
  o.sparse_meta = finder.find(*base, ".bitmask");
  found.layer.n = o.n = rows_of(tensor);
  found.layer.k = o.k = found.layer.group_size =
      std::min<int64_t>(cols_of(tensor), INT32_MAX / 2) * 2;
  found.layer.status = check_bitmask(finder.find(*base, ".shape"), o);
  return found;
}

}  // namespace metal_marlin
