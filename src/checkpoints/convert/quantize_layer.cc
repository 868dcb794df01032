#include "checkpoints/convert/quantize_layer.h"

#include <algorithm>
#include <cinttypes>

#include "base/bits.h"
#include "core/parallel.h"
#include "core/thread_pool.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/fit.h"
#include "formats/format_table.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {
namespace {

constexpr int64_t kStripeWeights =
    int64_t{1} << 18;            // few enough for a core's caches, many enough to outweigh a task
constexpr uint32_t kBatch = 64;  // stripes between two calls of progress; 1 without parallel_for

/// The kept elements [n, k / 2] with the zeros between them.
Result<std::vector<float>> with_zeros(const TensorView& values, const TensorView& pattern,
                                      int64_t n, int64_t k) {
  std::vector<float> dense(static_cast<size_t>(n * k)), row(static_cast<size_t>(k / 2));
  std::vector<uint8_t> kept(static_cast<size_t>(k / 4));
  const auto width = static_cast<int64_t>(float_bytes(values.dtype));
  for (int64_t r = 0; r < n; ++r) {
    MARLIN_RETURN_IF_ERROR(read_row_meta(pattern, r, k, kept.data()));
    decode_floats(values.dtype, values.data + r * (k / 2) * width, k / 2, row.data());
    size_t next = 0;
    for (int64_t i = 0; i < k; ++i) {
      if (is_kept(kept.data(), i)) dense[static_cast<size_t>(r * k + i)] = row[next++];
    }
  }
  return dense;
}

/// Adds the differences between a stripe of rows from `first` on and the floats of its source.
void compare(const FloatMatrix& matrix, const WeightMeta& meta, const Stripe& stripe, int64_t first,
             int64_t count, QuantizeSums& sums) {
  const int64_t k = matrix.k, width = static_cast<int64_t>(float_bytes(matrix.dtype));
  std::vector<float> written(static_cast<size_t>(count * k)), row(static_cast<size_t>(k));
  decode_rows(meta, stripe, first, count, written.data());
  for (int64_t r = 0; r < count; ++r) {
    decode_floats(
        matrix.dtype,
        static_cast<const uint8_t*>(matrix.data) + (first + r) * matrix.row_stride * width, k,
        row.data());
    const float* w = written.data() + r * k;
    for (int64_t i = 0; i < k; ++i) {
      const double x = row[static_cast<size_t>(i)], difference = double{w[i]} - x;
      sums.squared_norm += x * x;
      sums.squared_error += difference * difference;
      const bool kept = !meta.sparse || is_kept(stripe.kept.data(), r * k + i);
      if (kept) sums.kept_norm += x * x;
    }
  }
}

/// Writes codes of the value 0 to the places that are not kept.
void put_zeros(const WeightMeta& meta, int64_t count, Stripe& stripe) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t k = 0; k < meta.k; ++k) {
      if (is_kept(stripe.kept.data(), r * meta.k + k)) continue;
      uint8_t zero = meta.format == MARLIN_FORMAT_INT4 ? 8 : 0;
      if (meta.zero_kind == ZeroKind::integer)
        zero = stripe.zeros[static_cast<size_t>(r * meta.groups + k / meta.group_size)];
      stripe.codes[static_cast<size_t>(r * meta.k + k)] = zero;
    }
  }
}

}  // namespace

int64_t stripe_rows(int64_t k) {
  return std::max<int64_t>(1, kStripeWeights / k / kStripeRows) * kStripeRows;
}

Status run_tasks(const ConvertHost& host, uint32_t count,
                 const std::function<Status(uint32_t)>& body) {
  const auto make_worker = [&] {
    return [&](int64_t i) { return body(static_cast<uint32_t>(i)); };
  };
  if (host.parallel_for != nullptr && count > 1) {
    HostRunner runner(host.parallel_for, host.user, count);
    return for_each_item(runner, count, make_worker);
  }
  SequentialRunner runner;
  return for_each_item(runner, count, make_worker);
}

Result<LayerFloats> floats_of(const Checkpoint& input, size_t index, uint32_t expert,
                              const ConvertHost& host) {
  const Layer layer = input.layer(index);
  MARLIN_RETURN_IF_ERROR(layer.status);
  LayerFloats floats;
  floats.matrix = {nullptr, MARLIN_F32, layer.n, layer.k, layer.k, layer.name};
  if (layer.format == MARLIN_FORMAT_NONE && !layer.rearranged) {
    const std::vector<TensorView> parts = input.parts(index);
    const TensorView& values = parts[0];
    if ((layer.flags & MARLIN_LAYER_SPARSE_2_4) != 0) {
      MARLIN_ASSIGN(floats.decoded, with_zeros(values, parts[1], layer.n, layer.k));
      floats.matrix.data = floats.decoded.data();
      return floats;
    }
    floats.matrix.dtype = values.dtype;
    floats.matrix.data = values.data + values.bytes / layer.experts * expert;
    return floats;
  }
  MARLIN_ASSIGN(const auto source, input.source(index, expert, {}));
  floats.decoded.resize(static_cast<size_t>(layer.n) * static_cast<size_t>(layer.k));
  const int64_t rows = stripe_rows(layer.k);
  MARLIN_RETURN_IF_ERROR(
      run_tasks(host, static_cast<uint32_t>(ceil_div(layer.n, rows)), [&](uint32_t i) -> Status {
        const int64_t first = i * rows, count = std::min(rows, layer.n - first);
        Stripe stripe;
        MARLIN_RETURN_IF_ERROR(source->read(first, count, stripe));
        decode_rows(source->meta(), stripe, first, count, floats.decoded.data() + first * layer.k);
        return {};
      }));
  floats.matrix.data = floats.decoded.data();
  return floats;
}

