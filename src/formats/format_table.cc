#include "formats/format_table.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <numeric>

#include "base/bits.h"

namespace metal_marlin {
namespace {

constexpr struct {
  ScaleType type;
  marlin_dtype dtype;
  const char* name;
} kScaleTypes[] = {
    {ScaleType::f32, MARLIN_F32, "F32"},     {ScaleType::f16, MARLIN_F16, "F16"},
    {ScaleType::bf16, MARLIN_BF16, "BF16"},  {ScaleType::e8m0, MARLIN_E8M0, "E8M0"},
    {ScaleType::e4m3, MARLIN_E4M3, "E4M3"},  {ScaleType::u4, MARLIN_F16, "U4 x F16"},
    {ScaleType::u6, MARLIN_F16, "U6 x F16"}, {ScaleType::s6, MARLIN_F16, "S6 x F16"},
    {ScaleType::s8, MARLIN_F16, "S8 x F16"}, {ScaleType::nested, MARLIN_F32, "nested F32"},
};

bool is_group_size(int64_t g, int64_t k) {
  return g == k || g == 16 || g == 32 || g == 64 || (g > 0 && g % 128 == 0);
}

Status check_group(const FormatRow& row, int64_t group_size, int64_t k) {
  if (row.fixed_group) {
    if (group_size == row.default_group || (group_size == k && k < row.default_group)) return {};
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: %s has groups of %" PRId64 ", found %" PRId64, row.name,
                         row.default_group, group_size);
  }
  if (is_group_size(group_size, k)) return {};
  return Status::error(
      MARLIN_E_UNSUPPORTED,
      "group_size: expected 16, 32, 64, a multiple of 128 or the whole row (%" PRId64
      "), found %" PRId64,
      k, group_size);
}

Status check_groups(const WeightMeta& meta, bool has_index) {
  if (!has_index) {
    const int64_t expected = ceil_div(meta.k, meta.group_size);
    if (meta.groups == expected) return {};
    return Status::error(MARLIN_E_SHAPE,
                         "scales: expected %" PRId64 " groups a row (k %" PRId64
                         ", group size %" PRId64 "), found %" PRId64,
                         expected, meta.k, meta.group_size, meta.groups);
  }
  if (meta.groups < 1 || meta.groups > INT32_MAX) {
    return Status::error(
        MARLIN_E_SHAPE, "scales: expected 1..2147483647 groups a row, found %" PRId64, meta.groups);
  }
  return {};
}

Status check_index(const WeightMeta& meta) {
  if (meta.group_index.empty()) return {};
  if (static_cast<int64_t>(meta.group_index.size()) != meta.k) {
    return Status::error(MARLIN_E_SHAPE, "group_index: expected k = %" PRId64 " entries, found %zu",
                         meta.k, meta.group_index.size());
  }
  for (size_t k = 0; k < meta.group_index.size(); ++k) {
    const int32_t g = meta.group_index[k];
    if (g < 0 || g >= meta.groups) {
      return Status::error(MARLIN_E_FORMAT, "group_index[%zu]: expected 0..%" PRId64 ", found %d",
                           k, meta.groups - 1, g);
    }
  }
  return {};
}

Status check_sparse(const FormatRow& row, const WeightMeta& meta, bool has_index) {
  if (!meta.sparse) return {};
  if (!row.has_sparse_form())
    return Status::error(MARLIN_E_UNSUPPORTED, "2:4 sparse: %s has no sparse form", row.name);
  if (meta.k % 4 != 0) {
    return Status::error(MARLIN_E_SHAPE, "k: 2:4 sparse rows are whole blocks of 4, found %" PRId64,
                         meta.k);
  }
  if (has_index) {
    return Status::error(
        MARLIN_E_UNSUPPORTED,
        "group_index: 2:4 sparse weights with a group index (act-order) are not served");
  }
  if (meta.has_two_level_scales()) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "scales: 2:4 sparse weights with two-level scales are not served");
  }
  return {};
}

Status check_two_level(const WeightMeta& meta, bool has_index) {
  if (meta.has_two_level_zeros() && !meta.has_two_level_scales()) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "zeros: two-level zeros need two-level scales, found %s",
                         scale_type_name(meta.scale_type));
  }
  if (!meta.has_two_level_scales()) return {};
  if (kFactorSpan % meta.group_size != 0) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: expected a divisor of %" PRId64
                         " for two-level scales, found %" PRId64,
                         kFactorSpan, meta.group_size);
  }
  if (!has_index) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "group_index: two-level scales with a group index are not served");
}

