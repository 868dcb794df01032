// NaN, infinity, -0 and subnormals for the operands of a trial, before it is packed.
#pragma once

#include <cmath>
#include <limits>

#include "trial.h"

namespace trial {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// NaN and, where the type has one, infinity in the scales of two rows; the other rows must not notice.
inline void put_special_scales(Trial& t) {
  t.special = true;
  const metal_marlin::WeightMeta& meta = t.source.meta();
  const auto place = [&](int64_t row, int64_t group, int64_t groups) { return row % meta.n * groups + group; };
  if (t.spec.k_quant()) {
    metal_marlin::Stripe& all = t.source.all();
    const int64_t blocks = meta.factors(), last = blocks - 1;
    const auto put = [&](std::vector<uint8_t>& factors, int64_t row, int64_t block, double x) {
      oracle::write(MARLIN_F16, factors.data(), place(row, block, blocks), x);
    };
    put(all.scale_factors, 1, last, kNaN);
    put(all.scale_factors, 3, 0, -kInf);
    put(all.scale_factors, 5, 0, 0);
    put(all.scale_factors, 6, last, 0x1p-24);
    if (!meta.has_two_level_zeros()) return;
    put(all.zero_factors, 7, 0, kNaN);
    put(all.zero_factors, 8, last, kInf);
    put(all.zero_factors, 9, 0, -0.0);
    return;
  }
  const auto at = [&](int64_t row, int64_t group) { return place(row, group, meta.groups); };
  const bool is_e8m0 = meta.scale_type == ScaleType::e8m0;
  const int64_t last = meta.groups - 1;
  t.set_scale(at(1, last), kNaN, is_e8m0 ? 255 : 0x7f);
  t.set_scale(at(3, 0), -kInf, is_e8m0 ? 0 : 0xff);  // 2^-127, subnormal in float32; NaN
  if (metal_marlin::scale_bytes(meta.scale_type) > 1) {
    t.set_scale(at(5, 0), 0.0, 0);
    t.set_scale(at(6, last), meta.scale_type == ScaleType::f16 ? 0x1p-24 : 0x1p-130, 0);
  }
  if (t.spec.zeros == ZeroKind::additive) {
    t.set_additive_zero(at(7, 0), kNaN);
    t.set_additive_zero(at(8, last), kInf);
    t.set_additive_zero(at(9, 0), -0.0);
  }
}

inline void put_special_activations(Trial& t) {
  t.special = true;
  const int64_t k = t.spec.k;
  for (int64_t i = 0; i < k; ++i) t.a.set(0, i, i % 3 == 0 ? -0.0 : i % 3 == 1 ? 0.0 : 0x1p-130);
  if (t.spec.m < 5) return;
  t.a.set(1, k - 1, kNaN);
  t.a.set(2, 0, kInf);
  t.a.set(3, k / 2, -kInf);
  for (int64_t i = 0; i < k; ++i) t.a.set(4, i, -0.0);
}

}  // namespace trial
