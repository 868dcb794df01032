#include <algorithm>
#include <cinttypes>

#include "api/errors.h"
#include "api/operand.h"
#include "api/stream.h"
#include "api/weights.h"
#include "base/bits.h"

namespace metal_marlin::api {
namespace {

/// Rows that go to the backend at once: their ids are on the stack, and enough to keep every thread busy.
constexpr int64_t kChunk = 1024;

/// Which rows to decode: listed, or consecutive.
class RowIds {
 public:
  RowIds(const Operand* listed, int64_t first) : listed_(listed), first_(first) {}
  /// The i-th, inside [0, n).
  Result<int64_t> at(int64_t i, int64_t n) const {
    // The list is the caller's memory and is read again when decoding: every read is checked.
    const int64_t id = listed_ ? load<int32_t>(listed_->data + i * listed_->stride * 4) : first_ + i;
    if (id >= 0 && id < n) return id;
    return Status::error(MARLIN_E_ARGUMENT, "row id %" PRId64 " of output row %" PRId64 " is outside [0, %" PRId64 ")", id, i,
                         n);
  }

 private:
  const Operand* listed_;
  int64_t first_;
};

Status check_ids(const Operand& ids, const Operand& out) {
  if (ids.dtype != MARLIN_I32)
    return Status::error(MARLIN_E_ARGUMENT, "row_ids.dtype is %d, expected I32 (%d)", ids.dtype, MARLIN_I32);
  if (ids.rows != out.rows || ids.cols != 1)
    return Status::error(MARLIN_E_SHAPE, "row_ids is [%" PRId64 ", %" PRId64 "], expected [out.rows = %" PRId64 ", 1]",
                         ids.rows, ids.cols, out.rows);
  if (ranges_overlap(ids.data, ids.bytes, out.data, out.bytes)) return Status::error(MARLIN_E_ARGUMENT, "out overlaps row_ids");
  return {};
}

Status check_range(int64_t first_row, int64_t rows, int64_t n) {
  if (first_row >= 0 && rows <= n && first_row <= n - rows) return {};
  return Status::error(MARLIN_E_ARGUMENT, "%" PRId64 " rows from row %" PRId64 " on are outside [0, %" PRId64 ")", rows,
                       first_row, n);
}

Status decode(const marlin_weights& weights, const RowIds& ids, const MatrixView& out) {
  const int64_t n = weights.packed->meta().n;
  for (int64_t i = 0; i < out.rows; ++i) MARLIN_RETURN_IF_ERROR(ids.at(i, n).status());
  const auto row_bytes = out.stride * static_cast<int64_t>(float_bytes(out.dtype));
  int64_t chunk[kChunk];
  for (int64_t first = 0; first < out.rows; first += kChunk) {
    const int64_t count = std::min(kChunk, out.rows - first);
    for (int64_t i = 0; i < count; ++i) {
      MARLIN_ASSIGN(chunk[i], ids.at(first + i, n));
    }
    MatrixView part = out;
    part.data = static_cast<std::byte*>(out.data) + first * row_bytes;
    part.rows = count;
    MARLIN_RETURN_IF_ERROR(weights.context->backend->unpack(*weights.packed, {chunk, static_cast<size_t>(count)}, part));
  }
  return {};
}

Status unpack(marlin_stream* stream, const marlin_weights* weights, const marlin_matrix* row_ids, int64_t first_row,
              const marlin_matrix* out) {
  if (stream != nullptr) MARLIN_RETURN_IF_ERROR(check_handle(stream, "stream"));
  MARLIN_RETURN_IF_ERROR(check_weights(weights, stream != nullptr ? stream->context.get() : nullptr));
  if (out == nullptr) return Status::error(MARLIN_E_ARGUMENT, "out is NULL");
  const WeightMeta& meta = weights->packed->meta();
  MARLIN_ASSIGN(const Operand to, resolve(*out, "out", *weights->context));
  MARLIN_RETURN_IF_ERROR(check_matrix(to.view(), "out"));
  if (to.cols != meta.k)
    return Status::error(MARLIN_E_SHAPE, "out.cols is %" PRId64 ", expected k of the weights = %" PRId64, to.cols, meta.k);
  if (row_ids == nullptr) {
    MARLIN_RETURN_IF_ERROR(check_range(first_row, to.rows, meta.n));
    return decode(*weights, RowIds(nullptr, first_row), to.view());
  }
  MARLIN_ASSIGN(const Operand ids, resolve(*row_ids, "row_ids", *weights->context));
  MARLIN_RETURN_IF_ERROR(check_ids(ids, to));
  return decode(*weights, RowIds(&ids, 0), to.view());
}

}  // namespace
}  // namespace metal_marlin::api

using namespace metal_marlin;

marlin_status marlin_weights_unpack(marlin_stream* stream, const marlin_weights* weights, const marlin_matrix* row_ids,
                                    int64_t first_row, const marlin_matrix* out, marlin_error* err) {
  return api::boundary(err, [&] { return api::unpack(stream, weights, row_ids, first_row, out); });
}
