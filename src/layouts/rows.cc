// ROWS: 4 bits: [N, ceil(K / 2)] bytes, low nibble = even k; other widths: a byte for each code,
// whose upper bits do not matter, [N, K]; 2:4 sparse: [N, K / 4] and metadata. Scales and zeros are
// [N, groups].
#include <algorithm>
#include <string>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/layout_table.h"
#include "layouts/nibbles.h"
#include "layouts/rows.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {
namespace {

class RowsSource final : public WeightSource {
 public:
  explicit RowsSource(RowsOperands parts) : parts_(std::move(parts)) { meta_ = parts_.meta; }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    if (meta_.sparse) {
      MARLIN_RETURN_IF_ERROR(read_kept(first, count, out));
    } else {
      read_codes(first, count, out.codes);
      out.kept.clear();
    }
    read_scales(first, count, out.scales);
    read_zeros(first, count, out.zeros);
    return {};
  }

  int64_t column_unit() const override {
    if (parts_.zero_form == ZeroForm::words_along_k) return 8 * meta_.group_size;
    if (meta_.sparse) return 16;
    if (parts_.code_form == CodeForm::padded_words)
      return int64_t{32} / format_row(meta_.format)->code_bits;
    return 8;
  }
  void narrow(int64_t first, int64_t count) override {
    const int bits = format_row(meta_.format)->code_bits;
    if (parts_.code_form == CodeForm::padded_words)
      parts_.codes += first / column_unit() * 4;
    else
      parts_.codes += first * bits / 8 / (meta_.sparse ? 2 : 1);
    if (meta_.sparse)
      parts_.sparse_meta.data += first / (parts_.sparse_meta.dtype == MARLIN_U8 ? 8 : 16) *
                                 (parts_.sparse_meta.dtype == MARLIN_U8 ? 1 : 2);
    const int64_t group = narrow_columns(meta_, first, count);
    const auto size = static_cast<int64_t>(scale_bytes(meta_.scale_type));
    parts_.scales += group * (parts_.scale_meaning == nullptr ? size : 1);
    if (meta_.zero_kind == ZeroKind::none) return;
    if (parts_.zero_form == ZeroForm::words_along_n)
      parts_.zeros += 4 * group;
    else if (parts_.zero_form == ZeroForm::words_along_k)
      parts_.zeros += group / 2;
    else if (meta_.zero_kind == ZeroKind::integer)
      parts_.zeros += group;
    else
      parts_.zeros += group * static_cast<int64_t>(scale_bytes(meta_.zero_type));
  }

 private:
  void read_codes(int64_t first, int64_t count, std::vector<uint8_t>& out) const {
    out.resize(static_cast<size_t>(count * meta_.k));
    const int bits = format_row(meta_.format)->code_bits;
    const auto mask = static_cast<uint8_t>((1 << bits) - 1);
    for (int64_t r = 0; r < count; ++r) {
      const std::byte* from = parts_.codes + (first + r) * parts_.code_stride;
      uint8_t* to = out.data() + r * meta_.k;
      if (bits == 4) {
        unpack_nibbles(from, meta_.k, to);
      } else if (parts_.code_form == CodeForm::stream) {
        unpack_stream(from, bits, meta_.k, to);
      } else if (parts_.code_form == CodeForm::padded_words) {
        unpack_padded_words(from, bits, meta_.k, to);
      } else {
        for (int64_t i = 0; i < meta_.k; ++i) to[i] = std::to_integer<uint8_t>(from[i]) & mask;
      }
    }
    if (!parts_.flips_sign) return;
    for (uint8_t& code : out) code ^= 0x80u;
  }

  Status read_kept(int64_t first, int64_t count, Stripe& out) const {
    const int64_t blocks = meta_.k / 4;
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    out.kept.resize(static_cast<size_t>(count * blocks));
    std::vector<uint8_t> codes(static_cast<size_t>(meta_.k / 2));
    for (int64_t r = 0; r < count; ++r) {
      uint8_t* kept = out.kept.data() + r * blocks;
      MARLIN_RETURN_IF_ERROR(read_row_meta(parts_.sparse_meta, first + r, meta_.k, kept));
      unpack_nibbles(parts_.codes + (first + r) * parts_.code_stride, meta_.k / 2, codes.data());
      spread_kept(codes.data(), kept, blocks, out.codes.data() + r * meta_.k);
    }
    return {};
  }

