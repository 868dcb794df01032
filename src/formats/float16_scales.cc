#include "formats/float16_scales.h"

#include <bit>

#include "base/bits.h"
#include "formats/codecs.h"

namespace metal_marlin {
namespace {

bool is_longer(ScaleType type) { return type == ScaleType::f32 || type == ScaleType::bf16; }

/// Numbers of `type` as float16. False if one is none.
bool to_float16(std::vector<uint8_t>& numbers, ScaleType type) {
  const size_t element = scale_bytes(type), count = numbers.size() / element;
  for (size_t i = 0; i < count; ++i) {
    const float value = decode_scale(type, numbers.data() + i * element);
    const uint16_t bits = f32_to_f16(value);
    if (std::bit_cast<uint32_t>(f16_to_f32(bits)) != std::bit_cast<uint32_t>(value)) return false;
    store(numbers.data() + i * sizeof bits, bits);  // no longer than what was there
  }
  numbers.resize(count * sizeof(uint16_t));
  return true;
}

}  // namespace

bool has_longer_scales(const WeightMeta& meta) {
  if (meta.has_two_level_scales() || meta.has_two_level_zeros()) return false;
  return is_longer(meta.scale_type) ||
         (meta.zero_kind == ZeroKind::additive && is_longer(meta.zero_type));
}

Float16Scales::Float16Scales(const WeightSource& source) : source_(source) {
  meta_ = source.meta();
  warning_ = source.warning();
  if (is_longer(meta_.scale_type)) meta_.scale_type = ScaleType::f16;
  if (meta_.zero_kind == ZeroKind::additive) meta_.zero_type = ScaleType::f16;
}

Status Float16Scales::read(int64_t first, int64_t count, Stripe& out) const {
  const WeightMeta& given = source_.meta();
  MARLIN_RETURN_IF_ERROR(source_.read(first, count, out));
  bool exact = true;
  if (is_longer(given.scale_type)) exact = to_float16(out.scales, given.scale_type);
  if (exact && given.zero_kind == ZeroKind::additive && is_longer(given.zero_type))
    exact = to_float16(out.zeros, given.zero_type);
  if (exact) return {};
  exact_.store(false, std::memory_order_relaxed);
  return Status::error(MARLIN_E_UNSUPPORTED, "scales: expected float16 numbers");
}

}  // namespace metal_marlin
