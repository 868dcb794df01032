#include "layouts/operands.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/bits.h"
#include "formats/format_table.h"

namespace metal_marlin {

namespace {

Status absent(const TensorView& view) noexcept {
  return Status::error(MARLIN_E_ARGUMENT, "%.*s: expected this operand, found none",
                       static_cast<int>(std::min<size_t>(view.name.size(), 80)), view.name.data());
}

/// "a, b, c" of up to 60 bytes; what is longer is cut off.
class Words {
 public:
  void add(const char* word) noexcept {
    const int written = std::snprintf(text_ + length_, sizeof text_ - length_, "%s%s",
                                      length_ == 0 ? "" : ", ", word);
    length_ = std::min(length_ + static_cast<size_t>(written), sizeof text_ - 1);
  }
  void add(int64_t number) noexcept {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%" PRId64, number);
    add(digits);
  }
  const char* text() const noexcept { return text_; }

 private:
  char text_[61] = "";
  size_t length_ = 0;
};

/// Adds the name of the tensor to an error that the content of a file caused.
Status in_file(const TensorView& view, const Status& status) noexcept {
  return status.ok() || view.file.empty() ? status
                                          : view_error(view, status.code(), "%s", status.message());
}

}  // namespace

Status expect_shape(const TensorView& view, int64_t rows, int64_t cols, bool strided) noexcept {
  if (!present(view)) return absent(view);
  if (rows_of(view) != rows || cols_of(view) != cols) {
    Words found;
    for (const int64_t d : view.dims) found.add(d);
    return view_error(view, MARLIN_E_SHAPE, "expected [%" PRId64 ", %" PRId64 "], found [%s]", rows,
                      cols, found.text());
  }
  if (!strided && rows > 1 && view.row_stride != cols) {
    return view_error(view, MARLIN_E_UNSUPPORTED,
                      "row_stride: this layout takes contiguous rows of %" PRId64
                      ", found %" PRId64,
                      cols, view.row_stride);
  }
  return {};
}

namespace {
const char* name_of(marlin_dtype dtype) {
  const char* const name = dtype_name(dtype);
  return name != nullptr ? name : "unknown";
}
}  // namespace

Status expect_dtype(const TensorView& view, std::initializer_list<marlin_dtype> allowed) noexcept {
  if (!present(view)) return absent(view);
  if (std::find(allowed.begin(), allowed.end(), view.dtype) != allowed.end()) return {};
  Words names;
  for (const marlin_dtype dtype : allowed) names.add(name_of(dtype));
  const std::string_view found =
      view.type_name.empty() ? std::string_view(name_of(view.dtype)) : view.type_name;
  return view_error(view, MARLIN_E_UNSUPPORTED, "dtype: expected %s, found %.*s", names.text(),
                    static_cast<int>(std::min<size_t>(found.size(), 20)), found.data());
}

Result<ScaleType> float_type(const TensorView& view) noexcept {
  MARLIN_RETURN_IF_ERROR(expect_dtype(view, {MARLIN_F32, MARLIN_F16, MARLIN_BF16}));
  if (view.dtype == MARLIN_F32) return ScaleType::f32;
  return view.dtype == MARLIN_F16 ? ScaleType::f16 : ScaleType::bf16;
}

Status expect_absent(const TensorView& view) noexcept {
  return present(view) ? view_error(view, MARLIN_E_ARGUMENT, "expected none in this layout")
                       : Status();
}

namespace {

/// U8 scales mean the byte type of the format.
Result<ScaleType> scale_type(const LayoutOperands& o) noexcept {
  if (o.scales.dtype == 0 && !present(o.scales)) return absent(o.scales);
  if (o.scales.dtype == MARLIN_U8 &&
      (o.format == MARLIN_FORMAT_MXFP4 || o.format == MARLIN_FORMAT_FP8))
    return ScaleType::e8m0;
  if (o.scales.dtype == MARLIN_U8 && o.format == MARLIN_FORMAT_NVFP4) return ScaleType::e4m3;
  if (const auto type = scale_type_of(o.scales.dtype)) return *type;
  return view_error(o.scales, MARLIN_E_UNSUPPORTED, "dtype: expected a type of scales, found %s",
                    name_of(o.scales.dtype));
}

Result<std::vector<float>> read_codebook(const LayoutOperands& o) {
  std::vector<float> codebook;
  if (o.format != MARLIN_FORMAT_CODEBOOK4) {
    MARLIN_RETURN_IF_ERROR(expect_absent(o.codebook));
    return codebook;
  }
  MARLIN_RETURN_IF_ERROR(expect_shape(o.codebook, 1, 16));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.codebook, {MARLIN_F32}));
  codebook.resize(16);
  std::memcpy(codebook.data(), o.codebook.data, codebook.size() * sizeof codebook[0]);
  return codebook;
}

