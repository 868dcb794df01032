// The arithmetic of the AVX2 kernels of the INT8 compute. Codes are multiplied by vpmaddubsw, whose
// pair sums must stay inside int16:
//   4-bit  The unsigned code u is <= 15 (u4, u4add), 24 (fp4: 2 * value + 12) or 31 (u4zero: code +
//          16 - zero), and |x| <= 127. 4 steps of pair sums are at most 4 * 2 * 31 * 127 = 31496
//          and are added as int16. So are codes of 2, 3 and 5 bits.
//   6-bit  u <= 63: 2 steps are at most 2 * 2 * 63 * 127 = 32004 and are added as int16.
//   8-bit  |code| <= 128 is multiplied, unsigned, by x with the sign of the code: 2 * 128 * 127 =
//          32512. These sums are widened in every step.
//
//   codes (Walk)     ---> w[v]         8 columns x 4 slots of a vector v
//   packed A block   ---> b            4 slots of a row, in all lanes
//                         dot[r][v]    int16 sums of 16 slots, then vpmaddwd to int32
//   sums (in L1)     <--- sums[r] += float(dot[r][v] + the sum of the activations) * (scale[v] *
//                         d[r])
//
// Limits: 16 slots of 8 columns take 4 vpmaddubsw, 3 additions and a vpmaddwd per row. 8-bit codes
// take 4 more instructions for signs, and 3 more vpmaddwd.
#pragma once

#include <algorithm>
#include <bit>

#include "backends/cpu/chunks.h"
#include "backends/cpu/e2m1.h"
#include "backends/cpu/x86/int8.h"
#include "backends/cpu/x86/vec/avx2.h"

namespace metal_marlin::cpu {

/// The scales of a superblock as floats, and its additive zeros.
struct FloatScales : SuperScales {
  MARLIN_AVX2 void decode(CodeKind code, const SuperShape& shape, const uint8_t* super) {
    decode_super(code, shape, super, *this, code_factor(code));
  }
  /// Those of the 8 columns of vector v, counted from a column.
  MARLIN_AVX2 MARLIN_INLINE __m256 scale_of(int group, int column, int v) const {
    return _mm256_load_ps(&scale[group][column] + 8 * v);
  }
  MARLIN_AVX2 MARLIN_INLINE __m256 zero_of(int group, int column, int v) const {
    return _mm256_load_ps(&zero[group][column] + 8 * v);
  }
};

/// Two-level scales of a superblock, and its additive zeros. Kernels of few rows use a scale a few
/// times only, so its integers stay bytes until their columns are multiplied.
struct IntegerScales {
  TwoLevelScales scale, zero;
  MARLIN_AVX2 void decode(CodeKind code, const SuperShape& shape, const uint8_t* super) {
    read_two_levels(shape.layout.scale_type, super + shape.scales, shape.groups, scale);
    if (is_additive(code))
      read_two_levels(shape.layout.zero_type, super + shape.zeros, shape.groups, zero);
  }
  MARLIN_AVX2 MARLIN_INLINE __m256 scale_of(int group, int column, int v) const {
    return product(scale, group, column + 8 * v);
  }
  MARLIN_AVX2 MARLIN_INLINE __m256 zero_of(int group, int column, int v) const {
    return product(zero, group, column + 8 * v);
  }
  MARLIN_AVX2 MARLIN_INLINE static __m256 product(const TwoLevelScales& of, int group, int c) {
    const __m256i q = Vec::dwords_of_signed(of.integers + group * kPanelColumns + c);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(q), _mm256_load_ps(of.factors + c));
  }
};

/// Whether the scales of these codes, and their zeros, have two levels.
inline bool has_two_level_scales(const PanelLayout& layout, CodeKind code) {
  return is_two_level(layout.scale_type) && (!is_additive(code) || layout.has_two_level_zeros());
}

/// Hides the value from the optimizer, which would otherwise reassociate the sum of all steps into
/// a tree, keep all products for it, and spill half of them.
MARLIN_AVX2 MARLIN_INLINE void settle(__m256i& value) { __asm__("" : "+x"(value)); }

/// How codes are multiplied: by the products that an int16 holds the sum of.
enum class Products : uint8_t {
  four,          ///< unsigned codes of up to 31
  two,           ///< unsigned codes of up to 63
  signed_bytes,  ///< one: bytes, whose sign the activation takes
};

