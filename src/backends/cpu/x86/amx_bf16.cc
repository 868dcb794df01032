// BF16 activations, and floats as sums of three BF16 numbers, for many rows, by tdpbf16ps (amx.h).
// A chunk is decoded to tiles of BF16, which all tiles of rows multiply. Codes have at most 8
// significant bits and are exact in BF16. There are two ways to apply
// scales:
//   prescaled: FP4 times an E8M0 or E4M3 scale fits BF16, so the decoded weights contain the scale.
//   dequant: the sums of a scale group leave the tiles and are multiplied by the scale.
//
//   packed stream --decode--> chunk in L1          tile registers          vectors
//   (BF16 weights are tiles   [block][v] tile ---> B (16 slot pairs
//   in the stream already)                           x 16 columns)
//   packed A block            -------------------> A (16 rows x 32 slots)
//                              dequant:            C = sum of A B over a scale group
//                              sums of groups <--- C
//                                             -----------------------> acc[r] += sum[r] * scale
//   sums (in L1)              <--------------------------------------> acc[r]  once per chunk
//                              prescaled:          C[v] += A B[v], loaded and stored once per chunk
//
//   M: tiles of up to 16 rows. N: 16 columns at a time, four times (prescaled: all 64). K: chunk of
//   4 blocks, scale group, block (with groups of 16: half a block).
//
// Template parameters: kCode any but f16, f32 and lut4, dense or sparse, but for sparse u4add;
// kRows 2, 4, .. 16, the rows of a tile; kPieceCount 1 for BF16 and kPieces for floats, the BF16
// numbers that add up to an activation.
//
// Limits: a product of tiles takes 16 cycles for 32 slots, or for 16 with groups of 16. Loading its
// operands, storing its sums and scaling them takes 16 loads each of A, B and sums, 16 stores and
// 16 FMA, of which a cycle does two loads, one store and two FMA. The products of two groups run
// while the sums of the two groups before are scaled. Groups of 64 and 128 scale more rarely.
#if defined(__x86_64__)

#include <algorithm>
#include <utility>

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/amx.h"
#include "backends/cpu/x86/avx512_float.h"

