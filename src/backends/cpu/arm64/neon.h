// Code that the NEON kernels share: attributes, and the scales of a superblock.
#pragma once

#include <arm_neon.h>

#include <bit>
#include <cstdint>

#include "backends/cpu/expand.h"
#include "backends/cpu/hot_loops.h"
#include "backends/cpu/kernels.h"

// The attributes belong to functions, never to files, because functions that are inlined from
// headers must stay baseline code. NEON itself is part of the baseline.
#define MARLIN_NEON_DOTPROD [[gnu::target("arch=armv8.2-a+dotprod")]]
#define MARLIN_NEON_I8MM [[gnu::target("arch=armv8.2-a+i8mm")]]
#define MARLIN_NEON_BF16 [[gnu::target("arch=armv8.2-a+bf16")]]

namespace metal_marlin::cpu {

inline constexpr int kVectors = kPanelColumns / 4;  ///< of 4 columns, in a panel

/// Decodes 8 scales to floats exactly. `index` counts scales.
template <ScaleType kType>
MARLIN_INLINE float32x4x2_t load_8_scales(const uint8_t* p, int64_t index) {
  const auto widened = [](uint16x8_t bf16) {
    return float32x4x2_t{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bf16), 16)),
                         vreinterpretq_f32_u32(vshll_high_n_u16(bf16, 16))};
  };
  const auto from_halves = [](uint16x8_t half) {
    return float32x4x2_t{vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(half))),
                         vcvt_high_f32_f16(vreinterpretq_f16_u16(half))};
  };
  if constexpr (kType == ScaleType::f32) {
    const auto* from = reinterpret_cast<const float*>(p + 4 * index);
    return {vld1q_f32(from), vld1q_f32(from + 4)};
  } else if constexpr (kType == ScaleType::f16) {
    return from_halves(vld1q_u16(reinterpret_cast<const uint16_t*>(p + 2 * index)));
  } else if constexpr (kType == ScaleType::bf16) {
    return widened(vld1q_u16(reinterpret_cast<const uint16_t*>(p + 2 * index)));
  } else if constexpr (kType == ScaleType::e8m0) {
    // The scale is 2^(e - 127), so e is the exponent field. With the highest mantissa bit set, 0
    // becomes 2^-127 and 255 becomes NaN.
    const uint8x8_t e = vld1_u8(p + index), edge = vcle_u8(vadd_u8(e, vdup_n_u8(1)), vdup_n_u8(1));
    return widened(vorrq_u16(vshll_n_u8(e, 7), vmovl_u8(vand_u8(edge, vdup_n_u8(0x40)))));
  } else {
    // The bits of E4M3 in the exponent and mantissa of a half give a value that is 2^-8 too small;
    // 0x7f and 0xff are NaN. The shift copies the sign into bit 14, which must be 0.
    const uint8x8_t e = vld1_u8(p + index),
                    nan = vceq_u8(vand_u8(e, vdup_n_u8(0x7f)), vdup_n_u8(0x7f));
    const int16x8_t shifted = vshll_n_s8(vreinterpret_s8_u8(e), 7),
                    nans = vmovl_s8(vreinterpret_s8_u8(nan));
    const float32x4x2_t value =
        from_halves(vandq_u16(vreinterpretq_u16_s16(shifted), vdupq_n_u16(0xbfff)));
    const auto finish = [](float32x4_t x, int32x4_t all_ones) {
      return vreinterpretq_f32_s32(
          vorrq_s32(vreinterpretq_s32_f32(vmulq_n_f32(x, 256.0f)), all_ones));
    };
    return {finish(value.val[0], vmovl_s16(vget_low_s16(nans))),
            finish(value.val[1], vmovl_high_s16(nans))};
  }
}

/// Decodes n scales (a multiple of 8), times `factor`, to `out`. Returns the largest magnitude, or
/// NaN if there is a NaN.
template <ScaleType kType>
float decode_scales_neon(const uint8_t* p, int n, float factor, float* out) {
  float32x4_t largest = vdupq_n_f32(0);
  for (int i = 0; i < n; i += 8) {
    const float32x4x2_t s = load_8_scales<kType>(p, i);
    for (int half = 0; half < 2; ++half) {
      const float32x4_t scaled = vmulq_n_f32(s.val[half], factor);
      largest = vmaxq_f32(largest, vabsq_f32(scaled));
      vst1q_f32(out + i + 4 * half, scaled);
    }
  }
  return vmaxvq_f32(largest);
}

