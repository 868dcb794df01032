// INT8 compute with AVX2. Codes are dequantized as bytes, a superblock at a time, and multiplied by
// vpmaddubsw, whose pair sums must stay inside int16:
//   4-bit  The unsigned code u is <= 15 (u4, u4add), 24 (fp4: 2 * value + 12) or 31 (u4zero: code +
//          16 - zero), and |x| <= 127. 4 steps of pair sums are at most 4 * 2 * 31 * 127 = 31496
//          and are added as int16.
//   8-bit  |code| <= 128 is multiplied, unsigned, by x with the sign of the code: 2 * 128 * 127 =
//          32512. These sums are widened in every step.
//
//   packed stream --decode--> superblock in L1       registers
//                             codes [step][64][4] ---> w[v]       8 columns x 4 slots, v = 0, 1
//   packed A block            -----------------------> b          4 slots of a row, in all lanes
//                                                      dot[r][v]  int16 sums of 16 slots, then
//                                                                 vpmaddwd to int32
//   sums (in L1)   <-- sums[r] += float(dot[r][v] + the sum of the activations) * (scale[v] * d[r])
//
//   M: tiles of up to 3 rows. N: 16 columns at a time, four times. K: superblock, block, part,
//   16 slots, step of 4 slots.
//
// Template parameters: kRows 1 to 3; kEight: 8-bit codes; kParts 2 with groups of 16, else 1;
// kClamp: scale * d may overflow; dequantize takes every kCode, and every sparse one except those
// of 8 bits.
//
// Limits: at 3 rows, two sets of 6 sums, two vectors of codes, one of activations and a product
// take all 16 registers. 16 slots of 8 columns take 4 vpmaddubsw, 3 additions and a vpmaddwd per
// row. 8-bit codes take 4 more instructions for signs, and 3 more vpmaddwd.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/e2m1.h"
#include "backends/cpu/x86/avx2.h"
#include "backends/cpu/x86/scale_range.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kStepsPerSuper = kSuperSlots / 4;

struct Avx2DequantizedI8 {
  uint8_t codes[kStepsPerSuper][kPanelColumns][4];
  float scale[8][kPanelColumns];
  float zero[8][kPanelColumns];  ///< additive zeros
  /// For 2:4 sparse weights with additive zeros: 1 for kept slots, 0 for others.
  uint8_t kept[kStepsPerSuper][kPanelColumns][4];
  uint32_t largest;  ///< magnitude of scale, as bits
};

template <size_t... kIndex>
MARLIN_AVX2 MARLIN_INLINE __m128i unsigned_e2m1(std::index_sequence<kIndex...>) {
  constexpr auto kValues = doubled_e2m1<kE2m1Offset>();
  return _mm_setr_epi8(kValues[kIndex]...);
}

/// Quad kQuad of 8 columns, as the unsigned bytes of the table above.
template <CodeKind kCode, bool kSparse, int kQuad>
MARLIN_AVX2 MARLIN_INLINE __m256i unsigned_codes(Codes8 codes) {
  const __m256i bytes = CodeLines8<kCode, kSparse>::template bytes<kQuad>(codes);
  if constexpr (kCode == CodeKind::u4zero) return bytes;
  const __m256i code = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
  if constexpr (kCode == CodeKind::fp4) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(unsigned_e2m1(CodeIndices{})), code);
  }
  return code;
}

/// The bits of the largest magnitude of n floats, a multiple of 8.
MARLIN_AVX2 uint32_t largest_magnitude(const float* x, int n) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 8)
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(_mm256_load_ps(x + i)),
                                                         _mm256_set1_epi32(0x7fffffff)));
  alignas(32) uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  return *std::max_element(lanes, lanes + 8);
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX2 void dequantize(const PanelLayout& layout, const uint8_t* super,
                            Avx2DequantizedI8& out) {
  using Lines = CodeLines8<kCode, kSparse>;
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  const int n = layout.groups_per_super() * kPanelColumns;
  const uint8_t* zeros = super + layout.zeros_offset();
  // FP4 codes are multiplied as 2 * value.
  decode_scales_avx2(layout.scale_type, super + layout.scales_offset(), n,
                     kCode == CodeKind::fp4 ? 0.5f : 1.0f, &out.scale[0][0]);
  out.largest = largest_magnitude(&out.scale[0][0], n);
  if constexpr (is_additive(kCode))
    decode_zeros_avx2<kCode>(layout, super, n, &out.scale[0][0], &out.zero[0][0]);
  ExpandedCodes<kCode> expanded;
  const uint8_t* const of_super = codes_of_super<kCode>(layout, super, 0, expanded);
  for (int line = 0; line < kBlocksPerSuper * Lines::kLines; ++line)
    for (int v = 0; v < 8; ++v) {
      const int in_block = line % Lines::kLines, group = (line * 2 / Lines::kLines) >> shift;
      const uint8_t* from =
          of_super + (line / Lines::kLines * kColumnGroups + v / 2) * Lines::kBytes;
      const Codes8 codes =
          Lines::read(from, in_block, v % 2, zeros + group * kPanelColumns + 8 * v);
      const auto to = [&](int step) { return reinterpret_cast<__m256i*>(out.codes[step][8 * v]); };
      if constexpr (is_eight_bits(kCode)) {
        _mm256_store_si256(to(line), codes.low);
      } else {
        _mm256_store_si256(to(2 * line), unsigned_codes<kCode, kSparse, 0>(codes));
        _mm256_store_si256(to(2 * line + 1), unsigned_codes<kCode, kSparse, 1>(codes));
      }
      if constexpr (Lines::kCountsKept) {
        const Codes8 kept = Lines::kept(from, in_block, v % 2);
        _mm256_store_si256(reinterpret_cast<__m256i*>(out.kept[2 * line][8 * v]), kept.low);
        _mm256_store_si256(reinterpret_cast<__m256i*>(out.kept[2 * line + 1][8 * v]), kept.high);
      }
    }
}

