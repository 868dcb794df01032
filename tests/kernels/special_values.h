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
  const int64_t n = t.spec.n;
  if (t.spec.k_quant) {
    const int64_t row = t.spec.k / kSuperBlock;
    const auto block = [&](int64_t r, int64_t b) -> KBlock& { return t.blocks[static_cast<size_t>(r % n * row + b)]; };
    block(1, row - 1).factor = kNaN;
    block(3, 0).factor = -kInf;
    block(5, 0).factor = 0;
    block(6, row - 1).factor = 0x1p-24;
    if (!has_minima(t.spec.format)) return;
    block(7, 0).minima_factor = kNaN;
    block(8, row - 1).minima_factor = kInf;
    block(9, 0).minima_factor = -0.0;
    return;
  }
  const int64_t last = t.scales.view().cols - 1;
  switch (t.spec.scale_type) {
    case MARLIN_E8M0:
      t.scales.bytes(1 % n)[last] = 255;
      t.scales.bytes(3 % n)[0] = 0;  // 2^-127, subnormal in float32
      break;
    case MARLIN_E4M3:
      t.scales.bytes(1 % n)[last] = 0x7f;
      t.scales.bytes(3 % n)[0] = 0xff;
      break;
    default:
      t.scales.set(1 % n, last, kNaN);
      t.scales.set(3 % n, 0, -kInf);
      t.scales.set(5 % n, 0, 0.0);
      t.scales.set(6 % n, last, t.spec.scale_type == MARLIN_F16 ? 0x1p-24 : 0x1p-130);
  }
  if (t.spec.zeros == Zeros::additive) {
    t.zeros.set(7 % n, 0, kNaN);
    t.zeros.set(8 % n, last, kInf);
    t.zeros.set(9 % n, 0, -0.0);
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
