#include <algorithm>
#include <cinttypes>
#include <span>

#include "api/errors.h"
#include "api/operand.h"
#include "api/stream.h"
#include "api/weights.h"
#include "base/bits.h"
#include "core/packed_reader.h"
#include "layouts/gguf_types.h"
#include "layouts/layout_table.h"

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

/// Calls unpack_some(expert, first row, out) for consecutive rows, which may continue from one
/// expert to the next. `element` is the size of an element of `out`.
template <class UnpackSome>
Status for_each_expert(const marlin_weights& weights, int64_t first, MatrixView out,
                       int64_t element, const UnpackSome& unpack_some) {
  const int64_t n = weights.experts.front()->meta().n;
  for (int64_t left = out.rows; left > 0; left -= out.rows) {
    const int64_t row = first % n;
    out.rows = std::min(left, n - row);
    MARLIN_RETURN_IF_ERROR(unpack_some(*weights.experts[static_cast<size_t>(first / n)], row, out));
    const int64_t bytes = out.rows * out.stride * element;
    out.data = static_cast<std::byte*>(out.data) + bytes;
    out.offset += static_cast<uint64_t>(bytes);
    first += out.rows;
  }
  return {};
}

/// Decodes consecutive rows.
Status unpack_rows(BackendStream* on, const marlin_weights& weights, int64_t first,
                   const MatrixView& out) {
  return for_each_expert(weights, first, out, static_cast<int64_t>(float_bytes(out.dtype)),
                         [&](const PackedWeights& expert, int64_t row, const MatrixView& to) {
                           return weights.context->backend->unpack(on, expert,
                                                                   RowSelection::from(row), to);
                         });
}

/// Blocks have no place for tensor scales: a file keeps them beside its blocks.
Status check_tensor_scales(const marlin_weights& weights) {
  for (size_t e = 0; e < weights.experts.size(); ++e)
    for (const TensorScale& scale : weights.experts[e]->meta().tensor_scales)
      if (scale.value != 1 || scale.divisor != 1)
        return Status::error(MARLIN_E_UNSUPPORTED,
                             "out.dtype is U8; expert %zu has a tensor scale from row %" PRId64
                             " on, expected none or 1: blocks do not hold it",
                             e, scale.first_row);
  return {};
}

/// Blocks of consecutive rows of one expert: what `source` holds in the layout GGUF.
Status write_blocks(const WeightSource& source, int64_t first, const MatrixView& out) {
  const LayoutEncoder layout = gguf_encoder();
  const std::unique_ptr<Encoder> encoder = layout.make(source.meta());
  Stripe stripe;
  for (int64_t at = 0; at < out.rows; at += kStripeRows) {
    const int64_t count = std::min(kStripeRows, out.rows - at);
    MARLIN_RETURN_IF_ERROR(source.read(first + at, count, stripe));
    auto* const to = static_cast<std::byte*>(out.data) + at * out.stride;
    MARLIN_RETURN_IF_ERROR(encoder->encode(
        stripe, 0, count, [&](size_t, uint64_t, std::span<const std::byte> rows) -> Status {
          for (int64_t row = 0; row < count; ++row)
            std::copy_n(rows.begin() + row * out.cols, out.cols, to + row * out.stride);
          return {};
        }));
  }
  return {};
}

/// The bytes of a row of blocks; an error for weights that GGUF does not hold.
Result<int64_t> block_row_bytes(const WeightMeta& meta) {
  MARLIN_RETURN_IF_ERROR(gguf_encoder().check(meta));
  MARLIN_ASSIGN(const std::vector<EncodedTensor> tensors, gguf_encoder().tensors(meta, 1));
  const ElementType& type = gguf_type(tensors.front().type)->element;
  return meta.k / type.block * type.bytes;
}

Status unpack_blocks(const marlin_weights& weights, int64_t first, const MatrixView& out) {
  const auto* const reader = dynamic_cast<const PackedReader*>(weights.context->backend.get());
  if (reader == nullptr)
    return Status::error(MARLIN_E_UNSUPPORTED, "out.dtype is U8; only the CPU gives blocks back");
  MARLIN_RETURN_IF_ERROR(check_tensor_scales(weights));
  const int64_t n = weights.experts.front()->meta().n;
  MARLIN_RETURN_IF_ERROR(
      check_range(first, out.rows, static_cast<int64_t>(weights.experts.size()) * n));
  // Every expert is checked before the first byte is written.
  const size_t begin = std::min(static_cast<size_t>(first / n), weights.experts.size() - 1),
               end = static_cast<size_t>(ceil_div(first + out.rows, n));
  for (size_t e = begin; e < std::max(begin + 1, end); ++e) {
    const PackedWeights& expert = *weights.experts[e];
    MARLIN_ASSIGN(const int64_t row_bytes, block_row_bytes(expert.meta()));
    if (out.cols != row_bytes)
      return Status::error(MARLIN_E_SHAPE,
                           "out.cols is %" PRId64
                           ", expected the bytes of a row of blocks = %" PRId64 " of expert %zu",
                           out.cols, row_bytes, e);
    MARLIN_RETURN_IF_ERROR(reader->source_of(expert).status());
  }
  const auto write = [&](const PackedWeights& expert, int64_t row, const MatrixView& to) -> Status {
    MARLIN_ASSIGN(const std::unique_ptr<WeightSource> source, reader->source_of(expert));
    return write_blocks(*source, row, to);
  };
  return for_each_expert(weights, first, out, 1, write);
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
  if (to.dtype == MARLIN_U8 && row_ids == nullptr) return unpack_blocks(*weights, first_row, to);
  MARLIN_RETURN_IF_ERROR(check_floats(to, "out"));
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