Result<std::vector<int32_t>> read_group_index(const LayoutOperands& o, int64_t groups) {
  std::vector<int32_t> index(static_cast<size_t>(o.k));
  for (size_t i = 0; i < index.size(); ++i) {
    index[i] = load<int32_t>(o.group_index.data + i * 4);
    if (index[i] < 0 || index[i] >= groups) {
      return view_error(o.group_index, MARLIN_E_FORMAT,
                        "entry %zu (byte %zu of it): expected 0..%" PRId64 ", found %d", i, i * 4,
                        groups - 1, index[i]);
    }
  }
  return index;
}

}  // namespace

Result<WeightMeta> begin_meta(const LayoutOperands& o, int64_t groups_in_scales, Depth depth) {
  const FormatRow* row = format_row(o.format);
  if (row == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "format: %d is none of this version", o.format);
  if (o.n < 1 || o.n > INT32_MAX || o.k < 1 || o.k > INT32_MAX) {
    return Status::error(
        MARLIN_E_SHAPE, "n, k: expected 1..2147483647 each, found %" PRId64 ", %" PRId64, o.n, o.k);
  }
  WeightMeta meta;
  meta.format = o.format;
  meta.n = o.n;
  meta.k = o.k;
  const auto group_size = resolve_group_size(*row, o.group_size, o.k);
  if (!group_size.ok()) return in_file(o.values, group_size.status());
  meta.group_size = group_size.value();
  meta.groups = ceil_div(o.k, meta.group_size);
  MARLIN_ASSIGN(meta.scale_type, scale_type(o));
  MARLIN_ASSIGN(meta.codebook, read_codebook(o));
  meta.gate_up_interleaved = (o.flags & MARLIN_PACK_GATE_UP_INTERLEAVED) != 0;
  if (present(o.sparse_meta)) {
    meta.sparse = true;
    MARLIN_RETURN_IF_ERROR(in_file(o.values, check_meta(meta)));  // shapes below rely on k % 4 == 0
  }
  if (present(o.group_index)) {
    MARLIN_RETURN_IF_ERROR(expect_shape(o.group_index, 1, o.k));
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.group_index, {MARLIN_I32}));
    if (depth == Depth::full) {
      MARLIN_ASSIGN(std::vector<int32_t> index, read_group_index(o, groups_in_scales));
      bool plain = groups_in_scales == meta.groups;
      for (int64_t k = 0; plain && k < o.k; ++k)
        plain = index[static_cast<size_t>(k)] == k / meta.group_size;
      if (!plain) meta.group_index = std::move(index);
    }
    // Without this condition, the shape of the scales would be compared with itself and not with k
    // and the group size.
    if (depth == Depth::header || !meta.group_index.empty()) meta.groups = groups_in_scales;
  }
  if (present(o.tensor_scale)) {
    MARLIN_RETURN_IF_ERROR(expect_shape(o.tensor_scale, 1, 1));
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.tensor_scale, {MARLIN_F32}));
    const float value = depth == Depth::full ? load<float>(o.tensor_scale.data) : 1.0f;
    // Writers compute it from the largest weight. For a matrix of zeros, this gives 0 or infinity,
    // and all its scales are then NaN.
    if (!std::isfinite(value) || value == 0) {
      return view_error(o.tensor_scale, MARLIN_E_FORMAT,
                        "expected a finite tensor scale other than 0, found %g",
                        static_cast<double>(value));
    }
    meta.tensor_scales = {{0, value, (o.flags & MARLIN_PACK_DIVIDE_SCALE) != 0}};
  }
  return meta;
}

Status check_source_meta(const WeightMeta& meta, const LayoutOperands& operands, Depth depth) {
  if (depth == Depth::full) return in_file(operands.values, check_meta(meta));
  WeightMeta without_index = meta;
  without_index.groups = ceil_div(meta.k, meta.group_size);
  return in_file(operands.values, check_meta(without_index));
}

namespace {

/// A matrix without a dimension of experts belongs to all of them, whatever its number of rows is.
void slice(TensorView& view, int64_t expert, int64_t experts, size_t rank) {
  if (!present(view) || view.dims.size() < rank || view.dims[0] != experts) return;
  view.bytes /= static_cast<uint64_t>(experts);
  view.data += static_cast<uint64_t>(expert) * view.bytes;
  view.file_offset += static_cast<uint64_t>(expert) * view.bytes;
  view.dims.erase(view.dims.begin());
}

}  // namespace

LayoutOperands expert_slice(const LayoutOperands& operands, int64_t expert, int64_t experts) {
  LayoutOperands one = operands;
  for (TensorView* view : {&one.values, &one.scales, &one.zeros, &one.sparse_meta})
    slice(*view, expert, experts, 3);
  slice(one.tensor_scale, expert, experts, 1);
  slice(one.group_index, expert, experts, 2);
  slice(one.nested.absmax, expert, experts, 2);
  return one;
}

}  // namespace metal_marlin