Status check_nested(const WeightMeta& meta) {
  const size_t expected = meta.has_nested_scales() ? kScaleMapEntries : 0;
  if (meta.scale_map.size() != expected) {
    return Status::error(MARLIN_E_ARGUMENT, "scales: %s scales take a map of %zu floats, found %zu",
                         scale_type_name(meta.scale_type), expected, meta.scale_map.size());
  }
  if (meta.has_nested_scales() ? meta.factor_groups >= 1 : meta.factor_groups == 0) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "scales: expected a factor for one or more groups of nested scales and none "
                       "of others, found one for %" PRId64 " of %s",
                       meta.factor_groups, scale_type_name(meta.scale_type));
}

Status check_codebook(const WeightMeta& meta) {
  const size_t expected = meta.format == MARLIN_FORMAT_CODEBOOK4 ? 16 : 0;
  if (meta.codebook.size() == expected) return {};
  return Status::error(MARLIN_E_ARGUMENT, "codebook: %s takes %zu floats, found %zu",
                       format_name(meta.format), expected, meta.codebook.size());
}

Status check_tensor_scales(const WeightMeta& meta) {
  if (meta.tensor_scales.empty()) return {};
  if (meta.zero_kind == ZeroKind::additive) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "tensor_scale: not served together with additive zeros");
  }
  if (format_row(meta.format)->has_codebook_of_floats()) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "tensor_scale: not served together with a codebook of floats");
  }
  int64_t previous = -1;
  for (size_t i = 0; i < meta.tensor_scales.size(); ++i) {
    const int64_t first = meta.tensor_scales[i].first_row;
    if ((i == 0 && first != 0) || first <= previous || first >= meta.n) {
      return Status::error(MARLIN_E_SHAPE,
                           "tensor_scale %zu: expected a first row %s and below n = %" PRId64
                           ", found %" PRId64,
                           i, i == 0 ? "0" : "above the one before", meta.n, first);
    }
    previous = first;
    if (meta.tensor_scales[i].divisor != 1 && meta.format != MARLIN_FORMAT_NVFP4) {
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "tensor_scale %zu: a factor with a divisor is served for NVFP4 only, "
                           "found %s",
                           i, format_name(meta.format));
    }
  }
  return {};
}

}  // namespace

std::span<const FormatRow> format_table() { return kFormatRows; }

marlin_format last_format() noexcept { return std::end(kFormatRows)[-1].format; }

const FormatRow* format_row(marlin_format format) noexcept {
  return format >= 1 && format <= last_format() ? &kFormatRows[format - 1] : nullptr;
}

const char* format_name(marlin_format format) noexcept {
  const FormatRow* row = format_row(format);
  return row != nullptr ? row->name : "unknown";
}

marlin_dtype float_dtype(marlin_format format) noexcept {
  switch (format) {
    case MARLIN_FORMAT_FLOAT32:
      return MARLIN_F32;
    case MARLIN_FORMAT_FLOAT16:
      return MARLIN_F16;
    case MARLIN_FORMAT_BFLOAT16:
      return MARLIN_BF16;
    default:
      return 0;
  }
}

const char* scale_type_name(ScaleType type) noexcept {
  return kScaleTypes[static_cast<size_t>(type)].name;
}

marlin_dtype scale_dtype(ScaleType type) noexcept {
  return kScaleTypes[static_cast<size_t>(type)].dtype;
}

std::optional<ScaleType> scale_type_of(marlin_dtype dtype) noexcept {
  for (const auto& row : kScaleTypes) {
    if (row.dtype == dtype && row.type <= ScaleType::e4m3) return row.type;
  }
  return std::nullopt;
}

int64_t column_border(const WeightMeta& meta, int64_t unit) noexcept {
  if (meta.has_two_level_scales()) unit = std::lcm(unit, kFactorSpan);
  if (meta.sparse) unit = std::lcm(unit, int64_t{4});
  if (meta.group_index.empty() && meta.groups > 1) unit = std::lcm(unit, meta.group_size);
  return unit;
}

void narrow_factors(WeightMeta& meta, int64_t first_group) {
  if (meta.has_nested_scales()) meta.factor_groups = std::gcd(meta.factor_groups, first_group);
}

