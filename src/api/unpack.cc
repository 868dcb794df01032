#include <algorithm>
#include <cinttypes>

#include "api/errors.h"
#include "api/operand.h"
#include "api/stream.h"
#include "api/weights.h"

namespace metal_marlin::api {
namespace {

Status check_ids(const Operand& ids, const Operand& out) {
  if (ids.dtype != MARLIN_I32)
    return Status::error(MARLIN_E_ARGUMENT, "row_ids.dtype is %d, expected I32 (%d)", ids.dtype,
                         MARLIN_I32);
  if (ids.rows != out.rows || ids.cols != 1)
    return Status::error(MARLIN_E_SHAPE,
                         "row_ids is [%" PRId64 ", %" PRId64 "], expected [out.rows = %" PRId64
                         ", 1]",
                         ids.rows, ids.cols, out.rows);
  if (ranges_overlap(ids, out)) return Status::error(MARLIN_E_ARGUMENT, "out overlaps row_ids");
  return {};
}

Status check_range(int64_t first_row, int64_t rows, int64_t n) {
  if (first_row >= 0 && rows <= n && first_row <= n - rows) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "%" PRId64 " rows from row %" PRId64 " on are outside [0, %" PRId64 ")",
                       rows, first_row, n);
}

/// Decodes consecutive rows, which may continue from one expert to the next.
Status unpack_rows(BackendStream* on, const marlin_weights& weights, int64_t first,
                   MatrixView out) {
  const int64_t n = weights.experts.front()->meta().n,
                element = static_cast<int64_t>(float_bytes(out.dtype));
  for (int64_t left = out.rows; left > 0; left -= out.rows) {
    const int64_t row = first % n;
    out.rows = std::min(left, n - row);
    const PackedWeights& expert = *weights.experts[static_cast<size_t>(first / n)];
    MARLIN_RETURN_IF_ERROR(
        weights.context->backend->unpack(on, expert, RowSelection::from(row), out));
    const int64_t bytes = out.rows * out.stride * element;
    out.data = static_cast<std::byte*>(out.data) + bytes;
    out.offset += static_cast<uint64_t>(bytes);
    first += out.rows;
  }
  return {};
}

Status unpack(marlin_stream* stream, const marlin_weights* weights, const marlin_matrix* row_ids,
              int64_t first_row, const marlin_matrix* out) {
  if (stream != nullptr) MARLIN_RETURN_IF_ERROR(check_handle(stream, "stream"));
  MARLIN_RETURN_IF_ERROR(
      check_weights(weights, stream != nullptr ? stream->context.get() : nullptr));
  if (out == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out is NULL");
  const WeightMeta& meta = weights->experts.front()->meta();
  const auto experts = static_cast<int64_t>(weights->experts.size());
  MARLIN_ASSIGN(const Operand to, resolve(*out, "out", *weights->context));
  MARLIN_RETURN_IF_ERROR(check_matrix(to, "out"));
  if (to.cols != meta.k)
    return Status::error(MARLIN_E_SHAPE,
                         "out.cols is %" PRId64 ", expected k of the weights = %" PRId64, to.cols,
                         meta.k);
  BackendStream* const on = stream != nullptr ? stream->backend.get() : nullptr;
  if (row_ids == nullptr) {
    MARLIN_RETURN_IF_ERROR(check_range(first_row, to.rows, experts * meta.n));
    return unpack_rows(on, *weights, first_row, to);
  }
  if (experts > 1)
    return Status::error(MARLIN_E_UNSUPPORTED, "row_ids of %" PRId64 " experts; only of one",
                         experts);
  MARLIN_ASSIGN(const Operand ids, resolve(*row_ids, "row_ids", *weights->context));
  MARLIN_RETURN_IF_ERROR(check_ids(ids, to));
  if (to.rows == 0) return {};
  return weights->context->backend->unpack(on, *weights->experts.front(), {0, ids}, to);
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_weights_unpack(marlin_stream* stream, const marlin_weights* weights,
                                    const marlin_matrix* row_ids, int64_t first_row,
                                    const marlin_matrix* out, marlin_error* err) {
  return api::boundary(err, [&] { return api::unpack(stream, weights, row_ids, first_row, out); });
}