/// Adds the integer products of 16 slots. `codes(step, v)` is a quad of slots of vector v.
template <int kRows, int kVectors, Products kProducts, class Codes>
MARLIN_AVX2 MARLIN_INLINE void dot_16(const Codes& codes, const uint32_t* x,
                                      __m256i (&dot)[kRows][kVectors]) {
  constexpr bool kSigned = kProducts == Products::signed_bytes, kTwo = kProducts == Products::two;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i pair[kRows][kVectors];
  MARLIN_UNROLLED(step, 4) {
    __m256i w[kVectors];
    MARLIN_UNROLLED(v, kVectors) w[v] = codes(step, v);
    MARLIN_UNROLLED(r, kRows) {
      const __m256i b = broadcast(x + step * kRows + r);
      MARLIN_UNROLLED(v, kVectors) {
        __m256i product =
            kSigned ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[v]), _mm256_sign_epi8(b, w[v]))
                    : _mm256_maddubs_epi16(w[v], b);
        if (kSigned) product = _mm256_madd_epi16(product, ones);
        if constexpr (kTwo) {
          if (step % 2 == 0) {
            pair[r][v] = product;
            settle(pair[r][v]);
            continue;
          }
          product = _mm256_madd_epi16(_mm256_add_epi16(pair[r][v], product), ones);
        }
        if (step == (kTwo ? 1 : 0))
          dot[r][v] = product;
        else
          dot[r][v] = kProducts == Products::four ? _mm256_add_epi16(dot[r][v], product)
                                                  : _mm256_add_epi32(dot[r][v], product);
        settle(dot[r][v]);
      }
    }
    fence();
  }
  if constexpr (kProducts == Products::four)
    MARLIN_UNROLLED_2(r, kRows, v, kVectors) dot[r][v] = _mm256_madd_epi16(dot[r][v], ones);
}

/// scale * d, kept finite if the scale is finite: an infinite factor would give NaN if the integer
/// sum is 0. NaN stays NaN.
MARLIN_AVX2 MARLIN_INLINE __m256 finite_product(__m256 scale, __m256 d) {
  const __m256 limit = _mm256_set1_ps(kLargestFloat), factor = _mm256_mul_ps(scale, d);
  const __m256 clamped =
      _mm256_max_ps(_mm256_set1_ps(-kLargestFloat), _mm256_min_ps(limit, factor));
  const __m256 infinite =
      _mm256_cmp_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), scale), limit, _CMP_GT_OQ);
  return _mm256_blendv_ps(clamped, factor, infinite);
}

/// Adds zero * (count[r] * d[r]) to the sums. `count` is the sum of all activations, or of those at
/// kept slots.
template <int kRows, int kVectors, class Walk>
MARLIN_AVX2 MARLIN_INLINE void add_zeros(const Walk& walk, int group, int column, const uint32_t* d,
                                         const __m256i (&count)[kRows][kVectors], float* sums) {
  MARLIN_UNROLLED_2(r, kRows, v, kVectors) {
    float* to = sums + r * kPanelColumns + 8 * v;
    const __m256 sum =
        _mm256_mul_ps(_mm256_cvtepi32_ps(count[r][v]), _mm256_set1_ps(std::bit_cast<float>(d[r])));
    _mm256_store_ps(
        to, _mm256_fmadd_ps(sum, walk.scales->zero_of(group, column, v), _mm256_load_ps(to)));
  }
}

/// Adds the scaled integer sums of a part of a block to the sums. `extra` are the sums of the
/// activations, which correct the offset of unsigned codes (activations.h), or null.
template <int kRows, int kVectors, bool kClamp, class Walk>
MARLIN_AVX2 MARLIN_INLINE void add_scaled(const Walk& walk, int group, int column,
                                          const uint32_t* d, const uint32_t* extra,
                                          const __m256i (&dot)[kRows][kVectors], float* sums) {
  MARLIN_UNROLLED(v, kVectors) {
    const __m256 scale = walk.scales->scale_of(group, column, v);
    MARLIN_UNROLLED(r, kRows) {
      float* to = sums + r * kPanelColumns + 8 * v;
      const __m256 of_row = _mm256_set1_ps(std::bit_cast<float>(d[r]));
      const __m256i whole = _mm256_add_epi32(
          dot[r][v],
          _mm256_set1_epi32(extra != nullptr ? static_cast<int>(extra[r]) >> Walk::kSumShift : 0));
      const __m256 factor = kClamp ? finite_product(scale, of_row) : _mm256_mul_ps(scale, of_row);
      _mm256_store_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), factor, _mm256_load_ps(to)));
    }
  }
}