int64_t requested_group(const Scheme& scheme, const ConvertOptions& options) {
  if (options.group_size != 0) return options.group_size;
  const FormatRow& row = *format_row(options.format);
  return !row.fixed_group && scheme.default_group != 0 ? scheme.default_group : row.default_group;
}

namespace {

/// A type of blocks says all; options that say something else contradict it.
Status check_type(const Scheme& scheme, const ConvertOptions& options, const GgufType& type) {
  if (!scheme.gguf) {
    return Status::error(MARLIN_E_ARGUMENT, "type: %s is a type of GGUF, and %s has none",
                         type.element.name, scheme.name);
  }
  if (options.group_size != 0 && options.group_size != type.block->group) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: GGUF's %s has groups of %" PRId64 ", found %" PRId64,
                         type.element.name, type.block->group, options.group_size);
  }
  if (!options.asymmetric) return {};
  return Status::error(
      MARLIN_E_ARGUMENT,
      "flags: ASYMMETRIC is given beside the type %s, which says what zeros it has",
      type.element.name);
}

}  // namespace

Result<WeightMeta> requested_meta(const Scheme& scheme, const ConvertOptions& options, size_t place,
                                  int64_t n, int64_t k) {
  WeightMeta meta;
  if (!options.types.empty() && options.types[place] != nullptr) {
    MARLIN_RETURN_IF_ERROR(check_type(scheme, options, *options.types[place]));
    meta = gguf_meta(*options.types[place], n, k);
  } else {
    const FormatRow* row = format_row(options.format);
    if (row == nullptr) {
      return Status::error(MARLIN_E_ARGUMENT,
                           "format: expected one to quantize floats to, found %d", options.format);
    }
    meta.format = options.format;
    meta.n = n;
    meta.k = k;
    MARLIN_ASSIGN(meta.group_size, resolve_group_size(*row, requested_group(scheme, options), k));
    meta.groups = ceil_div(meta.k, meta.group_size);
    meta.scale_type = row->default_type;
    meta.zero_kind = options.asymmetric ? ZeroKind::integer : ZeroKind::none;
    if (scheme.additive) {
      meta.zero_kind = ZeroKind::additive;
      meta.zero_type = meta.scale_type;
    }
  }
  meta.sparse = options.sparsity != Sparsity::as_given;
  MARLIN_RETURN_IF_ERROR(check_meta(meta));
  return meta;
}

Result<std::unique_ptr<WeightSource>> quantized_source(const LayerFloats& floats,
                                                       const WeightMeta& meta, size_t place,
                                                       const Scheme& scheme,
                                                       const ConvertOptions& options) {
  std::span<const float> norms;
  if (!options.column_norms.empty()) norms = options.column_norms[place];
  if (is_fitted(meta)) return make_fitted(floats.matrix, meta, norms);
  QuantizeOptions how;
  how.asymmetric = options.asymmetric;
  how.search_mse = options.search_mse;
  how.divide_tensor_scale = scheme.divides;
  how.sparse = {options.sparsity, norms};
  return make_quantized(floats.matrix, meta.format, meta.group_size, how);
}

Status encode_matrix(const LayerFloats& floats, const WeightSource& source, const Scheme& scheme,
                     Encoder& encoder, const TensorWriter& out, const ConvertHost& host,
                     const std::function<Status(int64_t)>& on_rows, QuantizeSums& sums) {
  const int64_t n = floats.matrix.n, rows = stripe_rows(floats.matrix.k);
  const uint32_t most = host.parallel_for != nullptr ? kBatch : 1;
  for (int64_t begin = 0; begin < n;) {
    const auto stripes = static_cast<uint32_t>(std::min<int64_t>(most, ceil_div(n - begin, rows)));
    std::vector<QuantizeSums> partial(stripes);
    MARLIN_RETURN_IF_ERROR(run_tasks(host, stripes, [&](uint32_t i) -> Status {
      const int64_t first = begin + i * rows, count = std::min(rows, n - first);
      Stripe stripe;
      MARLIN_RETURN_IF_ERROR(source.read(first, count, stripe));
      compare(floats.matrix, source.meta(), stripe, first, count, partial[i]);
      if (source.meta().sparse && !scheme.sparse) put_zeros(source.meta(), count, stripe);
      return encoder.encode(stripe, first, count, out);
    }));
    for (const QuantizeSums& p : partial) {  // in order, so that the sums do not depend on threads
      sums.squared_error += p.squared_error;
      sums.squared_norm += p.squared_norm;
      sums.kept_norm += p.kept_norm;
    }
    begin = std::min(n, begin + stripes * rows);
    MARLIN_RETURN_IF_ERROR(on_rows(begin));
  }
  return encoder.finish(out);
}

}  // namespace metal_marlin
