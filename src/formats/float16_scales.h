// The same weights with float16 scales, for kernels that know no other: most scales that files hold
// as bfloat16 or float32 are float16 numbers, too.
#pragma once

#include <atomic>

#include "formats/weights.h"

namespace metal_marlin {

/// Whether a matrix has scales or additive zeros that Float16Scales would change.
bool has_longer_scales(const WeightMeta& meta);

/// Reads `source`, which must live as long as it, and whose matrix must have such scales. Its
/// scales and additive zeros are float16. read() is MARLIN_E_UNSUPPORTED, and is_exact() false from
/// then on, if float16 does not hold the bits of one of them.
class Float16Scales final : public WeightSource {
 public:
  explicit Float16Scales(const WeightSource& source);
  Status read(int64_t first, int64_t count, Stripe& out) const override;
  bool is_exact() const { return exact_.load(std::memory_order_relaxed); }

 private:
  const WeightSource& source_;
  mutable std::atomic<bool> exact_{true};  // threads read at once
};

}  // namespace metal_marlin
