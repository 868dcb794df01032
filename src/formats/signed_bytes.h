// UINT8 weights as INT8, for kernels that are compiled for INT8 alone.
#pragma once

#include <atomic>

#include "formats/weights.h"

namespace metal_marlin {

/// Reads `source`, which must live as long as it, and whose format must be UINT8, as INT8: a weight
/// (q - z) s or q s + z is (q - 128) s plus an additive zero. Weights without zeros keep their
/// scales. Others have float32 scales and zeros in groups of 32, the groups of most kernels; their
/// group size must be a multiple of 32, without a tensor scale. read() is MARLIN_E_UNSUPPORTED, and
/// is_exact() false from then on, if a value would change, because float32 does not hold a zero, or
/// 0 would get a sign.
class SignedBytes final : public WeightSource {
 public:
  explicit SignedBytes(const WeightSource& source);
  static bool takes(const WeightMeta& meta);
  Status read(int64_t first, int64_t count, Stripe& out) const override;
  bool is_exact() const { return exact_.load(std::memory_order_relaxed); }

 private:
  const WeightSource& source_;
  mutable std::atomic<bool> exact_{true};  // threads read at once
};

}  // namespace metal_marlin
