#include <cinttypes>

#include "api/errors.h"
#include "api/operand.h"
#include "api/stream.h"
#include "api/weights.h"

namespace metal_marlin::api {
namespace {

Status check_ids(const Operand& ids, const Operand& out) {
  if (ids.dtype != MARLIN_I32)
    return Status::error(MARLIN_E_ARGUMENT, "row_ids.dtype is %d, expected I32 (%d)", ids.dtype, MARLIN_I32);
  if (ids.rows != out.rows || ids.cols != 1)
    return Status::error(MARLIN_E_SHAPE, "row_ids is [%" PRId64 ", %" PRId64 "], expected [out.rows = %" PRId64 ", 1]",
                         ids.rows, ids.cols, out.rows);
  if (ranges_overlap(ids, out)) return Status::error(MARLIN_E_ARGUMENT, "out overlaps row_ids");
  return {};
}

Status check_range(int64_t first_row, int64_t rows, int64_t n) {
  if (first_row >= 0 && rows <= n && first_row <= n - rows) return {};
  return Status::error(MARLIN_E_ARGUMENT, "%" PRId64 " rows from row %" PRId64 " on are outside [0, %" PRId64 ")", rows,
                       first_row, n);
}

Status unpack(marlin_stream* stream, const marlin_weights* weights, const marlin_matrix* row_ids, int64_t first_row,
              const marlin_matrix* out) {
  if (stream != nullptr) MARLIN_RETURN_IF_ERROR(check_handle(stream, "stream"));
  MARLIN_RETURN_IF_ERROR(check_weights(weights, stream != nullptr ? stream->context.get() : nullptr));
  if (out == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out is NULL");
  const WeightMeta& meta = weights->packed->meta();
  MARLIN_ASSIGN(const Operand to, resolve(*out, "out", *weights->context));
  MARLIN_RETURN_IF_ERROR(check_matrix(to, "out"));
  if (to.cols != meta.k)
    return Status::error(MARLIN_E_SHAPE, "out.cols is %" PRId64 ", expected k of the weights = %" PRId64, to.cols, meta.k);
  RowSelection rows = RowSelection::from(first_row);
  if (row_ids == nullptr) {
    MARLIN_RETURN_IF_ERROR(check_range(first_row, to.rows, meta.n));
  } else {
    MARLIN_ASSIGN(const Operand ids, resolve(*row_ids, "row_ids", *weights->context));
    MARLIN_RETURN_IF_ERROR(check_ids(ids, to));
    rows.ids = ids;
  }
  if (to.rows == 0) return {};
  BackendStream* const on = stream != nullptr ? stream->backend.get() : nullptr;
  return weights->context->backend->unpack(on, *weights->packed, rows, to);
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_weights_unpack(marlin_stream* stream, const marlin_weights* weights, const marlin_matrix* row_ids,
                                    int64_t first_row, const marlin_matrix* out, marlin_error* err) {
  return api::boundary(err, [&] { return api::unpack(stream, weights, row_ids, first_row, out); });
}