int64_t narrow_columns(WeightMeta& meta, int64_t first, int64_t count) {
  meta.k = count;
  if (!meta.group_index.empty()) {
    const auto begin = meta.group_index.begin() + first;
    meta.group_index = std::vector<int32_t>(begin, begin + count);
    return 0;
  }
  const int64_t first_group = meta.groups > 1 ? first / meta.group_size : 0;
  narrow_factors(meta, first_group);
  if (!format_row(meta.format)->fixed_group) meta.group_size = std::min(meta.group_size, count);
  meta.groups = ceil_div(count, meta.group_size);
  return first_group;
}

uint32_t layer_flags(const WeightMeta& meta) noexcept {
  uint32_t flags = 0;
  if (meta.zero_kind == ZeroKind::additive) flags |= MARLIN_PACK_ADDITIVE_ZEROS;
  if (meta.has_two_level_scales()) flags |= MARLIN_PACK_TWO_LEVEL_SCALES;
  if (meta.zero_kind == ZeroKind::integer) flags |= MARLIN_LAYER_ZEROS;
  if (!meta.group_index.empty()) flags |= MARLIN_LAYER_ACT_ORDER;
  if (meta.sparse) flags |= MARLIN_LAYER_SPARSE_2_4;
  if (meta.gate_up_interleaved) flags |= MARLIN_PACK_GATE_UP_INTERLEAVED;
  for (const TensorScale& scale : meta.tensor_scales)
    if (scale.divide) flags |= MARLIN_PACK_DIVIDE_SCALE;
  return flags;
}

Result<int64_t> resolve_group_size(const FormatRow& row, int64_t requested, int64_t k) noexcept {
  int64_t size = requested == 0 ? row.default_group : requested;
  if (row.fixed_group && size >= k && k < row.default_group) size = row.default_group;
  if (!row.fixed_group && size >= k) size = k;
  MARLIN_RETURN_IF_ERROR(check_group(row, size, k));
  return size;
}

Status check_meta_but_index(const WeightMeta& meta, bool has_index) noexcept {
  const FormatRow* row = format_row(meta.format);
  if (row == nullptr)
    return Status::error(MARLIN_E_ARGUMENT, "format: %d is none of this version", meta.format);
  if (meta.n < 1 || meta.n > INT32_MAX || meta.k < 1 || meta.k > INT32_MAX) {
    return Status::error(MARLIN_E_SHAPE,
                         "n, k: expected 1..2147483647 each, found %" PRId64 ", %" PRId64, meta.n,
                         meta.k);
  }
  if (meta.gate_up_interleaved && meta.n % 2 != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "n: interleaved gate and up rows come in pairs, found %" PRId64 " rows",
                         meta.n);
  }
  if (!row->allows(meta.scale_type)) {
    return Status::error(MARLIN_E_UNSUPPORTED, "scales: %s does not take %s scales", row->name,
                         scale_type_name(meta.scale_type));
  }
  if (!row->allows(meta.zero_kind)) {
    return Status::error(
        MARLIN_E_UNSUPPORTED, "zeros: %s does not take %s", row->name,
        meta.zero_kind == ZeroKind::integer ? "integer zero points" : "additive zeros");
  }
  if (meta.zero_kind == ZeroKind::additive &&
      (format_rows::kAdditiveZeros & row->scale_types & format_rows::bit(meta.zero_type)) == 0) {
    return Status::error(MARLIN_E_UNSUPPORTED, "zeros: additive zeros of %s are not %s", row->name,
                         scale_type_name(meta.zero_type));
  }
  MARLIN_RETURN_IF_ERROR(check_codebook(meta));
  MARLIN_RETURN_IF_ERROR(check_two_level(meta, has_index));
  MARLIN_RETURN_IF_ERROR(check_nested(meta));
  MARLIN_RETURN_IF_ERROR(check_group(*row, meta.group_size, meta.k));
  MARLIN_RETURN_IF_ERROR(check_groups(meta, has_index));
  MARLIN_RETURN_IF_ERROR(check_sparse(*row, meta, has_index));
  return check_tensor_scales(meta);
}

Status check_meta(const WeightMeta& meta) noexcept {
  MARLIN_RETURN_IF_ERROR(check_meta_but_index(meta, !meta.group_index.empty()));
  return check_index(meta);
}

}  // namespace metal_marlin
