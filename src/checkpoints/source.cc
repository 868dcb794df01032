// make_source: from operands given by pointer to the layout's reader.
#include <cinttypes>
#include <string>

#include "checkpoints/operands.h"
#include "checkpoints/sparse.h"
#include "formats/format_table.h"
#include "formats/prune.h"
#include "formats/quantize.h"
#include "sources/interleave.h"

namespace metal_marlin {
namespace {

Result<std::unique_ptr<WeightSource>> quantize(const LayoutOperands& o, const SparseRule& rule) {
  if (o.layout != MARLIN_LAYOUT_ROWS && o.layout != MARLIN_LAYOUT_AUTO) {
    return Status::error(MARLIN_E_ARGUMENT, "layout: float values are rows [n, k], found layout %d",
                         o.layout);
  }
  for (const TensorView* view : {&o.scales, &o.zeros, &o.group_index, &o.tensor_scale}) {
    MARLIN_RETURN_IF_ERROR(expect_absent(*view));
  }
  MARLIN_ASSIGN(auto source, quantize_floats(o, {o.format, o.group_size,
                                                 (o.flags & MARLIN_PACK_SCALES_MSE) != 0, rule}));
  if ((o.flags & MARLIN_PACK_GATE_UP_INTERLEAVED) == 0) return source;
  return make_interleaved(std::move(source));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> quantize_floats(const LayoutOperands& o,
                                                      const SourceOptions& options) {
  const bool sparse = present(o.sparse_meta);
  if (sparse) {
    if (o.k < 1 || o.k > INT32_MAX || o.k % 4 != 0) {
      return view_error(o.values, MARLIN_E_SHAPE,
                        "k: 2:4 sparse rows are whole blocks of 4, found %" PRId64, o.k);
    }
    MARLIN_RETURN_IF_ERROR(check_row_meta(o.sparse_meta, o.n, o.k));
  }
  const int64_t width = sparse ? o.k / 2 : o.k;
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, width, true));
  FloatMatrix matrix{o.values.data,
                     o.values.dtype,
                     o.n,
                     o.k,
                     o.n > 1 ? o.values.row_stride : width,
                     std::string(o.values.name),
                     {}};
  if (sparse) {
    matrix.kept = [meta = o.sparse_meta, k = o.k](int64_t row, uint8_t* kept) {
      return read_row_meta(meta, row, k, kept);
    };
  }
  return make_quantized(matrix, options.quantize_to, options.group_size,
                        {.search_mse = options.search_mse, .sparse = options.sparse});
}

namespace {

Result<std::unique_ptr<WeightSource>> make_layout(const LayoutOperands& o) {
  switch (o.layout) {
    case MARLIN_LAYOUT_AUTO:
    case MARLIN_LAYOUT_ROWS:
      return make_rows(o, Depth::full);
    case MARLIN_LAYOUT_K8N:
      return make_k8n(o, Depth::full);
    case MARLIN_LAYOUT_GPTQ_V1:
    case MARLIN_LAYOUT_GPTQ_V2:
      return make_gptq(o, Depth::full);
    case MARLIN_LAYOUT_AWQ:
      return make_awq(o, Depth::full);
    case MARLIN_LAYOUT_GGUF:
      return make_gguf(o, Depth::full);
    case MARLIN_LAYOUT_AWQ_GEMV:
      return make_awq_gemv(o, Depth::full);
    case MARLIN_LAYOUT_AWQ_GEMV_FAST:
      return make_awq_gemv_fast(o, Depth::full);
    case MARLIN_LAYOUT_MARLIN:
      return make_marlin(o, Depth::full);
    case MARLIN_LAYOUT_MARLIN_24:
      return make_marlin_24(o, Depth::full);
    default:
      return Status::error(MARLIN_E_ARGUMENT, "layout: %d is none of this version", o.layout);
  }
}

/// Where 2:4 metadata has a place.
bool takes_sparse_meta(marlin_layout layout) {
  return layout == MARLIN_LAYOUT_AUTO || layout == MARLIN_LAYOUT_ROWS ||
         layout == MARLIN_LAYOUT_K8N || layout == MARLIN_LAYOUT_MARLIN_24;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> make_source(const LayoutOperands& o) {
  MARLIN_ASSIGN(const SparseRule rule, sparse_rule(o.flags, o.column_norms));
  if (is_float(o.values.dtype)) return quantize(o, rule);
  if (o.zero_f != MARLIN_GPTQ_ZERO_F_AUTO && o.layout != MARLIN_LAYOUT_GPTQ_V1) {
    return Status::error(MARLIN_E_ARGUMENT,
                         "gptq_zero_f: only the layout GPTQ_V1 has such zeros, found layout %d",
                         o.layout);
  }
  if (!takes_sparse_meta(o.layout)) MARLIN_RETURN_IF_ERROR(expect_absent(o.sparse_meta));
  MARLIN_ASSIGN(auto source, make_layout(o));
  if (rule.sparsity == Sparsity::as_given) return source;
  return make_sparse(std::move(source), rule);
}

}  // namespace metal_marlin
