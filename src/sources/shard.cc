#include "sources/shard.h"

#include <algorithm>
#include <cinttypes>
#include <vector>

#include "base/bits.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

class ShardSource final : public WeightSource {
 public:
  /// Takes groups [first_group, first_group + meta.groups) of each row.
  ShardSource(std::unique_ptr<WeightSource> source, WeightMeta meta, int64_t first_n,
              int64_t first_k, int64_t first_group)
      : source_(std::move(source)),
        first_n_(first_n),
        first_k_(first_k),
        first_group_(first_group) {
    meta_ = std::move(meta);
    warning_ = source_->warning();
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    MARLIN_RETURN_IF_ERROR(source_->read(first_n_ + first, count, out));
    const WeightMeta& whole = source_->meta();
    narrow(out.codes, count, whole.k, first_k_, meta_.k, format_row(meta_.format)->code_bytes());
    narrow(out.scales, count, whole.groups, first_group_, meta_.groups,
           scale_bytes(meta_.scale_type));
    if (meta_.zero_kind != ZeroKind::none) {
      const size_t size = meta_.zero_kind == ZeroKind::integer ? 1 : scale_bytes(meta_.zero_type);
      narrow(out.zeros, count, whole.groups, first_group_, meta_.groups, size);
    }
    const int64_t first_factor = first_k_ / kFactorSpan;
    if (meta_.has_two_level_scales())
      narrow(out.scale_factors, count, whole.factors(), first_factor, meta_.factors(),
             kFactorBytes);
    if (meta_.has_nested_scales())
      narrow(out.scale_factors, count, whole.groups, first_group_, meta_.groups, sizeof(float));
    if (meta_.has_two_level_zeros())
      narrow(out.zero_factors, count, whole.factors(), first_factor, meta_.factors(), kFactorBytes);
    if (meta_.sparse) narrow(out.kept, count, whole.k / 4, first_k_ / 4, meta_.k / 4, 1);
    return {};
  }

 private:
  /// Keeps `width` of the `from` elements of each row, moving rows down in place.
  static void narrow(std::vector<uint8_t>& data, int64_t rows, int64_t from, int64_t first,
                     int64_t width, size_t size) {
    if (from == width) return;
    for (int64_t r = 0; r < rows; ++r) {
      std::memmove(data.data() + static_cast<size_t>(r * width) * size,
                   data.data() + static_cast<size_t>(r * from + first) * size,
                   static_cast<size_t>(width) * size);
    }
    data.resize(static_cast<size_t>(rows * width) * size);
  }

  std::unique_ptr<WeightSource> source_;
  int64_t first_n_, first_k_, first_group_;
};

/// The groups of columns [first, first + count). They are renumbered from 0 if the cut is at the
/// beginning of a group; otherwise they keep their numbers.
Result<int64_t> shard_groups(int64_t first, int64_t count, const WeightMeta& whole,
                             WeightMeta& part) {
  if (!whole.group_index.empty()) {
    const auto begin = whole.group_index.begin() + first;
    part.group_index.assign(begin, begin + count);
    return 0;
  }
  if (whole.groups > 1 && first % whole.group_size != 0) {
    part.group_index.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      part.group_index[static_cast<size_t>(i)] =
          static_cast<int32_t>((first + i) / whole.group_size);
    }
    part.factor_groups = std::min<int64_t>(part.factor_groups, 1);
    return 0;
  }
  MARLIN_ASSIGN(part.group_size,
                resolve_group_size(*format_row(whole.format), whole.group_size, count));
  part.groups = ceil_div(count, part.group_size);
  const int64_t first_group = whole.groups > 1 ? first / whole.group_size : 0;
  narrow_factors(part, first_group);
  return first_group;
}