void dequantize_any(const PanelArgs& args, const uint8_t* super, int, Avx2DequantizedI8& out) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    dequantize<kCode, kSparse>(*args.layout, super, out);
  });
}

constexpr int kVectors = 2;  ///< of 8 columns, in a tile

/// A superblock and a tile of rows.
struct DequantizedWalk {
  const Avx2DequantizedI8* dequantized;
  int group_shift;  ///< log2 of the parts of 16 slots in a group
  bool additive, counts_kept;
  bool corrected;  ///< codes are unsigned and their offset is no zero
  int64_t a_block_size;
};

/// Steps of 4 slots x 16 columns, one after the other.
using Steps = const uint8_t (*)[kPanelColumns][4];

/// Hides the value from the optimizer, which would otherwise reassociate the sum of all steps into
/// a tree, keep all products for it, and spill half of them.
MARLIN_AVX2 MARLIN_INLINE void settle(__m256i& value) { __asm__("" : "+x"(value)); }

/// Adds the integer products of 16 slots.
template <int kRows, bool kEight>
MARLIN_AVX2 MARLIN_INLINE void dot_16(Steps codes, int column, const uint32_t* x,
                                      __m256i (&dot)[kRows][kVectors]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int step = 0; step < 4; ++step) {
    __m256i w[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      w[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes[step][column + 8 * v]));
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      const __m256i b = _mm256_set1_epi32(static_cast<int>(x[step * kRows + r]));
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        __m256i product =
            kEight ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[v]), _mm256_sign_epi8(b, w[v]))
                   : _mm256_maddubs_epi16(w[v], b);
        if (kEight) product = _mm256_madd_epi16(product, ones);
        if (step == 0)
          dot[r][v] = product;
        else
          dot[r][v] =
              kEight ? _mm256_add_epi32(dot[r][v], product) : _mm256_add_epi16(dot[r][v], product);
        settle(dot[r][v]);
      }
    }
    fence();
  }
  if constexpr (!kEight)
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm256_madd_epi16(dot[r][v], ones);
}

/// The integer sums of one part of a block, 16 or 32 slots. With 3 rows, two sets of sums, two
/// vectors of codes, one of activations and a product take all 16 registers.
template <int kRows, bool kEight, int kParts>
MARLIN_AVX2 MARLIN_INLINE void dot_part(Steps codes, int column, const uint32_t* x,
                                        __m256i (&dot)[kRows][kVectors]) {
  dot_16<kRows, kEight>(codes, column, x, dot);
  if constexpr (kParts == 1) {
    __m256i half[kRows][kVectors];
    dot_16<kRows, kEight>(codes + 4, column, x + 4 * kRows, half);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) dot[r][v] = _mm256_add_epi32(dot[r][v], half[r][v]);
  }
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
template <int kRows>
MARLIN_AVX2 MARLIN_INLINE void add_zeros(const float* zero, const uint32_t* d,
                                         const __m256i (&count)[kRows][kVectors], float* sums) {
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = sums + r * kPanelColumns + 8 * v;
      const __m256 sum = _mm256_mul_ps(_mm256_cvtepi32_ps(count[r][v]),
                                       _mm256_set1_ps(std::bit_cast<float>(d[r])));
      _mm256_store_ps(to, _mm256_fmadd_ps(sum, _mm256_load_ps(zero + 8 * v), _mm256_load_ps(to)));
    }
}