namespace metal_marlin::cpu {
namespace {

using WeightTiles = uint8_t[kAmxBlocks][kColumnGroups][kTileBytes];

struct alignas(64) Bf16Chunk {
  TileRegisters<6> registers;
  WeightTiles decoded;
  SuperScales scales;
  const WeightTiles* tiles;  ///< the decoded ones, or those of the stream
};

/// The lines of 8 slots of a column group: one of 4-bit codes, or two of 8-bit codes.
using Octet = Codes[2];

template <CodeKind kCode, bool kSparse, int kStep>
MARLIN_AVX512 MARLIN_INLINE __m512i decode_octet_step(const Octet& lines, __m512i table) {
  if constexpr (is_eight_bits(kCode))
    return bf16_byte_pair<kStep / 2, true>(lines[kStep % 2].low);
  else
    return bf16_step<kCode, kSparse, kStep>(lines[0], table);
}

template <CodeKind kCode, bool kSparse, int... kStep>
MARLIN_AVX512 MARLIN_INLINE void decode_octet(std::integer_sequence<int, kStep...>,
                                              const Octet& lines, __m512i table, uint8_t* out) {
  (_mm512_store_si512(out + 64 * kStep, decode_octet_step<kCode, kSparse, kStep>(lines, table)),
   ...);
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX512 void decode_tiles(const SuperShape& shape, const uint8_t* codes,
                                const SuperScales& scales, WeightTiles& out) {
  using Lines = CodeLines<kCode, kSparse>;
  constexpr int kLines = Lines::kLines / 4;
  const __m512i table = table_of<ActivationForm::bf16, kCode>(shape.layout, kCode).lower;
  for (int b = 0; b < kAmxBlocks; ++b)
    for (int v = 0; v < kColumnGroups; ++v, codes += Lines::kBytes)
      for (int octet = 0; octet < 4; ++octet) {
        const int group = (2 * b + octet / 2) >> shape.shift;
        Octet lines;
        MARLIN_UNROLLED(i, kLines)
          lines[i] = Lines::read(codes, octet * kLines + i,
                                 _mm512_load_si512(&scales.offset[group][16 * v]));
        decode_octet<kCode, kSparse>(std::make_integer_sequence<int, 4>{}, lines, table,
                                     out[b][v] + 256 * octet);
      }
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX512 void dequantize(const PanelArgs& args, const uint8_t* super, int, Bf16Chunk& out) {
  const SuperShape shape(*args.layout);
  decode_super(kCode, shape, super, out.scales);
  out.tiles = &out.decoded;
  if constexpr (kCode == CodeKind::bf16) {
    if (shape.expands)
      expand_super(*args.layout, args.code, 0, super, 0, out.decoded[0][0]);
    else
      out.tiles = reinterpret_cast<const WeightTiles*>(super);
  } else {
    ExpandedCodes<CodeKind::i8> expanded;
    const bool expands = is_eight_bits(kCode) && shape.expands;
    if (expands) expand_super(*args.layout, args.code, 0, super, 0, expanded.bytes);
    decode_tiles<kCode, kSparse>(shape, expands ? expanded.bytes : super, out.scales, out.decoded);
  }
}

/// A part is what is scaled at once: a scale group. Half-blocks hold 16 slots, and 1 << shift of
/// them share a scale (SuperShape::shift). Activations are sums of kPieceCount numbers.
template <int kPieceCount>
struct Tile : AmxTile<Bf16Chunk> {
  Tile(const PanelArgs& args, const Bf16Chunk& chunk, bool first, const uint32_t* a_block,
       float* sums)
      : AmxTile(args, chunk, first, a_block, sums), shift(SuperShape::shift_of(*args.layout)) {}

  MARLIN_INLINE int parts() const { return 2 * kAmxBlocks >> shift; }
  MARLIN_INLINE int blocks_of_part() const { return shift == 0 ? 1 : 1 << shift >> 1; }
  /// The first block of a part, and with groups of 16 the half of the block.
  MARLIN_INLINE int block(int part) const { return part << shift >> 1; }
  MARLIN_INLINE int half(int part) const { return shift == 0 ? part & 1 : 0; }
  MARLIN_INLINE const uint32_t* a_block_of(int part) const {
    return a_block + block(part) * a_block_size;
  }

  /// Sums up a part in tile 0 or 1. Prefetches some of the activations of the next tile of rows.
  template <int kTile, int kRows>
  MARLIN_AMX MARLIN_INLINE void multiply(int part, int v) const {
    const int half_of_block = half(part);
    const uint32_t* a = a_block_of(part);
    zero_tile<kTile>();
    for (int i = 0; i < blocks_of_part(); ++i, a += a_block_size) {
      multiply_tiles<kTile, kRows>(a + 8 * half_of_block, (*chunk.tiles)[block(part) + i][v] +
                                                              kTileBytes / 2 * half_of_block);
      if (half_of_block == 0) fetch_later_a_blocks<16 * kRows * kPieceCount>(a, later(), v);
    }
  }

  /// acc += the sums of a part times its scale, and the sums of activations times its zero.
  template <int kRows>
  MARLIN_AMX MARLIN_INLINE void scale(int part, int v, const GroupSums& of_part,
                                      __m512 (&acc)[kRows]) const {
    const __m512 scale = _mm512_load_ps(&chunk.scales.scale[part][16 * v]);
    MARLIN_UNROLLED(r, kRows)
      acc[r] = _mm512_fmadd_ps(_mm512_load_ps(of_part.of[part & 1][r]), scale, acc[r]);
    if (!additive) return;
    const __m512 zero = _mm512_load_ps(&chunk.scales.zero[part][16 * v]);
    const uint32_t* x_sums = a_block_of(part) + (16 * kPieceCount + half(part)) * kRows;
    for (int i = 0; i < blocks_of_part(); ++i, x_sums += a_block_size)
      MARLIN_UNROLLED(r, kRows) acc[r] = _mm512_fmadd_ps(broadcast_float(x_sums + r), zero, acc[r]);
  }

  int shift;

 private:
  /// C of tile 0 or 1 += A B for the 32 slots (or 16, as configured) at `a` and `w`.
  template <int kTile, int kRows>
  MARLIN_AMX MARLIN_INLINE static void multiply_tiles(const uint32_t* a, const uint8_t* w) {
    if constexpr (kTile == 0)
      _tile_loadd(6, w, 64);
    else
      _tile_loadd(7, w, 64);
#pragma GCC unroll 3
    for (int piece = 0; piece < kPieceCount; ++piece, a += 16 * kRows)
      if constexpr (kTile == 0) {
        _tile_loadd(4, a, 64);
        _tile_dpbf16ps(0, 4, 6);
      } else {
        _tile_loadd(5, a, 64);
        _tile_dpbf16ps(1, 5, 7);
      }
  }
};

template <int kPieceCount>
void multiply_tile(Bf16Chunk& chunk, int, bool first, const PanelArgs& args, int64_t,
                   const uint32_t* a_block, float* sums) {
  const int rows = args.activations.tile_rows;
  const Tile<kPieceCount> tile(args, chunk, first, a_block, sums);
  chunk.registers.set_sizes(rows, tile.shift == 0 ? 8 : 16);
  dispatch_rows<kTileRows>(rows, [&]<int kRows>() { multiply_rows<kRows>(tile); });
}

/// Activations are sums of kPieceCount numbers.
template <int kPieceCount>
void walk(const PanelArgs& args) {
  with_any_code(args.code, [&]<CodeKind kCode>() {
    if constexpr (!is_real(kCode) || kCode == CodeKind::bf16) {
      if constexpr (!is_eight_bits(kCode) && !is_real(kCode) && !is_additive(kCode))
        if (args.layout->sparse)
          return walk_chunks<Bf16Chunk, dequantize<kCode, true>, multiply_tile<kPieceCount>>(args);
      walk_chunks<Bf16Chunk, dequantize<kCode, false>, multiply_tile<kPieceCount>>(args);
    }
  });
}

struct PrescaledChunk {
  static constexpr int kStride = 64;
  uint8_t* line(int b, int v, int line) { return tiles[b][v] + 4 * kStride * line; }
  TileRegisters<5> registers;
  WeightTiles tiles;
};

MARLIN_AMX [[gnu::noinline]] void multiply_prescaled(const WeightTiles& tiles,
                                                     const uint32_t* a_block, int64_t a_block_size,
                                                     float* sums) {
  constexpr int kStride = kPanelColumns * sizeof(float);
  _tile_loadd(0, sums, kStride);
  _tile_loadd(1, sums + 16, kStride);
  _tile_loadd(2, sums + 32, kStride);
  _tile_loadd(3, sums + 48, kStride);
  for (int b = 0; b < kAmxBlocks; ++b, a_block += a_block_size) {
    _tile_loadd(4, a_block, 64);
    _tile_loadd(5, tiles[b][0], 64);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, tiles[b][1], 64);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, tiles[b][2], 64);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, tiles[b][3], 64);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + 16, kStride);
  _tile_stored(2, sums + 32, kStride);
  _tile_stored(3, sums + 48, kStride);
}

void multiply_prescaled_tile(PrescaledChunk& chunk, int, bool first, const PanelArgs& args, int64_t,
                             const uint32_t* a_block, float* sums) {
  const int rows = args.activations.tile_rows;
  if (first) std::fill_n(sums, rows * kPanelColumns, 0.0f);
  chunk.registers.set_sizes(rows, 16);
  multiply_prescaled(chunk.tiles, a_block, args.activations.a_block_size(), sums);
}

}  // namespace

void cpu_amx_dequant_any_bf16(const PanelArgs& args) { walk<1>(args); }
void cpu_amx_dequant_any_f32(const PanelArgs& args) { walk<kPieces>(args); }
void cpu_amx_prescaled_fp4_bf16(const PanelArgs& args) {
  walk_chunks<PrescaledChunk, dequantize_prescaled<PrescaledChunk>, multiply_prescaled_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