std::vector<TensorScale> shard_tensor_scales(const std::vector<TensorScale>& whole, int64_t first,
                                             int64_t count) {
  std::vector<TensorScale> part;
  for (const TensorScale& t : whole) {
    if (t.first_row >= first + count) break;
    if (t.first_row <= first) part.clear();  // covered by this one from the first row on
    part.push_back({std::max<int64_t>(t.first_row - first, 0), t.value, t.divide, t.divisor});
  }
  return part;
}

/// A border must lie at a multiple of `unit`, or at the end.
Status check_border(const char* why, int64_t unit, int64_t border, int64_t size) {
  if (border % unit == 0 || border == size) return {};
  const int64_t below = border / unit * unit;
  return Status::error(MARLIN_E_SHAPE,
                       "shard: %s: expected a border at %" PRId64 " or %" PRId64 ", found %" PRId64,
                       why, below, std::min(below + unit, size), border);
}

Status check_shard(const WeightMeta& whole, int64_t first_n, int64_t count_n, int64_t first_k,
                   int64_t count_k) {
  const auto inside = [](int64_t first, int64_t count, int64_t size) {
    return first >= 0 && count >= 1 && first < size && count <= size - first;
  };
  if (!inside(first_n, count_n, whole.n) || !inside(first_k, count_k, whole.k)) {
    return Status::error(MARLIN_E_SHAPE,
                         "shard: expected a part of [%" PRId64 ", %" PRId64 "], found rows %" PRId64
                         " + %" PRId64 ", columns %" PRId64 " + %" PRId64,
                         whole.n, whole.k, first_n, count_n, first_k, count_k);
  }
  for (const int64_t border : {first_n, first_n + count_n})
    if (whole.gate_up_interleaved)
      MARLIN_RETURN_IF_ERROR(
          check_border("gate and up rows alternate in pairs", 2, border, whole.n));
  if (whole.sparse) {
    MARLIN_RETURN_IF_ERROR(check_border("2:4 sparse columns begin with a block of 4 and a group",
                                        column_border(whole, 4), first_k, whole.k));
    MARLIN_RETURN_IF_ERROR(
        check_border("2:4 sparse columns end with a block of 4", 4, first_k + count_k, whole.k));
  }
  if (!whole.has_two_level_scales()) return {};
  MARLIN_RETURN_IF_ERROR(check_border("two-level scales share factors over 256 columns",
                                      kFactorSpan, first_k, whole.k));
  // Fewer columns than a group has become the group, which must divide those of a factor.
  if (count_k >= whole.group_size || kFactorSpan % count_k == 0) return {};
  return check_border("two-level scales are those of whole groups", whole.group_size,
                      first_k + count_k, whole.k);
}

/// Has the source read no more columns than it must. Returns where [first, first + count) begin in
/// what is left.
int64_t narrow_source(WeightSource& source, int64_t first, int64_t count) {
  const int64_t unit = source.column_unit(), k = source.meta().k;
  if (unit == 0 || count == k) return first;
  const int64_t border = column_border(source.meta(), unit);
  const int64_t begin = first / border * border, end = std::min(k, round_up(first + count, border));
  if (end - begin == k) return first;
  source.narrow(begin, end - begin);
  return first - begin;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> make_shard(std::unique_ptr<WeightSource> source,
                                                 int64_t first_n, int64_t count_n, int64_t first_k,
                                                 int64_t count_k) {
  MARLIN_RETURN_IF_ERROR(check_shard(source->meta(), first_n, count_n, first_k, count_k));
  first_k = narrow_source(*source, first_k, count_k);
  const WeightMeta& whole = source->meta();
  WeightMeta part = whole;
  part.n = count_n;
  part.k = count_k;
  MARLIN_ASSIGN(const int64_t first_group, shard_groups(first_k, count_k, whole, part));
  part.tensor_scales = shard_tensor_scales(whole.tensor_scales, first_n, count_n);
  MARLIN_RETURN_IF_ERROR(check_meta(part));
  return std::unique_ptr<WeightSource>(std::make_unique<ShardSource>(
      std::move(source), std::move(part), first_n, first_k, first_group));
}

}  // namespace metal_marlin