  void read_scales(int64_t first, int64_t count, std::vector<uint8_t>& out) const {
    const size_t row = static_cast<size_t>(meta_.groups) * scale_bytes(meta_.scale_type);
    out.resize(static_cast<size_t>(count) * row);
    for (int64_t r = 0; r < count; ++r) {
      const std::byte* from = parts_.scales + (first + r) / parts_.scale_rows * parts_.scale_stride;
      uint8_t* to = out.data() + static_cast<size_t>(r) * row;
      if (parts_.scale_meaning == nullptr) {
        std::memcpy(to, from, row);
      } else {
        for (int64_t g = 0; g < meta_.groups; ++g) {
          store(to + 2 * g, (*parts_.scale_meaning)[std::to_integer<uint8_t>(from[g])]);
        }
      }
    }
  }

  void read_zeros(int64_t first, int64_t count, std::vector<uint8_t>& out) const {
    if (meta_.zero_kind == ZeroKind::none) return out.clear();
    const size_t size = meta_.zero_kind == ZeroKind::integer ? 1 : scale_bytes(meta_.zero_type);
    const size_t row = static_cast<size_t>(meta_.groups) * size;
    const int bits = format_row(meta_.format)->code_bits;
    out.resize(static_cast<size_t>(count) * row);
    for (int64_t r = 0; r < count; ++r) {
      uint8_t* to = out.data() + static_cast<size_t>(r) * row;
      const int64_t n = first + r;
      switch (parts_.zero_form) {
        case ZeroForm::plain:
          std::memcpy(to, parts_.zeros + n * parts_.zero_stride, row);
          if (parts_.flips_sign && meta_.zero_kind == ZeroKind::integer)
            for (size_t g = 0; g < row; ++g) to[g] ^= 0x80u;
          break;
        case ZeroForm::words_along_n:
          for (int64_t g = 0; g < meta_.groups; ++g) to[g] = zero_in_column(bits, g, n);
          break;
        case ZeroForm::words_along_k:
          unpack_nibbles(parts_.zeros + n * parts_.zero_stride, meta_.groups, to);
      }
    }
  }

  /// Zero n of the column of words of group g.
  uint8_t zero_in_column(int bits, int64_t g, int64_t n) const {
    const auto word = [&](int64_t index) {
      return load<uint32_t>(parts_.zeros + index * parts_.zero_stride + 4 * g);
    };
    if (parts_.code_form != CodeForm::padded_words)
      return static_cast<uint8_t>(code_of_stream(word, bits, n));
    const int64_t each = 32 / bits;
    return static_cast<uint8_t>(word(n / each) >> n % each * bits & ((1u << bits) - 1));
  }

  RowsOperands parts_;
};

/// Checks shape and dtype of the codes and returns the bytes between rows.
Result<int64_t> check_codes(const LayoutOperands& o, int code_bits, CodeForm form) {
  const TensorView& v = o.values;
  const int64_t k = present(o.sparse_meta) ? o.k / 2 : o.k;
  if (form == CodeForm::stream && code_bits != 4) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(v, {MARLIN_U8}));
    MARLIN_RETURN_IF_ERROR(expect_shape(v, o.n, ceil_div(o.k * code_bits, 8), true));
    return v.row_stride;
  }
  if (code_bits != 4) {
    if (o.format == MARLIN_FORMAT_FP8)
      MARLIN_RETURN_IF_ERROR(expect_dtype(v, {MARLIN_E4M3, MARLIN_U8}));
    else if (o.format == MARLIN_FORMAT_UINT8)
      MARLIN_RETURN_IF_ERROR(expect_dtype(v, {MARLIN_U8, MARLIN_I8}));
    else
      MARLIN_RETURN_IF_ERROR(
          expect_dtype(v, {o.format == MARLIN_FORMAT_INT8 ? MARLIN_I8 : MARLIN_U8}));
    MARLIN_RETURN_IF_ERROR(expect_shape(v, o.n, o.k, true));
    return v.row_stride;
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(v, {MARLIN_U8, MARLIN_U4}));
  if (v.dtype == MARLIN_U8) {
    MARLIN_RETURN_IF_ERROR(expect_shape(v, o.n, ceil_div(k, 2), true));
    return v.row_stride;
  }
  MARLIN_RETURN_IF_ERROR(expect_shape(v, o.n, round_up(k, 2), true));
  if (v.row_stride % 2 != 0) {
    return view_error(v, MARLIN_E_ARGUMENT,
                      "row_stride: expected whole bytes of U4, found %lld nibbles",
                      static_cast<long long>(v.row_stride));
  }
  return v.row_stride / 2;
}

