// Functions of the table of formats (format_rows.h): looking rows up, and the rules that weights
// keep.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "formats/format_rows.h"
#include "formats/weights.h"

namespace metal_marlin {

/// All rows, in the order of their numbers.
std::span<const FormatRow> format_table();
/// The largest of their numbers.
marlin_format last_format() noexcept;
/// Null for a number that is no format (MARLIN_FORMAT_NONE too).
const FormatRow* format_row(marlin_format format) noexcept;
/// The format's name, or "unknown"; for messages.
const char* format_name(marlin_format format) noexcept;

/// The dtype of a format whose codes are the floats themselves, or 0.
marlin_dtype float_dtype(marlin_format format) noexcept;

/// "F16", ...; and conversions between ScaleType and marlin_dtype. The dtype of two-level scales is
/// that of their factors, F16. U8 is not a scale type: the caller must know whether
/// it means E8M0.
const char* scale_type_name(ScaleType type) noexcept;
marlin_dtype scale_dtype(ScaleType type) noexcept;
std::optional<ScaleType> scale_type_of(marlin_dtype dtype) noexcept;

/// What marlin_layer_info::flags says of such a matrix.
uint32_t layer_flags(const WeightMeta& meta) noexcept;

/// The columns that share something in a source of this meta: a multiple of its column_unit().
int64_t column_border(const WeightMeta& meta, int64_t unit) noexcept;
/// Makes `meta` that of columns [first, first + count), which begin at a column_border(). Returns
/// the first of their groups; it is 0 with a group index, which keeps its numbers.
int64_t narrow_columns(WeightMeta& meta, int64_t first, int64_t count);

/// Makes the runs of groups that share a factor of nested scales those of a part that begins with
/// this group: each of them lies in one run of the whole.
void narrow_factors(WeightMeta& meta, int64_t first_group);

/// The group size that a request means for rows of k (>= 1) elements: 0 means the default of the
/// format, and >= k means the whole row. A size is 16, 32, 64, 128, another multiple of 128, or the
/// row; any other size is MARLIN_E_UNSUPPORTED. A format with a fixed group takes no other size.
Result<int64_t> resolve_group_size(const FormatRow& row, int64_t requested, int64_t k) noexcept;

/// Checks everything that code may rely on in a WeightMeta. Code that makes a WeightMeta calls this
/// function before it reads or allocates anything by it.
/// - The format is in the table. n and k are in 1..2^31-1. With gate_up_interleaved, n is even.
/// - group_size is as in resolve_group_size (a fixed group may exceed k). groups = ceil(k /
///   group_size); with a group_index, groups is in 1..2^31-1, and the index has k entries inside
///   [0, groups).
/// - The format allows the type of the scales and the kind and type of the zeros. Tensor scales
///   begin at row 0 and ascend inside [0, n).
/// - With two-level scales, groups divide the span of a factor (256), and there is no group_index.
///   Additive zeros are two-level only beside two-level scales.
/// - With nested scales, scale_map has 256 floats, and factor_groups is at least 1. Others have
///   none of both.
/// - With sparse, the format has 4-bit codes, k is a multiple of 4, the scales are not two-level,
///   and there is no group_index.
/// - There is no tensor scale together with additive zeros or a codebook of floats: no file has
///   both, and decode_value could not round once.
/// - CODEBOOK4 has a codebook of 16 floats, and no other format has one in its meta.
Status check_meta(const WeightMeta& meta) noexcept;
/// The same for a meta whose group index, if it has one, lies elsewhere: all but its entries.
Status check_meta_but_index(const WeightMeta& meta, bool has_index) noexcept;

}  // namespace metal_marlin
