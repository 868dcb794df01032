#include "layouts/floats.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "formats/codecs.h"
#include "formats/format_table.h"
#include "formats/quantize.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {

namespace {

/// Floats as their own codes.
class FloatSource final : public WeightSource {
 public:
  FloatSource(TensorView values, WeightMeta meta) : values_(std::move(values)) {
    meta_ = std::move(meta);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const marlin_dtype to = float_dtype(meta_.format);
    const size_t bytes = static_cast<size_t>(meta_.k) * float_bytes(to);
    out.codes.resize(static_cast<size_t>(count) * bytes);
    out.scales.assign(static_cast<size_t>(count), kOne);
    out.zeros.clear();
    out.kept.clear();
    convert(first, count, to, out.codes.data());
    return {};
  }
  int64_t column_unit() const override { return 1; }
  void narrow(int64_t first, int64_t count) override {
    values_.data += static_cast<size_t>(first) * float_bytes(values_.dtype);
    narrow_columns(meta_, first, count);
  }

 private:
  static constexpr uint8_t kOne = 127;  // 2^0 in E8M0

  /// Rows as they are, or as those of another type, by way of float32.
  void convert(int64_t first, int64_t count, marlin_dtype to, uint8_t* codes) const noexcept {
    const auto width = static_cast<int64_t>(float_bytes(to)),
               width_here = static_cast<int64_t>(float_bytes(values_.dtype));
    std::array<float, 256> part;
    for (int64_t r = 0; r < count; ++r, codes += meta_.k * width) {
      const std::byte* const from = values_.data + (first + r) * values_.row_stride * width_here;
      if (values_.dtype == to) {
        std::memcpy(codes, from, static_cast<size_t>(meta_.k * width));
        continue;
      }
      for (int64_t k = 0; k < meta_.k; k += std::ssize(part)) {
        const int64_t some = std::min<int64_t>(std::ssize(part), meta_.k - k);
        decode_floats(values_.dtype, from + k * width_here, some, part.data());
        encode_floats(to, part.data(), some, codes + k * width);
      }
    }
  }

  TensorView values_;
};

marlin_format format_of(marlin_dtype dtype) {
  if (dtype == MARLIN_F32) return MARLIN_FORMAT_FLOAT32;
  return dtype == MARLIN_F16 ? MARLIN_FORMAT_FLOAT16 : MARLIN_FORMAT_BFLOAT16;
}

Result<std::unique_ptr<WeightSource>> keep_floats(const LayoutOperands& o,
                                                  const SourceOptions& options) {
  const marlin_format format =
      options.quantize_to != MARLIN_FORMAT_NONE ? options.quantize_to : format_of(o.values.dtype);
  if (present(o.sparse_meta) || options.sparse.sparsity != Sparsity::as_given) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "2:4 sparse floats are quantized, expected INT4, FP4, MXFP4, NVFP4 or INT8 "
                      "as the format, found %s",
                      format_name(format));
  }
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, o.k, true));
  WeightMeta meta;
  meta.format = format;
  meta.n = o.n;
  meta.k = meta.group_size = o.k;
  meta.groups = 1;
  meta.scale_type = ScaleType::e8m0;
  MARLIN_RETURN_IF_ERROR(check_meta(meta));
  return std::unique_ptr<WeightSource>(std::make_unique<FloatSource>(o.values, std::move(meta)));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> quantize_floats(const LayoutOperands& o,
                                                      const SourceOptions& options) {
  if (options.quantize_to == MARLIN_FORMAT_NONE || float_dtype(options.quantize_to) != 0)
    return keep_floats(o, options);
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