/// The integers of 8 columns of a two-level type, of group g.
template <ScaleType kType>
MARLIN_INLINE int16x8_t load_8_integers(const uint8_t* p, int low_rows, int g) {
  const auto row = [&](int index) { return vld1_u8(p + index * kPanelColumns); };
  if constexpr (kType == ScaleType::s8) {
    return vmovl_s8(vreinterpret_s8_u8(row(g)));
  } else {
    const auto bits = [](uint8x8_t x, int shift, int mask) {
      return vand_u8(vshl_u8(x, vdup_n_s8(static_cast<int8_t>(-shift))),
                     vdup_n_u8(static_cast<uint8_t>(mask)));
    };
    uint8x8_t q = bits(row(g / 2), g % 2 * 4, 15);
    if constexpr (kType != ScaleType::u4)
      q = vorr_u8(q, vshl_n_u8(bits(row(low_rows + g / 4), g % 4 * 2, 3), 4));
    if constexpr (kType != ScaleType::s6) return vreinterpretq_s16_u16(vmovl_u8(q));
    return vmovl_s8(vshr_n_s8(vreinterpret_s8_u8(vshl_n_u8(q, 2)), 2));
  }
}

/// The same for two-level scales: the products of integers and factors, which are exact.
template <ScaleType kType>
float decode_two_level_neon(const uint8_t* p, int n, float factor, float* out) {
  const int groups = n / kPanelColumns, low_rows = two_level_low_rows(kType, groups),
            high_rows = two_level_high_rows(kType, groups);
  const uint8_t* const factors = p + kPanelColumns * (low_rows + high_rows);
  float32x4_t largest = vdupq_n_f32(0);
  for (int c = 0; c < kPanelColumns; c += 8) {
    const float32x4x2_t d = load_8_scales<ScaleType::f16>(factors, c);
    for (int g = 0; g < groups; ++g) {
      const int16x8_t q = load_8_integers<kType>(p + c, low_rows, g);
      const float32x4_t halves[2] = {vcvtq_f32_s32(vmovl_s16(vget_low_s16(q))),
                                     vcvtq_f32_s32(vmovl_high_s16(q))};
      for (int half = 0; half < 2; ++half) {
        const float32x4_t s = vmulq_f32(halves[half], vmulq_n_f32(d.val[half], factor));
        largest = vmaxq_f32(largest, vabsq_f32(s));
        vst1q_f32(out + g * kPanelColumns + c + 4 * half, s);
      }
    }
  }
  return vmaxvq_f32(largest);
}

/// Never inlined: a compiler would keep its constants in registers around the loops of a kernel,
/// and sums would spill.
[[gnu::noinline]] inline float decode_scales_neon(ScaleType type, const uint8_t* p, int n,
                                                  float factor, float* out) {
  switch (type) {
    case ScaleType::f32:
      return decode_scales_neon<ScaleType::f32>(p, n, factor, out);
    case ScaleType::f16:
      return decode_scales_neon<ScaleType::f16>(p, n, factor, out);
    case ScaleType::bf16:
      return decode_scales_neon<ScaleType::bf16>(p, n, factor, out);
    case ScaleType::e8m0:
      return decode_scales_neon<ScaleType::e8m0>(p, n, factor, out);
    case ScaleType::e4m3:
      return decode_scales_neon<ScaleType::e4m3>(p, n, factor, out);
    case ScaleType::u4:
      return decode_two_level_neon<ScaleType::u4>(p, n, factor, out);
    case ScaleType::u6:
      return decode_two_level_neon<ScaleType::u6>(p, n, factor, out);
    case ScaleType::s6:
      return decode_two_level_neon<ScaleType::s6>(p, n, factor, out);
    case ScaleType::s8:
      return decode_two_level_neon<ScaleType::s8>(p, n, factor, out);
    case ScaleType::nested:  // decode_real_scales
      break;
  }
  return 0;
}