Status check_zeros(const LayoutOperands& o, Depth depth, RowsOperands& parts) {
  const TensorView& v = o.zeros;
  WeightMeta& meta = parts.meta;
  const bool additive = (o.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0;
  if (!present(v)) {
    if (!additive) return {};
    return Status::error(MARLIN_E_ARGUMENT, "zeros: the flags promise additive zeros, found none");
  }
  MARLIN_RETURN_IF_ERROR(expect_shape(v, meta.n, meta.groups, true));
  parts.zeros = v.data;
  if (additive) {
    meta.zero_kind = ZeroKind::additive;
    MARLIN_ASSIGN(meta.zero_type, float_type(v));
    parts.zero_stride = v.row_stride * static_cast<int64_t>(scale_bytes(meta.zero_type));
    return {};
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(v, {parts.flips_sign ? MARLIN_I8 : MARLIN_U8}));
  meta.zero_kind = ZeroKind::integer;
  parts.zero_stride = v.row_stride;
  const int most = (1 << format_row(meta.format)->code_bits) - 1;
  for (int64_t n = 0; depth == Depth::full && n < meta.n; ++n) {
    const std::byte* row = v.data + n * v.row_stride;
    const std::byte* bad = std::find_if(
        row, row + meta.groups, [&](std::byte z) { return std::to_integer<int>(z) > most; });
    if (bad != row + meta.groups) {
      return view_error(v, MARLIN_E_FORMAT, "row %lld, group %td: expected 0..%d, found %d",
                        static_cast<long long>(n), bad - row, most, std::to_integer<int>(*bad));
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<WeightSource> make_rows_source(RowsOperands parts) {
  return std::make_unique<RowsSource>(std::move(parts));
}

Result<RowsOperands> check_rows(const LayoutOperands& o, Depth depth, CodeForm form) {
  RowsOperands parts;
  parts.code_form = form;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, cols_of(o.scales), depth));
  if (parts.meta.sparse) {
    MARLIN_RETURN_IF_ERROR(check_row_meta(o.sparse_meta, o.n, o.k));
    parts.sparse_meta = o.sparse_meta;
  }
  MARLIN_ASSIGN(parts.code_stride, check_codes(o, format_row(o.format)->code_bits, form));
  parts.flips_sign = o.format == MARLIN_FORMAT_UINT8 && o.values.dtype == MARLIN_I8;
  MARLIN_RETURN_IF_ERROR(
      expect_shape(o.scales, ceil_div(o.n, o.scale_rows), parts.meta.groups, true));
  parts.scale_rows = o.scale_rows;
  parts.codes = o.values.data;
  parts.scales = o.scales.data;
  parts.scale_stride =
      o.scales.row_stride * static_cast<int64_t>(scale_bytes(parts.meta.scale_type));
  MARLIN_RETURN_IF_ERROR(check_zeros(o, depth, parts));
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  if (parts.meta.sparse && depth == Depth::full) {
    MARLIN_RETURN_IF_ERROR(check_all_kept(parts.meta, [&](int64_t n, uint8_t* kept) {
      return read_row_meta(parts.sparse_meta, n, parts.meta.k, kept);
    }));
  }
  return parts;
}

Result<std::unique_ptr<WeightSource>> read_rows(const LayoutOperands& operands, Depth depth) {
  MARLIN_ASSIGN(RowsOperands parts, check_rows(operands, depth));
  return make_rows_source(std::move(parts));
}

}  // namespace metal_marlin
