#include "formats/signed_bytes.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/bits.h"
#include "formats/codecs.h"

namespace metal_marlin {
namespace {

constexpr int64_t kGroup = 32;
constexpr int kMiddle = 128;

/// What is added to (q - 128) scale, or nothing if it is not exact.
std::optional<float> zero_of(const WeightMeta& meta, const Stripe& from, int64_t group,
                             float scale) {
  double zero = 0;
  if (meta.zero_kind == ZeroKind::integer) {
    if (std::signbit(scale)) return std::nullopt;  // (z - z) scale is -0
    zero = (kMiddle - int{from.zeros[static_cast<size_t>(group)]}) * double{scale};
  } else {
    const auto element = static_cast<int64_t>(scale_bytes(meta.zero_type));
    const float own = decode_scale(meta.zero_type, from.zeros.data() + group * element);
    // Two numbers of 24 bits: their sum is exact in double if it is in float32.
    zero = double{own} + kMiddle * double{scale};
    if (zero - double{own} != kMiddle * double{scale}) return std::nullopt;
  }
  const auto rounded = static_cast<float>(zero);
  if (!std::isfinite(rounded) || double{rounded} != zero) return std::nullopt;
  return rounded;
}

}  // namespace

bool SignedBytes::takes(const WeightMeta& meta) {
  if (meta.format != MARLIN_FORMAT_UINT8) return false;
  if (meta.zero_kind == ZeroKind::none) return true;
  return meta.group_index.empty() && meta.group_size % kGroup == 0 && meta.tensor_scales.empty();
}

SignedBytes::SignedBytes(const WeightSource& source) : source_(source) {
  meta_ = source.meta();
  warning_ = source.warning();
  meta_.format = MARLIN_FORMAT_INT8;
  if (meta_.zero_kind == ZeroKind::none) return;
  meta_.zero_kind = ZeroKind::additive;
  meta_.scale_type = meta_.zero_type = ScaleType::f32;
  meta_.group_size = kGroup;
  meta_.groups = (meta_.k + kGroup - 1) / kGroup;
}

Status SignedBytes::read(int64_t first, int64_t count, Stripe& out) const {
  const WeightMeta& given = source_.meta();
  MARLIN_RETURN_IF_ERROR(source_.read(first, count, out));
  for (uint8_t& code : out.codes) code ^= kMiddle;
  if (given.zero_kind == ZeroKind::none) return {};
  Stripe wide;
  const auto element = static_cast<int64_t>(scale_bytes(given.scale_type));
  const int64_t repeats = given.group_size / kGroup;
  for (int64_t row = 0; row < count; ++row)
    for (int64_t g = 0; g < meta_.groups; ++g) {
      const int64_t group = row * given.groups + g / repeats;
      const float scale = decode_scale(given.scale_type, out.scales.data() + group * element);
      const std::optional<float> zero = zero_of(given, out, group, scale);
      if (!zero) {
        exact_.store(false, std::memory_order_relaxed);
        return Status::error(MARLIN_E_UNSUPPORTED, "zeros: expected sums that float32 holds");
      }
      for (const auto& [numbers, value] : {std::pair(&wide.scales, scale), {&wide.zeros, *zero}}) {
        numbers->resize(numbers->size() + sizeof value);
        store(numbers->data() + numbers->size() - sizeof value, value);
      }
    }
  out.scales = std::move(wide.scales);
  out.zeros = std::move(wide.zeros);
  return {};
}

}  // namespace metal_marlin
