// HQQ with 4 bits along axis 1: the matrix, flattened row by row, is M groups of G elements. `W_q`
// is U8 [M / 2, G]: row i has group i in the high nibbles and group i + M / 2 in the low nibbles,
// so a byte holds an element of each half of the matrix. `scale` and `zero` are [M, 1].
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <optional>

#include "base/bits.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "layouts/layout_table.h"

namespace metal_marlin {
namespace {

struct HqqOperands {
  WeightMeta meta;
  const std::byte *codes = nullptr, *scales = nullptr, *zeros = nullptr;
  ScaleType stored_zero = ScaleType::f16;  // of `zeros`
};

class HqqSource final : public WeightSource {
 public:
  explicit HqqSource(HqqOperands parts)
      : parts_(std::move(parts)), file_groups_(parts_.meta.groups) {
    meta_ = parts_.meta;
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const int64_t half = meta_.n * file_groups_ / 2;
    const int64_t size = meta_.group_size, groups = count * meta_.groups;
    const auto scale = static_cast<int64_t>(scale_bytes(meta_.scale_type));
    out.codes.resize(static_cast<size_t>(groups * size));
    out.scales.resize(static_cast<size_t>(groups * scale));
    out.zeros.resize(static_cast<size_t>(groups) * sizeof(float));
    for (int64_t i = 0; i < groups; ++i) {
      const int64_t group =
          (first + i / meta_.groups) * file_groups_ + first_group_ + i % meta_.groups;
      const bool low = group >= half;
      const std::byte* from = parts_.codes + (low ? group - half : group) * size;
      uint8_t* to = out.codes.data() + i * size;
      for (int64_t k = 0; k < size; ++k) {
        const auto byte = std::to_integer<uint32_t>(from[k]);
        to[k] = static_cast<uint8_t>(low ? byte & 15u : byte >> 4);
      }
      std::memcpy(out.scales.data() + i * scale, parts_.scales + group * scale,
                  static_cast<size_t>(scale));
      store(out.zeros.data() + 4 * i, static_cast<float>(additive_zero(group)));
    }
    out.kept.clear();
    return {};
  }
  int64_t column_unit() const override { return meta_.group_size; }
  void narrow(int64_t first, int64_t count) override {
    first_group_ += narrow_columns(meta_, first, count);
  }

  /// The first group, among so many, whose additive zero float32 does not hold.
  std::optional<int64_t> find_inexact_zero(int64_t most) const {
    for (int64_t group = 0; group < std::min(meta_.n * meta_.groups, most); ++group) {
      const double zero = additive_zero(group);
      if (!std::isnan(zero) && static_cast<double>(static_cast<float>(zero)) != zero) return group;
    }
    return std::nullopt;
  }

 private:
  /// (q - zero) * scale is q * scale + this. The product of two floats is exact in float64.
  double additive_zero(int64_t group) const {
    const auto at = static_cast<size_t>(group);
    return -static_cast<double>(value(parts_.stored_zero, parts_.zeros, at)) *
           static_cast<double>(value(meta_.scale_type, parts_.scales, at));
  }
  static float value(ScaleType type, const std::byte* from, size_t i) {
    return decode_scale(type, reinterpret_cast<const uint8_t*>(from) + i * scale_bytes(type));
  }

  HqqOperands parts_;
  int64_t file_groups_, first_group_ = 0;  // of a row in the file
};

}  // namespace

Result<std::unique_ptr<WeightSource>> read_hqq(const LayoutOperands& o, Depth depth) {
  HqqOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, 0, depth));
  WeightMeta& meta = parts.meta;
  if (o.k % meta.group_size != 0 || o.n * meta.groups % 2 != 0) {
    return view_error(o.values, MARLIN_E_UNSUPPORTED,
                      "expected an even number of groups that do not run across rows, found groups "
                      "of %" PRId64 " in [%" PRId64 ", %" PRId64 "]",
                      meta.group_size, o.n, o.k);
  }
  const int64_t groups = o.n * meta.groups;
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_U8}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, groups / 2, meta.group_size));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, groups, 1));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, groups, 1));
  MARLIN_ASSIGN(meta.scale_type, float_type(o.scales));
  MARLIN_ASSIGN(parts.stored_zero, float_type(o.zeros));
  meta.zero_kind = ZeroKind::additive;
  meta.zero_type = ScaleType::f32;
  MARLIN_RETURN_IF_ERROR(check_source_meta(meta, o, depth));
  parts.codes = o.values.data;
  parts.scales = o.scales.data;
  parts.zeros = o.zeros.data;
  auto source = std::make_unique<HqqSource>(std::move(parts));
  // Products of float32 rarely fit, so that the first groups tell it without reading all data.
  constexpr int64_t kFirst = 1 << 12;
  if (const auto group = source->find_inexact_zero(depth == Depth::full ? INT64_MAX : kFirst)) {
    return view_error(o.zeros, MARLIN_E_UNSUPPORTED,
                      "group %" PRId64 ": -zero * scale is not exact in float32", *group);
  }
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace metal_marlin
