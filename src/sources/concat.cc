#include "sources/concat.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <numeric>
#include <optional>

#include "formats/codecs.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

/// For the rare matrix whose scale bytes have a nonstandard meaning, importers return 16-bit floats
/// instead of bytes. Such a matrix can still be joined with its neighbors, because these floats
/// hold every value of the byte type.
std::optional<ScaleType> common_scale_type(ScaleType a, ScaleType b) {
  const auto pair = [&](ScaleType x, ScaleType y) {
    return (a == x && b == y) || (a == y && b == x);
  };
  if (a == b) return a;
  if (pair(ScaleType::e4m3, ScaleType::f16)) return ScaleType::f16;
  if (pair(ScaleType::e8m0, ScaleType::bf16)) return ScaleType::bf16;
  return std::nullopt;
}

/// Bits are compared, because a NaN does not equal itself.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

class ConcatSource final : public WeightSource {
 public:
  ConcatSource(std::vector<std::unique_ptr<WeightSource>> parts, WeightMeta meta)
      : parts_(std::move(parts)) {
    meta_ = std::move(meta);
    int64_t row = 0;
    for (const auto& part : parts_) {
      first_.push_back(row);
      row += part->meta().n;
    }
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    size_t at = static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), first) -
                                    first_.begin()) -
                1;
    MARLIN_ASSIGN(int64_t done, read_part(at, first, count, out));
    Stripe more;
    while (done < count) {
      MARLIN_ASSIGN(const int64_t rows, read_part(++at, first + done, count - done, more));
      out.codes.insert(out.codes.end(), more.codes.begin(), more.codes.end());
      out.scales.insert(out.scales.end(), more.scales.begin(), more.scales.end());
      out.zeros.insert(out.zeros.end(), more.zeros.begin(), more.zeros.end());
      out.kept.insert(out.kept.end(), more.kept.begin(), more.kept.end());
      out.scale_factors.insert(out.scale_factors.end(), more.scale_factors.begin(),
                               more.scale_factors.end());
      out.zero_factors.insert(out.zero_factors.end(), more.zero_factors.begin(),
                              more.zero_factors.end());
      out.scale_offsets.insert(out.scale_offsets.end(), more.scale_offsets.begin(),
                               more.scale_offsets.end());
      done += rows;
    }
    return {};
  }

 private:
  /// Reads as many of these rows from one part as the part has.
  Result<int64_t> read_part(size_t at, int64_t first, int64_t count, Stripe& out) const {
    const WeightSource& part = *parts_[at];
    const int64_t row = first - first_[at], rows = std::min(count, part.meta().n - row);
    MARLIN_RETURN_IF_ERROR(part.read(row, rows, out));
    if (part.meta().scale_type != meta_.scale_type)
      widen_scales(part.meta().scale_type, out.scales);
    return rows;
  }

  /// Turns bytes into 16-bit floats.
  void widen_scales(ScaleType from, std::vector<uint8_t>& scales) const {
    std::vector<uint8_t> wide(scales.size() * 2);
    for (size_t i = 0; i < scales.size(); ++i) {
      const float value = decode_scale(from, scales.data() + i);
      encode_floats(scale_dtype(meta_.scale_type), &value, 1, wide.data() + 2 * i);
    }
    scales = std::move(wide);
  }

  std::vector<std::unique_ptr<WeightSource>> parts_;
  std::vector<int64_t> first_;  // rows
};