/// Adds the zeros and the scaled integer sums of part `part` of block b to the sums.
template <int kRows, int kVectors, bool kClamp, class Walk>
MARLIN_AVX2 MARLIN_INLINE void add_part(const Walk& walk, int b, int part, int column,
                                        const uint32_t* a_block,
                                        const __m256i (&dot)[kRows][kVectors], float* sums) {
  const int group = (b * 2 + part) >> walk.group_shift;
  const uint32_t *const d = a_block + 8 * kRows, *const extra = d + (1 + part) * kRows;
  if (walk.adds_zeros() && !walk.counts_kept()) {
    __m256i count[kRows][kVectors];
    MARLIN_UNROLLED_2(r, kRows, v, kVectors)
      count[r][v] = _mm256_set1_epi32(static_cast<int>(extra[r]));
    add_zeros<kRows, kVectors>(walk, group, column, d, count, sums);
  }
  add_scaled<kRows, kVectors, kClamp>(walk, group, column, d, walk.corrected() ? extra : nullptr,
                                      dot, sums);
}

/// Multiplies kRows rows by kVectors vectors of columns, from `column` on, of block b of a
/// superblock. Walk names its weights: codes(b, half, column, group), which are those of dot_16 for
/// half a block; kProducts, adds_zeros(), counts_kept() and corrected(): codes are unsigned, and
/// their offset is no zero but the part of sum_factor that kSumShift leaves. It has `scales`, with
/// scale_of and zero_of, and group_shift, log2 of the halves of blocks in a group. kParts 2 is for
/// groups of 16, 1 for larger ones, 0 for both.
template <int kRows, int kVectors, bool kClamp, int kParts = 0, class Walk>
MARLIN_AVX2 MARLIN_INLINE void multiply_int8_block(const Walk& walk, int b, int column,
                                                   const uint32_t* a_block, float* sums) {
  constexpr Products kProducts = Walk::kProducts;
  __m256i dot[kRows][kVectors], half[kRows][kVectors];
  if (walk.counts_kept())
    walk.template add_kept_zeros<kRows, kVectors>(b, 0, column, a_block, sums);
  dot_16<kRows, kVectors, kProducts>(walk.codes(b, 0, column, b * 2 >> walk.group_shift), a_block,
                                     dot);
  const bool halves = kParts == 0 ? walk.group_shift == 0 : kParts == 2;
  if (halves) {
    add_part<kRows, kVectors, kClamp>(walk, b, 0, column, a_block, dot, sums);
    if (walk.counts_kept())
      walk.template add_kept_zeros<kRows, kVectors>(b, 1, column, a_block, sums);
#pragma GCC unroll 3
    for (auto& row : dot)
#pragma GCC unroll 2
      for (__m256i& sum : row) sum = _mm256_setzero_si256();
  }
  dot_16<kRows, kVectors, kProducts>(walk.codes(b, 1, column, (b * 2 + 1) >> walk.group_shift),
                                     a_block + 4 * kRows, half);
  MARLIN_UNROLLED_2(r, kRows, v, kVectors) dot[r][v] = _mm256_add_epi32(dot[r][v], half[r][v]);
  add_part<kRows, kVectors, kClamp>(walk, b, halves ? 1 : 0, column, a_block, dot, sums);
}

/// The uint32_t of the packed activations of a block of 32 slots.
template <int kRows>
constexpr int int8_block_words(int group_shift) {
  return (group_shift == 0 ? 11 : 10) * kRows;
}

/// The bits of the largest finite scale of a type. An infinite one stays infinite in any product.
constexpr uint32_t largest_scale(ScaleType type) {
  constexpr float kLargestHalf = 65504.0f;
  float largest = kLargestFloat;
  if (type == ScaleType::f16) largest = kLargestHalf;
  if (type == ScaleType::e4m3) largest = 448.0f;
  if (is_two_level(type)) largest = 128.0f * kLargestHalf;
  return std::bit_cast<uint32_t>(largest);
}

/// The scales whose product with every d of a tile is finite.
inline ScaleRange finite_scales(const PanelArgs& args, int64_t tile, int rows) {
  return ScaleRange::of<false>(
      reinterpret_cast<const float*>(args.packed_a + args.activations.rows_offset(tile)), rows);
}

}  // namespace metal_marlin::cpu