/// The vectors in which codes are expanded.
struct NeonBytes {
  using Vector = uint8x16_t;
  static constexpr int kBytes = 16;
  MARLIN_INLINE static Vector load(const uint8_t* p) { return vld1q_u8(p); }
  MARLIN_INLINE static void store(uint8_t* p, Vector x) { vst1q_u8(p, x); }
  MARLIN_INLINE static Vector splat(int x) { return vdupq_n_u8(static_cast<uint8_t>(x)); }
  MARLIN_INLINE static Vector both(Vector a, Vector b) { return vandq_u8(a, b); }
  MARLIN_INLINE static Vector either(Vector a, Vector b) { return vorrq_u8(a, b); }
  MARLIN_INLINE static Vector minus(Vector a, Vector b) { return vsubq_u8(a, b); }
  template <int kBits>
  MARLIN_INLINE static Vector left(Vector x) {
    return vshlq_n_u8(x, kBits);
  }
  template <int kBits>
  MARLIN_INLINE static Vector right(Vector x) {
    return vshrq_n_u8(x, kBits);
  }
  template <int kBits>
  MARLIN_INLINE static Vector left_16(Vector x) {
    return vreinterpretq_u8_u16(vshlq_n_u16(vreinterpretq_u16_u8(x), kBits));
  }
  template <int kBits>
  MARLIN_INLINE static Vector right_16(Vector x) {
    return vreinterpretq_u8_u16(vshrq_n_u16(vreinterpretq_u16_u8(x), kBits));
  }
  MARLIN_INLINE static Vector splat_16(int x) {
    return vreinterpretq_u8_u16(vdupq_n_u16(static_cast<uint16_t>(x)));
  }
  MARLIN_INLINE static Vector plus_16(Vector a, Vector b) {
    return vreinterpretq_u8_u16(vaddq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  }
  MARLIN_INLINE static Vector less_16(Vector a, Vector b) {
    return vreinterpretq_u8_u16(vcltq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
  }
  MARLIN_INLINE static Vector choose(Vector mask, Vector yes, Vector no) {
    return vbslq_u8(mask, yes, no);
  }
  MARLIN_INLINE static Vector look_up_e4m3(Vector index) {
    // Bytes 2 i and 2 i + 1; an index beyond the table gives 0.
    const uint16x8_t twice = vshlq_n_u16(vreinterpretq_u16_u8(index), 1);
    const uint16x8_t bytes = vorrq_u16(vmulq_n_u16(twice, 0x101), vdupq_n_u16(0x100));
    return vqtbl1q_u8(vreinterpretq_u8_u16(vld1q_u16(kE4m3Subnormals.of)),
                      vreinterpretq_u8_u16(bytes));
  }
  MARLIN_INLINE static Vector look_up_iq4(Vector index) {
    return vreinterpretq_u8_s8(vqtbl1q_s8(vld1q_s8(kIq4Bytes.of), index));
  }
};
#define MARLIN_EXPAND_TARGET
#define MARLIN_EXPAND_BYTES NeonBytes
#define MARLIN_EXPAND expand_neon
#include "backends/cpu/expand.inc"

/// The scales and zeros of a superblock, and the place of its codes.
struct SuperScales {
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];  ///< additive zeros
  uint8_t offset[8][kPanelColumns]
                [4];  ///< integer zeros: 16 - zero, for each of a column's 4 slots in a vector
  float largest;      ///< magnitude of all scales, or NaN
  const uint8_t* super;
  ExpandedCodes<CodeKind::bf16> expanded;  ///< of any kind
};

/// `factor` multiplies the scales.
inline void decode_super_scales(const PanelLayout& layout, const uint8_t* super, float factor,
                                SuperScales& out) {
  const int n = layout.groups_per_super() * kPanelColumns;
  const uint8_t* zeros = super + layout.zeros_offset();
  out.super = super;
  if (layout.expansion != Expansion::none) {
    expand_neon(layout, super, 0, kColumnGroups, 0, out.expanded.bytes);
    out.super = out.expanded.bytes;
  }
  out.largest = decode_scales_neon(layout.scale_type, super + layout.scales_offset(), n, factor,
                                   &out.scale[0][0]);
  if (layout.zero_kind == ZeroKind::additive)
    decode_scales_neon(layout.zero_type, zeros, n, 1.0f, &out.zero[0][0]);
  if (layout.less_128)
    return correct_zeros(layout, zeros, n / kPanelColumns, 0, kPanelColumns, &out.scale[0][0],
                         &out.zero[0][0]);
  if (layout.zero_kind == ZeroKind::integer)
    for (int i = 0; i < n; i += 16) {
      const uint8x16_t offset = vsubq_u8(vdupq_n_u8(16), vld1q_u8(zeros + i));
      const uint8x16x4_t four = {offset, offset, offset, offset};  // each byte four times
      vst4q_u8(out.offset[0][i], four);
    }
}

/// scale * d, kept finite if scale and d are finite: an infinite factor would give NaN if the
/// integer sum is 0.
MARLIN_INLINE float32x4_t finite_product(float32x4_t scale, float32x4_t d) {
  const float32x4_t limit = vdupq_n_f32(kLargestFloat), product = vmulq_f32(scale, d);
  const float32x4_t clamped =
      vmaxq_f32(vnegq_f32(limit), vminq_f32(limit, product));  // NaN stays NaN
  return vbslq_f32(vcgtq_f32(vabsq_f32(scale), limit), product, clamped);
}

}  // namespace metal_marlin::cpu
