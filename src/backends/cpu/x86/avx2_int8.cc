// INT8 compute with AVX2, by vpmaddubsw (avx2_int8.h). With few rows (gemv), the kernel reads the
// packed stream once and decodes codes in registers. With many (dequant), it expands a superblock
// to bytes in L1, which all tiles multiply in the same way.
//
//   packed stream, or L1   registers, for 8 columns
//   half a line      ----> w[v]   8 columns x 4 slots: the low nibbles of every byte (FP4: looked
//                                 up by vpshufb), then the high ones; or the bytes themselves; or
//                                 joined planes, and integers of IQ4 (avx2_reading.h)
//   scales           ----> floats, or bytes and factors of two levels (avx2_int8.h)
//   packed A block   ----> b      4 slots of a row, in all lanes
//   sums (in L1)     <---- sums of a part of a block, scaled
//
//   M: a pass over the panel, or the superblock, for each tile of kRows rows. N and K as memory has
//   them: superblock, block, 16 columns (gemv with 3 rows: 8), part, 16 slots, step of 4 slots.
//   Planes with integer zeros, and scales whose products may overflow, are expanded with few rows,
//   too.
//
// Template parameters: how codes and their scales are read; kRows 1 to 3; kClamp: scale * d may
// overflow; kParts: 2 with groups of 16, 1 for larger ones, 0 for both.
//
// Limits: a block of 8 columns takes 32 instructions with one row of 4-bit codes, of which 12 need
// one of two ports. By count that is 14 bytes a cycle, so that memory is the limit. At 3 rows, two
// sets of 6 sums, two vectors of codes, one of activations and a product take all 16 registers.
#if defined(__x86_64__)

#include <algorithm>
#include <bit>

#include "backends/cpu/x86/avx2_reading.h"

namespace metal_marlin::cpu {
namespace {

/// A superblock, for multiply_int8_block.
template <Reading kReading, class Scales, bool kFetches>
struct Int8Walk {
  using Codes = PackedCodes<kReading, kFetches>;
  static constexpr Products kProducts = Codes::kProducts;
  static constexpr int kSumShift = Codes::kSumShift;
  const Scales* scales;
  bool additive;
  int group_shift;
  const uint8_t* super;
  const uint32_t (*offsets)[kPanelColumns];
  Ahead ahead;
  const uint8_t* kept;  ///< expanded codes that are 1 where a slot is kept; null: zeros are of all

