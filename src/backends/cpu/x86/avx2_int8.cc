// INT8 compute with AVX2 for many rows. Codes are dequantized as bytes, a superblock at a time, and
// multiplied by vpmaddubsw (avx2_int8.h).
//
//   packed stream --decode--> superblock in L1       registers
//                             codes [step][64][4] ---> w[v]       8 columns x 4 slots, v = 0, 1
//   packed A block   -----------------------> b          4 slots of a row, in all lanes
//   sums (in L1)   <-- sums of a part of a block, scaled
//
//   M: tiles of up to 3 rows. N: 16 columns at a time, four times. K: superblock, block, part,
//   16 slots, step of 4 slots.
//
// Template parameters: kRows 1 to 3; kEight: 8-bit codes; kParts 2 with groups of 16, else 1;
// kClamp: scale * d may overflow; dequantize takes every kCode, and every sparse one except those
// of 8 bits.
//
// Limits: at 3 rows, two sets of 6 sums, two vectors of codes, one of activations and a product
// take all 16 registers.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_int8.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kStepsPerSuper = kSuperSlots / 4;

/// Codes of a step of 4 slots.
using Steps = const uint8_t (*)[kPanelColumns][4];

struct Avx2DequantizedI8 : Avx2FloatScales {
  uint8_t codes[kStepsPerSuper][kPanelColumns][4];
  /// For 2:4 sparse weights with additive zeros: 1 for kept slots, 0 for others.
  uint8_t kept[kStepsPerSuper][kPanelColumns][4];
  uint32_t largest;  ///< magnitude of scale, as bits
};

/// The codes of a superblock as kernels of kCode read them, perhaps expanded to `to`.
template <CodeKind kCode>
MARLIN_INLINE const uint8_t* codes_of_super(const PanelLayout& layout, const uint8_t* super,
                                            int64_t ahead, ExpandedCodes<kCode>& to) {
  if (!may_be_expanded(kCode) || layout.expansion == Expansion::none) return super;
  expand_avx2(layout, super, 0, kColumnGroups, ahead, to.bytes);
  return to.bytes;
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX2 void dequantize(const PanelLayout& layout, const uint8_t* super,
                            Avx2DequantizedI8& out) {
  using Lines = CodeLines8<kCode, kSparse>;
  const int shift = std::countr_zero(static_cast<unsigned>(layout.slot_group / 16));
  const uint8_t* zeros = super + layout.zeros_offset();
  decode_super(layout, kCode, super, out);
  out.largest = largest_magnitude(&out.scale[0][0], layout.groups_per_super() * kPanelColumns);
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

/// Codes of half a block, from a column on.
struct DequantizedCodes {
  Steps steps;
  int column;
  MARLIN_AVX2 MARLIN_INLINE __m256i operator()(int step, int v) const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(steps[step][column + 8 * v]));
  }
};

/// A superblock, for multiply_int8_block.
template <bool kEightBits>
struct DequantizedWalk {
  static constexpr Products kProducts = kEightBits ? Products::signed_bytes : Products::four;
  static constexpr int kSumShift = 0;
  const Avx2DequantizedI8* scales;
  int group_shift;
  CodeKind code;
  bool sparse;

  bool adds_zeros() const { return metal_marlin::is_additive(code); }
  bool counts_kept() const { return adds_zeros() && sparse; }
  bool corrected() const { return !kEightBits && !adds_zeros(); }
  MARLIN_INLINE DequantizedCodes codes(int b, int half, int column, int) const {
    return {&scales->codes[b * 8 + half * 4], column};
  }
  /// Additive zeros of 2:4 sparse weights multiply the activations at kept slots.
  template <int kRows, int kVectors>
  MARLIN_AVX2 [[gnu::noinline]] void add_kept_zeros(int b, int part, int column,
                                                    const uint32_t* a_block, float* sums) const {
    const int end = group_shift == 0 ? part + 1 : 2;
    __m256i count[kRows][kVectors] = {};
    for (int half = part; half < end; ++half) {
      __m256i more[kRows][kVectors];
      const DequantizedCodes kept{&scales->kept[b * 8 + half * 4], column};
      dot_16<kRows, kVectors, Products::four>(kept, a_block + 4 * half * kRows, more);
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) count[r][v] = _mm256_add_epi32(count[r][v], more[r][v]);
    }
    add_zeros<kRows, kVectors>(*this, (2 * b + part) >> group_shift, column, a_block + 8 * kRows,
                               count, sums);
  }
};

template <int kRows, bool kEight, bool kClamp, int kParts>
MARLIN_AVX2 [[gnu::noinline]] void multiply_columns(const DequantizedWalk<kEight>& walk, int column,
                                                    const uint32_t* a_block, float* sums) {
  const int words = int8_block_words<kRows>(walk.group_shift);
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += words)
    multiply_int8_block<kRows, kVectors, kClamp, kParts>(walk, b, column, a_block, sums);
}

template <int kRows, bool kEight>
void multiply_rows(const DequantizedWalk<kEight>& walk, bool clamp, const uint32_t* a_block,
                   float* sums) {
  auto run = walk.group_shift == 0 ? multiply_columns<kRows, kEight, false, 2>
                                   : multiply_columns<kRows, kEight, false, 1>;
  if (clamp) run = multiply_columns<kRows, kEight, true, 0>;
  for (int column = 0; column < kPanelColumns; column += 8 * kVectors)
    run(walk, column, a_block, sums + column);
}

template <int kRows>
void multiply_tile(const Avx2DequantizedI8& dequantized, bool first, const PanelArgs& args,
                   int64_t tile, const uint32_t* a_block, float* sums) {
  const int group_shift = std::countr_zero(static_cast<unsigned>(args.layout->slot_group / 16));
  const bool clamp = !finite_scales(args, tile, kRows).holds(0, dequantized.largest),
             sparse = args.layout->sparse;
  if (first) std::fill_n(sums, kRows * kPanelColumns, 0.0f);
  if (is_eight_bits(args.code))
    multiply_rows<kRows>(DequantizedWalk<true>{&dequantized, group_shift, args.code, sparse}, clamp,
                         a_block, sums);
  else
    multiply_rows<kRows>(DequantizedWalk<false>{&dequantized, group_shift, args.code, sparse},
                         clamp, a_block, sums);
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

void avx2_multiply_dequantized(const PanelArgs& args, int64_t tile, const uint8_t* super,
                               const uint32_t* a_block, float* sums) {
  Avx2DequantizedI8 dequantized;
  dequantize_any(args, super, 0, dequantized);
  tile_any(dequantized, 0, false, args, tile, a_block, sums);
}

void cpu_avx2_dequant_any_i8(const PanelArgs& args) {
  walk_chunks<Avx2DequantizedI8, dequantize_any, tile_any>(args);
}

}  // namespace metal_marlin::cpu

#endif
