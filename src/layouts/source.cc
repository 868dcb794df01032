#include "layouts/source.h"

#include "formats/prune.h"
#include "layouts/floats.h"
#include "layouts/layout_table.h"
#include "sources/interleave.h"

namespace metal_marlin {
namespace {

Result<std::unique_ptr<WeightSource>> quantize(const LayoutOperands& o, const SparseRule& rule) {
  if (o.layout != MARLIN_LAYOUT_ROWS && o.layout != MARLIN_LAYOUT_AUTO) {
    return Status::error(MARLIN_E_ARGUMENT, "layout: float values are rows [n, k], found layout %d",
                         o.layout);
  }
  for (const TensorView* view :
       {&o.scales, &o.zeros, &o.group_index, &o.tensor_scale, &o.codebook}) {
    MARLIN_RETURN_IF_ERROR(expect_absent(*view));
  }
  MARLIN_ASSIGN(auto source, quantize_floats(o, {o.format, o.group_size,
                                                 (o.flags & MARLIN_PACK_SCALES_MSE) != 0, rule}));
  if ((o.flags & MARLIN_PACK_GATE_UP_INTERLEAVED) == 0) return source;
  return make_interleaved(std::move(source));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> make_source(const LayoutOperands& o) {
  MARLIN_ASSIGN(const SparseRule rule, sparse_rule(o.flags, o.column_norms));
  if (is_float(o.values.dtype)) return quantize(o, rule);
  const LayoutRow* row = caller_layout(o.layout);
  if (o.zero_f != MARLIN_GPTQ_ZERO_F_AUTO && (row == nullptr || !row->has_place(Takes::zero_f))) {
    return Status::error(MARLIN_E_ARGUMENT,
                         "gptq_zero_f: only the layout GPTQ_V1 has such zeros, found layout %d",
                         o.layout);
  }
  if (row == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "layout: %d is none of this version", o.layout);
  MARLIN_ASSIGN(auto source, read_layout(*row, o, Depth::full));
  if (rule.sparsity == Sparsity::as_given) return source;
  return make_sparse(std::move(source), rule);
}

}  // namespace metal_marlin
