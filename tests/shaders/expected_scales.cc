#include "expected_scales.h"

namespace shaders {
namespace {

using metal_marlin::ScaleType;
using metal_marlin::ZeroKind;

/// The oracle's own reading of a scale.
double number(ScaleType type, const uint8_t* from, int64_t index) {
  constexpr marlin_dtype kTypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16, MARLIN_E8M0, MARLIN_E4M3};
  return oracle::read(kTypes[static_cast<int>(type)], from, index);
}

/// The product of two levels: of a byte (in two's complement if its type is signed) and the float16 of 256 elements.
double two_level(const metal_marlin::WeightMeta& meta, ScaleType type, const std::vector<uint8_t>& bytes,
                 const std::vector<uint8_t>& factors, int64_t index) {
  const int64_t row = index / meta.groups, group = index % meta.groups, spans = (meta.k + 255) / 256;
  const uint8_t byte = bytes[static_cast<size_t>(index)];
  const bool is_signed = type == ScaleType::s6 || type == ScaleType::s8;
  const double integer = is_signed ? static_cast<double>(static_cast<int8_t>(byte)) : static_cast<double>(byte);
  return integer * oracle::read(MARLIN_F16, factors.data(), row * spans + group * meta.group_size / 256);
}

/// A nested scale, as GPUs round it.
double nested(const metal_marlin::WeightMeta& meta, const metal_marlin::Stripe& all, int64_t index) {
  const auto float_at = [](const std::vector<uint8_t>& floats, int64_t i) {
    return static_cast<long double>(oracle::read(MARLIN_F32, floats.data(), i));
  };
  const auto unit = static_cast<long double>(meta.scale_map[all.scales[static_cast<size_t>(index)]]);
  return static_cast<double>(
      static_cast<float>(unit * float_at(all.scale_factors, index) + float_at(all.scale_offsets, index / meta.groups)));
}

double scale_of(const metal_marlin::WeightMeta& meta, const metal_marlin::Stripe& all, int64_t index) {
  if (meta.has_nested_scales()) return nested(meta, all, index);
  if (meta.has_two_level_scales()) return two_level(meta, meta.scale_type, all.scales, all.scale_factors, index);
  return number(meta.scale_type, all.scales.data(), index);
}

}  // namespace

void add_scales(const metal_marlin::WeightMeta& meta, const metal_marlin::Stripe& all, oracle::Weights& to) {
  for (int64_t i = 0; i < meta.n * meta.groups; ++i) {
    to.scale.push_back(scale_of(meta, all, i));
    if (meta.zero_kind == ZeroKind::integer) to.zero.push_back(all.zeros[static_cast<size_t>(i)]);
    if (meta.has_two_level_zeros())
      to.zero.push_back(-two_level(meta, meta.zero_type, all.zeros, all.zero_factors, i));
    else if (meta.zero_kind == ZeroKind::additive)
      to.zero.push_back(number(meta.zero_type, all.zeros.data(), i));
  }
}

}  // namespace shaders
