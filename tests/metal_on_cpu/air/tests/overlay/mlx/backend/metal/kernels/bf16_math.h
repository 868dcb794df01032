#pragma once
// In place of the header of this name in the wheel. Most functions of bfloat that it adds are in the prelude already; sums and
// products over lanes differ: through float, rounded once.
namespace metal {

#define BFLOAT_THROUGH_FLOAT(name) \
  METAL_FUNC bfloat name(bfloat x) { return static_cast<bfloat>(name(static_cast<float>(x))); }

BFLOAT_THROUGH_FLOAT(simd_sum)
BFLOAT_THROUGH_FLOAT(simd_product)
BFLOAT_THROUGH_FLOAT(simd_prefix_inclusive_sum)
BFLOAT_THROUGH_FLOAT(simd_prefix_exclusive_sum)
BFLOAT_THROUGH_FLOAT(simd_prefix_inclusive_product)
BFLOAT_THROUGH_FLOAT(simd_prefix_exclusive_product)

#undef BFLOAT_THROUGH_FLOAT

}  // namespace metal
