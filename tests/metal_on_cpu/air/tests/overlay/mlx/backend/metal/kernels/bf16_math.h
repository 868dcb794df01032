#pragma once
// In place of the header of this name in the wheel. Most functions of bfloat that it adds are in the prelude already, but not
// those of fast and precise; sums and products over lanes differ: through float, rounded once.
namespace metal {

#define BFLOAT_THROUGH_FLOAT(name) \
  METAL_FUNC bfloat name(bfloat x) { return static_cast<bfloat>(name(static_cast<float>(x))); }

BFLOAT_THROUGH_FLOAT(simd_sum)
BFLOAT_THROUGH_FLOAT(simd_product)
BFLOAT_THROUGH_FLOAT(simd_prefix_inclusive_sum)
BFLOAT_THROUGH_FLOAT(simd_prefix_exclusive_sum)
BFLOAT_THROUGH_FLOAT(simd_prefix_inclusive_product)
BFLOAT_THROUGH_FLOAT(simd_prefix_exclusive_product)

#define BFLOAT_FUNCTIONS                                                             \
  BFLOAT_THROUGH_FLOAT(acos);                                                        \
  BFLOAT_THROUGH_FLOAT(acosh);                                                       \
  BFLOAT_THROUGH_FLOAT(asin);                                                        \
  BFLOAT_THROUGH_FLOAT(asinh);                                                       \
  BFLOAT_THROUGH_FLOAT(atan);                                                        \
  BFLOAT_THROUGH_FLOAT(atanh);                                                       \
  BFLOAT_THROUGH_FLOAT(cos);                                                         \
  BFLOAT_THROUGH_FLOAT(cosh);                                                        \
  BFLOAT_THROUGH_FLOAT(exp);                                                         \
  BFLOAT_THROUGH_FLOAT(exp2);                                                        \
  BFLOAT_THROUGH_FLOAT(exp10);                                                       \
  BFLOAT_THROUGH_FLOAT(log);                                                         \
  BFLOAT_THROUGH_FLOAT(log2);                                                        \
  BFLOAT_THROUGH_FLOAT(log10);                                                       \
  BFLOAT_THROUGH_FLOAT(rsqrt);                                                       \
  BFLOAT_THROUGH_FLOAT(sin);                                                         \
  BFLOAT_THROUGH_FLOAT(sinh);                                                        \
  BFLOAT_THROUGH_FLOAT(sqrt);                                                        \
  BFLOAT_THROUGH_FLOAT(tan);                                                         \
  BFLOAT_THROUGH_FLOAT(tanh);                                                        \
  METAL_FUNC bfloat atan2(bfloat y, bfloat x) {                                      \
    return static_cast<bfloat>(atan2(static_cast<float>(y), static_cast<float>(x))); \
  }
namespace fast {
BFLOAT_FUNCTIONS
}
namespace precise {
BFLOAT_FUNCTIONS
}

#undef BFLOAT_FUNCTIONS
#undef BFLOAT_THROUGH_FLOAT

}  // namespace metal
