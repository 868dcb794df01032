// The same weights, and whether their scales lie close enough together for kernels that keep sums
// in units of a scale.
#pragma once

#include <atomic>

#include "formats/weights.h"

namespace metal_marlin {

/// Reads `source`, which must live as long as it. are_steady() says whether each scale that was
/// read so far is a float32 number that is 0 or has a magnitude from 2^-24 to 2^23. Two-level
/// scales are such numbers: float16 numbers times integers up to 128. The ratio of two of them, and
/// a sum in units of one of them, lie as far from the ends of float32 as those of float16 scales
/// do.
class SteadyScales final : public WeightSource {
 public:
  explicit SteadyScales(const WeightSource& source);
  Status read(int64_t first, int64_t count, Stripe& out) const override;
  bool are_steady() const { return steady_.load(std::memory_order_relaxed); }

 private:
  const WeightSource& source_;
  mutable std::atomic<bool> steady_;  // threads read at once
};

}  // namespace metal_marlin
