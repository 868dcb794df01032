#include "formats/steady_scales.h"

#include <cmath>

#include "formats/codecs.h"

namespace metal_marlin {
namespace {

constexpr float kLeast = 0x1p-24f, kMost = 0x1p23f;

bool are_steady(const std::vector<uint8_t>& scales) {
  for (size_t at = 0; at < scales.size(); at += sizeof(float)) {
    const float magnitude = std::fabs(decode_scale(ScaleType::f32, scales.data() + at));
    const bool is_within = magnitude >= kLeast && magnitude <= kMost;  // a NaN is not
    if (magnitude != 0 && !is_within) return false;
  }
  return true;
}

}  // namespace

SteadyScales::SteadyScales(const WeightSource& source)
    : source_(source), steady_(source.meta().scale_type == ScaleType::f32) {
  meta_ = source.meta();
  warning_ = source.warning();
}

Status SteadyScales::read(int64_t first, int64_t count, Stripe& out) const {
  MARLIN_RETURN_IF_ERROR(source_.read(first, count, out));
  if (are_steady() && !metal_marlin::are_steady(out.scales))
    steady_.store(false, std::memory_order_relaxed);
  return {};
}

}  // namespace metal_marlin