/// Multiplies kRows rows by 16 columns of a superblock. Bytes of 8-bit codes are signed here, so
/// they need no correction by the sums.
template <int kRows, bool kEight, int kParts, bool kClamp>
MARLIN_AVX2 [[gnu::noinline]] void multiply_columns(const DequantizedWalk& walk, int column,
                                                    const uint32_t* a_block, float* sums) {
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += walk.a_block_size)
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      const int group = (b * 2 + part) >> walk.group_shift, first = part * 4;
      const uint32_t *const d = a_block + 8 * kRows, *const extra = d + (1 + part) * kRows;
      const Steps codes = &walk.dequantized->codes[b * 8 + first],
                  kept = &walk.dequantized->kept[b * 8 + first];
      __m256i dot[kRows][kVectors];
      if (walk.counts_kept) {
        dot_part<kRows, false, kParts>(kept, column, a_block + first * kRows, dot);
        add_zeros<kRows>(&walk.dequantized->zero[group][column], d, dot, sums);
      } else if (walk.additive) {
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r)
          dot[r][0] = dot[r][1] = _mm256_set1_epi32(static_cast<int>(extra[r]));
        add_zeros<kRows>(&walk.dequantized->zero[group][column], d, dot, sums);
      }
      dot_part<kRows, kEight, kParts>(codes, column, a_block + first * kRows, dot);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const __m256 scale = _mm256_load_ps(&walk.dequantized->scale[group][column + 8 * v]);
#pragma GCC unroll 3
        for (int r = 0; r < kRows; ++r) {
          float* to = sums + r * kPanelColumns + 8 * v;
          const __m256 of_row = _mm256_set1_ps(std::bit_cast<float>(d[r]));
          // The sum of the activations corrects the offset of unsigned codes (activations.h).
          const __m256i whole = _mm256_add_epi32(
              dot[r][v], _mm256_set1_epi32(walk.corrected ? static_cast<int>(extra[r]) : 0));
          const __m256 factor =
              kClamp ? finite_product(scale, of_row) : _mm256_mul_ps(scale, of_row);
          _mm256_store_ps(to,
                          _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), factor, _mm256_load_ps(to)));
        }
      }
    }
}

template <int kRows, bool kEight>
void multiply_rows(const DequantizedWalk& walk, bool halves, bool clamp, const uint32_t* a_block,
                   float* sums) {
  const auto by_halves =
      clamp ? multiply_columns<kRows, kEight, 2, true> : multiply_columns<kRows, kEight, 2, false>;
  const auto by_blocks =
      clamp ? multiply_columns<kRows, kEight, 1, true> : multiply_columns<kRows, kEight, 1, false>;
  const auto run = halves ? by_halves : by_blocks;
  for (int column = 0; column < kPanelColumns; column += 8 * kVectors)
    run(walk, column, a_block, sums + column);
}

template <int kRows>
void multiply_tile(const Avx2DequantizedI8& dequantized, bool first, const PanelArgs& args,
                   int64_t tile, const uint32_t* a_block, float* sums) {
  const int group = args.layout->slot_group;
  const DequantizedWalk walk{&dequantized,
                             std::countr_zero(static_cast<unsigned>(group / 16)),
                             is_additive(args.code),
                             is_additive(args.code) && args.layout->sparse,
                             !is_additive(args.code) && !is_eight_bits(args.code),
                             args.activations.a_block_size()};
  const auto* row_stats =
      reinterpret_cast<const float*>(args.packed_a + args.activations.rows_offset(tile));
  const bool clamp = !ScaleRange::of<false>(row_stats, kRows).holds(0, dequantized.largest);
  if (first) std::fill_n(sums, kRows * kPanelColumns, 0.0f);
  if (is_eight_bits(args.code))
    multiply_rows<kRows, true>(walk, group == 16, clamp, a_block, sums);
  else
    multiply_rows<kRows, false>(walk, group == 16, clamp, a_block, sums);
}

void tile_any(const Avx2DequantizedI8& dequantized, int, bool first, const PanelArgs& args,
              int64_t tile, const uint32_t* a_block, float* sums) {
  switch (args.activations.tile_rows) {
    case 1:
      return multiply_tile<1>(dequantized, first, args, tile, a_block, sums);
    case 2:
      return multiply_tile<2>(dequantized, first, args, tile, a_block, sums);
    default:
      return multiply_tile<3>(dequantized, first, args, tile, a_block, sums);
  }
}

}  // namespace

void cpu_avx2_dequant_any_i8(const PanelArgs& args) {
  walk_chunks<Avx2DequantizedI8, dequantize_any, tile_any>(args);
}

}  // namespace metal_marlin::cpu

#endif