  bool adds_zeros() const {
    return kReading != Reading::less_zeros && kReading != Reading::looked_up && additive;
  }
  bool counts_kept() const { return kReading == Reading::expanded && kept != nullptr; }
  bool corrected() const { return kProducts != Products::signed_bytes && !adds_zeros(); }
  MARLIN_INLINE static const uint8_t* lines_of(const uint8_t* codes, int b, int column) {
    return codes + (b * kColumnGroups + column / kGroupColumns) * Codes::kBytes +
           column % kGroupColumns * 4;
  }
  MARLIN_INLINE Codes codes(int b, int half, int column, int group) const {
    return {lines_of(super, b, column), &offsets[group][column], half, ahead};
  }
  /// Additive zeros of 2:4 sparse weights multiply the activations at kept slots.
  template <int kRows, int kVectors>
  MARLIN_AVX2 [[gnu::noinline]] void add_kept_zeros(int b, int part, int column,
                                                    const uint32_t* a_block, float* sums) const {
    const int end = group_shift == 0 ? part + 1 : 2;
    __m256i count[kRows][kVectors] = {};
    for (int half = part; half < end; ++half) {
      __m256i more[kRows][kVectors];
      const Codes ones{lines_of(kept, b, column), offsets[0], half, {}};
      dot_16<kRows, kVectors, kProducts>(ones, a_block + 4 * half * kRows, more);
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) count[r][v] = _mm256_add_epi32(count[r][v], more[r][v]);
    }
    add_zeros<kRows, kVectors>(*this, (2 * b + part) >> group_shift, column, a_block + 8 * kRows,
                               count, sums);
  }
};

/// Multiplies a tile by a superblock in the order of memory, which keeps its prefetchers busy.
template <int kRows, int kVectors, bool kClamp, int kParts, class Walk>
MARLIN_AVX2 MARLIN_INLINE void multiply_super(const Walk& walk, const uint32_t* a_block,
                                              float* sums) {
  const int words = int8_block_words<kRows>(walk.group_shift);
  for (int b = 0; b < kBlocksPerSuper; ++b, a_block += words)
    for (int column = 0; column < kPanelColumns; column += 8 * kVectors)
      multiply_int8_block<kRows, kVectors, kClamp, kParts>(walk, b, column, a_block, sums + column);
}

/// A superblock in L1.
struct Dequantized {
  FloatScales scales;
  ExpandedCodes<CodeKind::i8> expanded, kept;
  const uint8_t* codes;
  bool counts_kept;
  uint32_t largest;  ///< magnitude of scales, as bits
};

MARLIN_AVX2 void dequantize(const PanelArgs& args, const uint8_t* super, int, Dequantized& out) {
  const PanelLayout& layout = *args.layout;
  const SuperShape shape(layout);
  const Magnitudes all =
      decode_with_range(args.code, shape, super, 0, kColumnGroups, code_factor(args.code),
                        out.scales.scale[0], out.scales.zero[0]);
  alignas(32) uint32_t lanes[Vec::kLanes];
  Vec::store(lanes, all.largest);
  out.largest = *std::max_element(lanes, lanes + Vec::kLanes);
  out.codes = super;
  if (!is_eight_bits(args.code) || shape.expands) {
    expand_super(layout, args.code, 0, super, 0, out.expanded.bytes);
    out.codes = out.expanded.bytes;
  }
  out.counts_kept = layout.sparse && is_additive(args.code);
  if (out.counts_kept) expand_kept(layout, super, out.kept.bytes);
}

template <Reading kReading, int kRows, bool kClamp, int kParts>
MARLIN_AVX2 [[gnu::noinline]] void multiply_dequantized(const Dequantized& of,
                                                        const PanelArgs& args,
                                                        const uint32_t* a_block, float* sums) {
  const Int8Walk<kReading, FloatScales, false> walk{&of.scales,
                                                    is_additive(args.code),
                                                    SuperShape::shift_of(*args.layout),
                                                    of.codes,
                                                    of.scales.offset,
                                                    {},
                                                    of.counts_kept ? of.kept.bytes : nullptr};
  multiply_super<kRows, 2, kClamp, kParts>(walk, a_block, sums);
}

template <Reading kReading, int kRows>
void multiply_rows(const Dequantized& of, const PanelArgs& args, int64_t tile,
                   const uint32_t* a_block, float* sums) {
  auto run = args.layout->slot_group == 16 ? multiply_dequantized<kReading, kRows, false, 2>
                                           : multiply_dequantized<kReading, kRows, false, 1>;
  if (!finite_scales(args, tile, kRows).holds(0, of.largest))
    run = multiply_dequantized<kReading, kRows, true, 0>;
  run(of, args, a_block, sums);
}

void multiply_tile(const Dequantized& of, int, bool first, const PanelArgs& args, int64_t tile,
                   const uint32_t* a_block, float* sums) {
  const int rows = args.activations.tile_rows;
  if (first) std::fill_n(sums, rows * kPanelColumns, 0.0f);
  with_rows<3>(rows, [&]<int kRows>() {
    is_eight_bits(args.code)
        ? multiply_rows<Reading::bytes, kRows>(of, args, tile, a_block, sums)
        : multiply_rows<Reading::expanded, kRows>(of, args, tile, a_block, sums);
  });
}

using Multiply = void (*)(const PanelArgs&, const SuperShape&, const uint8_t*, const uint32_t*,
                          float*);

template <Reading kReading, class Scales, int kRows>
MARLIN_AVX2 void multiply_packed(const PanelArgs& args, const SuperShape& shape,
                                 const uint8_t* super, const uint32_t* a_block, float* sums) {
  Scales scales;
  scales.decode(args.code, shape, super);
  const uint32_t(*offsets)[kPanelColumns] = nullptr;
  if constexpr (kReading == Reading::less_zeros) offsets = scales.offset;
  const Int8Walk<kReading, Scales, true> walk{&scales,     is_additive(args.code),
                                              shape.shift, super,
                                              offsets,     Ahead{shape.ahead, kSecondChance},
                                              nullptr};
  multiply_super < kRows, kRows<3 ? 2 : 1, false, 0>(walk, a_block, sums);
}

/// One tile and one panel. `multiply` reads packed codes, and is null if they have to be expanded.
/// Expanded codes, and scales whose products with d may overflow, take the way of many rows.
void run_tile(const PanelArgs& args, int64_t index, Multiply multiply, float* sums) {
  const SuperShape shape(*args.layout);
  const int rows = args.activations.tile_rows;
  const bool packed =
      multiply != nullptr &&
      finite_scales(args, index, rows).holds(0, largest_scale(args.layout->scale_type));
  const uint32_t* a_block = args.packed_a + args.activations.offset(index, 0);
  std::fill_n(sums, rows * kPanelColumns, 0.0f);
  const uint8_t* super = args.panel;
  for (int64_t s = 0; s < args.layout->superblocks(); ++s, super += shape.bytes) {
    shape.fetch_scales(super);
    if (packed) [[likely]] {
      multiply(args, shape, super, a_block, sums);
    } else {
      Dequantized dequantized;
      dequantize(args, super, 0, dequantized);
      multiply_tile(dequantized, 0, false, args, index, a_block, sums);
    }
    a_block += kBlocksPerSuper * args.activations.a_block_size();
  }
}

template <Reading kReading, class Scales>
void run_tiles(const PanelArgs& args) {
  static constexpr Multiply kMultiply[] = {multiply_packed<kReading, Scales, 1>,
                                           multiply_packed<kReading, Scales, 2>,
                                           multiply_packed<kReading, Scales, 3>};
  const int rows = args.activations.tile_rows;
  const bool reads = kReading != Reading::bytes || args.layout->expansion == Expansion::none;
  for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
    run_tile(args, tile, reads ? kMultiply[rows - 1] : nullptr,
             args.sums + (tile - args.tile_begin) * rows * kPanelColumns);
}

}  // namespace

void cpu_avx2_gemv_any_i8(const PanelArgs& args) {
  const Reading reading = packed_reading(args);
  using enum Reading;
  const bool is_k_quant = reading != less_zeros && reading != looked_up && reading != bytes;
  if (is_k_quant && has_two_level_scales(*args.layout, args.code))
    return with_reading_of<nibbles, two_bits, three_bits, five_bits, six_bits, iq4>(
        reading, [&]<Reading kReading>() { run_tiles<kReading, IntegerScales>(args); });
  with_reading_of<nibbles, less_zeros, looked_up, bytes, two_bits, three_bits, five_bits, six_bits,
                  iq4>(reading,
                       [&]<Reading kReading>() { run_tiles<kReading, FloatScales>(args); });
}

void cpu_avx2_dequant_any_i8(const PanelArgs& args) {
  walk_chunks<Dequantized, dequantize, multiply_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
