// INT8 compute for many rows, by tdpbssd (amx.h): signed codes times signed activations, so that no
// sum corrects an offset. 8-bit codes are tiles in the packed stream already; others are expanded
// to tiles a chunk at a time, which all tiles of rows multiply.
//
//   packed stream --decode--> chunk in L1          tile registers          vectors
//                             [block][v] tile ---> B (8 slot quads
//                                                    x 16 columns)
//   packed A block            -------------------> A (16 rows x 32 slots)
//                              sums of blocks <--- C = A B of one block, integers
//                                             -----------------------> acc[r] += float(sum[r])
//                                                                      * (scale * d[r])
//   sums (in L1)              <--------------------------------------> acc[r]  once per chunk
//
//   M: tiles of up to 16 rows. N: 16 columns at a time, four times. K: chunk of 4 blocks, block
//   (with groups of 16: half a block).
//
// Template parameters: kFactor product or finite; kRows 2, 4, .. 16, the rows of a tile.
//
// Limits: d changes with every block, so every block leaves the tiles: 16 loads each of A, B and
// sums, 16 stores, and 48 conversions and multiplications, of which a cycle does two loads, one
// store and two of the last. The products of two blocks run while the sums of the two blocks before
// are scaled.
#if defined(__x86_64__)

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/amx.h"
#include "backends/cpu/x86/avx512_int8.h"

namespace metal_marlin::cpu {
namespace {

constexpr int kInt8TileBytes = kTileBytes / 2;  // 8 rows
using WeightTiles = uint8_t[kAmxBlocks][kColumnGroups][kInt8TileBytes];

struct alignas(64) Int8Chunk {
  TileRegisters<6> registers;
  WeightTiles decoded;
  SuperScales scales;
  Magnitudes magnitudes;     ///< of the scales
  const WeightTiles* tiles;  ///< the decoded ones, or those of the stream
};

MARLIN_AVX512 void dequantize(const PanelArgs& args, const uint8_t* super, int, Int8Chunk& out) {
  const SuperShape shape(*args.layout);
  out.magnitudes =
      decode_with_range(args.code, shape, super, 0, kColumnGroups, code_factor(args.code),
                        out.scales.scale[0], out.scales.zero[0]);
  out.tiles = reinterpret_cast<const WeightTiles*>(super);
  if (is_eight_bits(args.code) && !shape.expands) return;
  expand_super(*args.layout, args.code, offset_of_codes(args.code), super, 0, out.decoded[0][0]);
  out.tiles = &out.decoded;
}

/// A part is what is scaled at once: a block, or half a block with groups of 16.
template <Factor kFactor>
struct Tile : AmxTile<Int8Chunk> {
  Tile(const PanelArgs& args, const Int8Chunk& chunk, bool first, const uint32_t* a_block,
       float* sums)
      : AmxTile(args, chunk, first, a_block, sums),
        halves(halves_of(*args.layout)),
        shift(SuperShape::shift_of(*args.layout) - 1 + halves) {}
  static int halves_of(const PanelLayout& layout) {
    return layout.slot_group < kBlockSlots ? 1 : 0;
  }

  MARLIN_INLINE int parts() const { return kAmxBlocks << halves; }
  MARLIN_INLINE const uint32_t* block_of(int part) const {
    return a_block + (part >> halves) * a_block_size;
  }

  /// Multiplies a part in tile 0 or 1. Prefetches some of the activations of the next tile of rows.
  template <int kTile, int kRows>
  MARLIN_AMX MARLIN_INLINE void multiply(int part, int v) const {
    const int half = part & halves;
    const uint32_t* const block = block_of(part);
    const uint32_t* const a = block + 4 * half;
    const uint8_t* const w = (*chunk.tiles)[part >> halves][v] + kInt8TileBytes / 2 * half;
    zero_tile<kTile>();
    if constexpr (kTile == 0) {
      _tile_loadd(4, a, 32);
      _tile_loadd(6, w, 64);
      _tile_dpbssd(0, 4, 6);
    } else {
      _tile_loadd(5, a, 32);
      _tile_loadd(7, w, 64);
      _tile_dpbssd(1, 5, 7);
    }
    if (half == 0) fetch_later_a_blocks<8 * kRows>(block, later(), v);
  }

  /// acc += the sums of a part times its scales, and the sums of activations times its zero.
  template <int kRows>
  MARLIN_AMX MARLIN_INLINE void scale(int part, int v, const GroupSums& of_part,
                                      __m512 (&acc)[kRows]) const {
    const int group = part >> shift;
    const uint32_t* const d = block_of(part) + 8 * kRows;
    const __m512 scale = _mm512_load_ps(&chunk.scales.scale[group][16 * v]);
    MARLIN_UNROLLED(r, kRows) {
      const __m512 factor = factor_of<kFactor>(scale, broadcast_float(d + r));
      const __m512i sum = _mm512_load_si512(of_part.of[part & 1][r]);
      acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, acc[r]);
    }
    if (!additive) return;
    const uint32_t* const counts = d + (1 + (part & halves)) * kRows;
    constexpr auto kMask = static_cast<__mmask16>((1 << kRows) - 1);
    alignas(64) float products[kTileRows];
    _mm512_store_ps(products,
                    _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(kMask, counts)),
                                  _mm512_maskz_loadu_ps(kMask, d)));
    const __m512 zero = _mm512_load_ps(&chunk.scales.zero[group][16 * v]);
    MARLIN_UNROLLED(r, kRows) acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(products[r]), zero, acc[r]);
  }

  int halves;  ///< 1 if parts are halves of blocks, else 0
  int shift;   ///< part i belongs to group i >> shift
};

MARLIN_AVX512 void multiply_tile(Int8Chunk& chunk, int, bool first, const PanelArgs& args,
                                 int64_t index, const uint32_t* a_block, float* sums) {
  const ActivationLayout& act = args.activations;
  const int rows = act.tile_rows;
  const auto* row_stats = reinterpret_cast<const float*>(args.packed_a + act.rows_offset(index));
  const bool finite = holds(ScaleRange::of<false>(row_stats, rows), chunk.magnitudes);
  chunk.registers.set_sizes(rows, 8 >> Tile<Factor::product>::halves_of(*args.layout));
  dispatch_rows<kTileRows>(rows, [&]<int kRows>() {
    finite ? multiply_rows<kRows>(Tile<Factor::product>(args, chunk, first, a_block, sums))
           : multiply_rows<kRows>(Tile<Factor::finite>(args, chunk, first, a_block, sums));
  });
}

}  // namespace

void cpu_amx_dequant_any_i8(const PanelArgs& args) {
  walk_chunks<Int8Chunk, dequantize, multiply_tile>(args);
}

}  // namespace metal_marlin::cpu

#endif
