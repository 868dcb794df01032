#include "layouts/awq_gemv.h"

#include <algorithm>
#include <cinttypes>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/columns.h"
#include "layouts/layout_table.h"
#include "layouts/nibbles.h"
#include "layouts/rows.h"

namespace metal_marlin {
namespace {

/// The checks that both layouts share.
Result<WeightMeta> begin_gemv(const LayoutOperands& o, Depth depth) {
  MARLIN_ASSIGN(WeightMeta meta, begin_meta(o, 0, depth));
  if (!awq_gemv_groups(o.k, meta.group_size)) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "group_size: AWQ \"gemv\" has 32, 64, multiples of 128 or the row, and they "
                      "divide k = %" PRId64 "; found %" PRId64,
                      o.k, meta.group_size);
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16, MARLIN_F32}));
  return meta;
}

struct GemvFastOperands {
  WeightMeta meta;
  const std::byte *units = nullptr, *scales = nullptr, *zeros = nullptr;
};

class GemvFastSource final : public WeightSource {
 public:
  explicit GemvFastSource(GemvFastOperands parts)
      : parts_(std::move(parts)), file_k_(parts_.meta.k) {
    meta_ = parts_.meta;
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    for (int64_t r = 0; r < count; ++r) read_row(first + r, out.codes.data() + r * meta_.k);
    gather_columns(parts_.scales, meta_.n, scale_bytes(meta_.scale_type), meta_.groups, first,
                   count, out.scales);
    gather_columns(parts_.zeros, meta_.n, scale_bytes(meta_.zero_type), meta_.groups, first, count,
                   out.zeros);
    return {};
  }
  int64_t column_unit() const override { return 64; }
  void narrow(int64_t first, int64_t count) override {
    parts_.units += first * 2;
    const int64_t group = narrow_columns(meta_, first, count);
    parts_.scales += group * meta_.n * static_cast<int64_t>(scale_bytes(meta_.scale_type));
    parts_.zeros += group * meta_.n * static_cast<int64_t>(scale_bytes(meta_.zero_type));
  }

 private:
  /// The stream holds 64 codes of each of four rows in turn. Among 32 codes, nibble 8 i + j of the
  /// stream is element 8 (j % 4) + 2 i + j / 4.
  void read_row(int64_t n, uint8_t* to) const {
    const std::byte* from = parts_.units + (n / 4 * file_k_ + n % 4 * 16) * 2;
    for (int64_t k = 0; k < meta_.k; k += 32) {
      const std::byte* half = from + (k / 64 * 64 + k % 64 / 4) * 2;
      for (int64_t i = 0; i < 4; ++i) {
        const uint64_t codes = spread_nibbles(load<uint32_t>(half + 4 * i));
        for (int64_t j = 0; j < 8; ++j)
          to[k + 8 * (j % 4) + 2 * i + j / 4] = static_cast<uint8_t>(codes >> 8 * j);
      }
    }
  }

  GemvFastOperands parts_;
  int64_t file_k_;  // of a row in the file
};

}  // namespace

std::optional<int64_t> awq_gemv_groups(int64_t k, int64_t group_size) {
  if (group_size < 1 || k % group_size != 0) return std::nullopt;
  if (group_size != 32 && group_size != 64 && group_size < 128) return std::nullopt;
  const int64_t multiple = 128 / std::min<int64_t>(group_size, 128);
  return round_up(ceil_div(k / group_size, 8), multiple) * 8;
}

Result<std::unique_ptr<WeightSource>> read_awq_gemv(const LayoutOperands& o, Depth depth) {
  RowsOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_gemv(o, depth));
  if (o.k % 8 != 0)
    return view_error(o.values, MARLIN_E_SHAPE, "k: expected a multiple of 8, found %" PRId64, o.k);
  // begin_gemv() has seen that there is a value.
  const int64_t padded = awq_gemv_groups(o.k, parts.meta.group_size).value_or(0);
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, o.k / 8));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, o.n, padded));
  parts.codes = o.values.data;
  parts.code_stride = o.k / 2;
  parts.scales = o.scales.data;
  parts.scale_stride = padded * static_cast<int64_t>(scale_bytes(parts.meta.scale_type));
  if (present(o.zeros)) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_I32, MARLIN_U32}));
    MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, o.n, padded / 8));
    parts.meta.zero_kind = ZeroKind::integer;
    parts.zeros = o.zeros.data;
    parts.zero_stride = padded / 2;
    parts.zero_form = ZeroForm::words_along_k;
  }
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  return make_rows_source(std::move(parts));
}

Result<std::unique_ptr<WeightSource>> read_awq_gemv_fast(const LayoutOperands& o, Depth depth) {
  GemvFastOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_gemv(o, depth));
  if (o.n % 4 != 0 || o.k % 64 != 0) {
    return view_error(o.values, MARLIN_E_SHAPE,
                      "n, k: expected multiples of 4 and 64 (a block), found %" PRId64 ", %" PRId64,
                      o.n, o.k);
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I16}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n / 4, o.k));
  // llm-awq has written scales with and without the padding.
  // begin_gemv() has seen that there is a value.
  const int64_t padded = awq_gemv_groups(o.k, parts.meta.group_size).value_or(0);
  const int64_t rows = rows_of(o.scales) == parts.meta.groups ? parts.meta.groups : padded;
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, rows, o.n));
  MARLIN_ASSIGN(parts.meta.zero_type, float_type(o.zeros));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, rows, o.n));
  parts.meta.zero_kind = ZeroKind::additive;
  parts.units = o.values.data;
  parts.scales = o.scales.data;
  parts.zeros = o.zeros.data;
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  return std::unique_ptr<WeightSource>(std::make_unique<GemvFastSource>(std::move(parts)));
}

}  // namespace metal_marlin
