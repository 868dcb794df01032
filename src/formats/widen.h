// The same weights in codes of 4 or 8 bits with one level of scales, for devices whose kernels do
// not read the narrower forms. The packed weights are larger. Every value stays the same, bit for
// bit, but for weights with nested scales, whose scales are rounded.
#pragma once

#include "formats/weights.h"

namespace metal_marlin {

/// Whether a matrix has codes or scales that WidenedSource would change.
bool is_narrow(const WeightMeta& meta);

/// Reads `source`, which must live as long as it, and whose matrix must be narrow:
/// - INT2 and INT3 become INT4. INT5, INT6 and IQ4 become INT8; integer zeros are subtracted.
/// - Two-level scales and zeros become their products in float32, which are exact.
/// - Nested scales are rounded to float32.
class WidenedSource final : public WeightSource {
 public:
  explicit WidenedSource(const WeightSource& source);
  Status read(int64_t first, int64_t count, Stripe& out) const override;

 private:
  void widen_codes(Stripe& stripe, int64_t rows) const;
  void widen_scales(const Stripe& narrow, int64_t rows, Stripe& out) const;

  const WeightSource& source_;
};

}  // namespace metal_marlin