/// Merges harmless differences into `meta`, which comes from the first part. A difference in a
/// property that must be the same is an error. `one` is "part" or "expert".
Status merge(const WeightMeta& part, const char* one, size_t index, WeightMeta& meta) {
  const auto must_agree = [&](const char* what, int64_t expected, int64_t found) {
    if (expected == found) return Status();
    return Status::error(MARLIN_E_SHAPE,
                         "%s %zu: %s: expected %" PRId64 " as in %s 0, found %" PRId64, one, index,
                         what, expected, one, found);
  };
  if (part.format != meta.format) {
    return Status::error(MARLIN_E_SHAPE, "%s %zu: format: expected %s as in %s 0, found %s", one,
                         index, format_name(meta.format), one, format_name(part.format));
  }
  MARLIN_RETURN_IF_ERROR(must_agree("k", meta.k, part.k));
  MARLIN_RETURN_IF_ERROR(must_agree("group_size", meta.group_size, part.group_size));
  MARLIN_RETURN_IF_ERROR(must_agree("groups a row", meta.groups, part.groups));
  const auto type = common_scale_type(meta.scale_type, part.scale_type);
  if (!type) {
    return Status::error(MARLIN_E_SHAPE, "%s %zu: scales: expected %s as in %s 0, found %s", one,
                         index, scale_type_name(meta.scale_type), one,
                         scale_type_name(part.scale_type));
  }
  if (part.zero_kind != meta.zero_kind ||
      (meta.zero_kind == ZeroKind::additive && part.zero_type != meta.zero_type)) {
    return Status::error(MARLIN_E_SHAPE, "%s %zu: zeros: expected the kind and type of %s 0", one,
                         index, one);
  }
  if (!same_bits(part.codebook, meta.codebook))
    return Status::error(MARLIN_E_SHAPE, "%s %zu: codebook: expected that of %s 0", one, index,
                         one);
  if (!same_bits(part.scale_map, meta.scale_map))
    return Status::error(MARLIN_E_SHAPE, "%s %zu: map of nested scales: expected that of %s 0", one,
                         index, one);
  MARLIN_RETURN_IF_ERROR(must_agree("2:4 sparse", meta.sparse, part.sparse));
  MARLIN_RETURN_IF_ERROR(
      must_agree("gate and up rows alternate", meta.gate_up_interleaved, part.gate_up_interleaved));
  meta.scale_type = *type;
  meta.factor_groups = std::gcd(meta.factor_groups, part.factor_groups);
  meta.squared_norm += part.squared_norm;
  meta.kept_norm += part.kept_norm;
  return {};
}

/// The tensor scales of the parts, one below the other. A part without tensor scale has 1.
std::vector<TensorScale> concat_tensor_scales(
    const std::vector<std::unique_ptr<WeightSource>>& parts) {
  std::vector<TensorScale> all;
  const bool any = std::any_of(parts.begin(), parts.end(),
                               [](const auto& p) { return !p->meta().tensor_scales.empty(); });
  int64_t row = 0;
  for (const auto& part : parts) {
    if (any && part->meta().tensor_scales.empty()) all.push_back({row, 1.0f, false});
    for (const TensorScale& t : part->meta().tensor_scales)
      all.push_back({row + t.first_row, t.value, t.divide, t.divisor});
    row += part->meta().n;
  }
  return all;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> make_concat(
    std::vector<std::unique_ptr<WeightSource>> parts) {
  if (parts.empty())
    return Status::error(MARLIN_E_ARGUMENT, "parts: expected one or more, found none");
  if (parts.size() == 1) return std::move(parts[0]);
  WeightMeta meta = parts[0]->meta();
  for (size_t i = 1; i < parts.size(); ++i) {
    MARLIN_RETURN_IF_ERROR(merge(parts[i]->meta(), "part", i, meta));
    if (parts[i]->meta().group_index != meta.group_index)
      return Status::error(MARLIN_E_SHAPE, "part %zu: group_index: expected the one of part 0", i);
    meta.n += parts[i]->meta().n;  // at most 2^32 parts of less than 2^31 rows
  }
  meta.tensor_scales = concat_tensor_scales(parts);
  MARLIN_RETURN_IF_ERROR(check_meta(meta));
  return std::unique_ptr<WeightSource>(
      std::make_unique<ConcatSource>(std::move(parts), std::move(meta)));
}

Status make_alike(std::vector<std::unique_ptr<WeightSource>>& experts) {
  WeightMeta common = experts[0]->meta();
  for (size_t i = 1; i < experts.size(); ++i) {
    MARLIN_RETURN_IF_ERROR(merge(experts[i]->meta(), "expert", i, common));
    if (experts[i]->meta().n != common.n)
      return Status::error(MARLIN_E_SHAPE,
                           "expert %zu: n: expected %" PRId64 " as in expert 0, found %" PRId64, i,
                           common.n, experts[i]->meta().n);
  }
  for (auto& expert : experts) {
    WeightMeta meta = expert->meta();
    if (meta.scale_type == common.scale_type) continue;
    meta.scale_type = common.scale_type;
    std::vector<std::unique_ptr<WeightSource>> part;
    part.push_back(std::move(expert));
    expert = std::make_unique<ConcatSource>(std::move(part), std::move(meta));
  }
  return {};
}

}  // namespace metal_marlin
