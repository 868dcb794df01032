// compressed-tensors "pack-quantized": words of eight codes along K, [N, ceil(K / 8)]; zeros packed
// along N. The FP4 formats of the same writer are in the layout ROWS, marlin-24 in marlin.cc.
#include "base/bits.h"
#include "layouts/layout_table.h"
#include "layouts/rows.h"

namespace metal_marlin {
namespace {

bool has_minus_one(const TensorView& index) {
  for (int64_t k = 0; k < cols_of(index); ++k) {
    if (load<int32_t>(index.data + 4 * k) == -1) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_compressed_tensors(const LayoutOperands& operands,
                                                              Depth depth) {
  LayoutOperands o = operands;
  if (present(o.group_index)) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.group_index, {MARLIN_I32}));
    MARLIN_RETURN_IF_ERROR(expect_shape(o.group_index, 1, o.k));
    if (depth == Depth::full && has_minus_one(o.group_index))
      o.group_index = {};  // the writer's "none"
  }
  RowsOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, cols_of(o.scales), depth));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, ceil_div(o.k, 8)));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16, MARLIN_F32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, o.n, parts.meta.groups));
  parts.codes = o.values.data;
  parts.code_stride = cols_of(o.values) * 4;
  parts.scales = o.scales.data;
  parts.scale_stride = parts.meta.groups * static_cast<int64_t>(scale_bytes(parts.meta.scale_type));
  if (present(o.zeros)) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_I32, MARLIN_U32}));
    MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, ceil_div(o.n, 8), parts.meta.groups));
    parts.meta.zero_kind = ZeroKind::integer;
    parts.zeros = o.zeros.data;
    parts.zero_stride = parts.meta.groups * 4;
    parts.zero_form = ZeroForm::words_along_n;
  }
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  return make_rows_source(std::move(parts));
}

}  // namespace metal_marlin
