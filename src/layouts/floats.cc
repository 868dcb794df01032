#include "layouts/floats.h"

#include <cinttypes>
#include <string>

#include "formats/quantize.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {

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

}  // namespace metal_marlin
