// INT8 compute for many rows, by tdpbssd (amx.h): signed codes times signed activations, so that no
// sum corrects an offset. 8-bit codes are tiles in the packed stream already; others are decoded to
// tiles a chunk at a time, which all tiles of rows multiply.
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
// Template parameters: kCode u4, u4zero, fp4, dense or sparse; u4add, i8, i8add, dense; kFactor
// product or finite; kRows 2, 4, .. 16, the rows of a tile.
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
  Int8Super scales;
  Magnitudes magnitudes;     ///< of the scales
  const WeightTiles* tiles;  ///< the decoded ones, or those of the stream
};

/// 4 slots of 16 columns as signed bytes: quad kQuad of a 4-bit line.
template <CodeKind kCode, bool kSparse, int kQuad>
MARLIN_AVX512 MARLIN_INLINE __m512i signed_quad(Codes codes) {
  const __m512i bytes = CodeLines<kCode, kSparse>::template bytes<kQuad>(codes);
  // read() has subtracted the zeros from the codes, and added 16.
  if constexpr (kCode == CodeKind::u4zero) return _mm512_sub_epi8(bytes, _mm512_set1_epi8(16));
  return signed_codes<kCode>(bytes);
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX512 void decode_tiles(const SuperShape& shape, const uint8_t* codes,
                                const Int8Super& scales, WeightTiles& out) {
  using Lines = CodeLines<kCode, kSparse>;
  for (int b = 0; b < kAmxBlocks; ++b)
    for (int v = 0; v < kColumnGroups; ++v, codes += Lines::kBytes)
      MARLIN_UNROLLED(line, Lines::kLines) {
        const int group = (2 * b + line / 2) >> shape.shift;
        const Codes packed =
            Lines::read(codes, line, _mm512_load_si512(&scales.offset[group][16 * v]));
        uint8_t* const to = out[b][v] + 128 * line;
        _mm512_store_si512(to, signed_quad<kCode, kSparse, 0>(packed));
        _mm512_store_si512(to + 64, signed_quad<kCode, kSparse, 1>(packed));
      }
}

template <CodeKind kCode, bool kSparse>
MARLIN_AVX512 void dequantize(const PanelArgs& args, const uint8_t* super, int, Int8Chunk& out) {
  const SuperShape shape(*args.layout);
  out.magnitudes = decode_int8_super(kCode, shape, super, 0, kColumnGroups, out.scales);
  out.tiles = &out.decoded;
  if constexpr (!is_eight_bits(kCode))
    decode_tiles<kCode, kSparse>(shape, super, out.scales, out.decoded);
  else if (shape.expands)
    expand_avx512(*args.layout, super, 0, kColumnGroups, 0, out.decoded[0][0]);
  else
    out.tiles = reinterpret_cast<const WeightTiles*>(super);
}

/// A part is what is scaled at once: a block, or half a block with groups of 16.
struct Tile : AmxTile<Int8Chunk> {
  Tile(const PanelArgs& args, const Int8Chunk& chunk, bool first, const uint32_t* a_block,
       float* sums)
      : AmxTile(args, chunk, first, a_block, sums),
        halves(args.layout->slot_group < kBlockSlots ? 1 : 0),
        shift(SuperShape::shift_of(*args.layout) - 1 + halves) {}

  MARLIN_INLINE int parts() const { return kAmxBlocks << halves; }
  MARLIN_INLINE const uint32_t* block_of(int part) const {
    return a_block + (part >> halves) * a_block_size;
  }

  int halves;  ///< 1 if parts are halves of blocks, else 0
  int shift;   ///< part i belongs to group i >> shift
};

/// Multiplies a part in tile 0 or 1. Prefetches some of the activations of the next tile of rows.
template <int kTile, int kRows>
MARLIN_AMX MARLIN_INLINE void multiply_part(const Tile& tile, int part, int v) {
  const int half = part & tile.halves;
  const uint32_t* const block = tile.block_of(part);
  const uint32_t* const a = block + 4 * half;
  const uint8_t* const w = (*tile.chunk.tiles)[part >> tile.halves][v] + kInt8TileBytes / 2 * half;
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
  if (half == 0) fetch_later_a_blocks<8 * kRows>(block, tile.later(), v);
}

/// acc += the sums of a part times its scales, and the sums of activations times its zero.
template <Factor kFactor, int kRows>
MARLIN_AMX MARLIN_INLINE void scale_part(const Tile& tile, int part, int v, const GroupSums& sums,
                                         __m512 (&acc)[kRows]) {
  const int group = part >> tile.shift;
  const uint32_t* const d = tile.block_of(part) + 8 * kRows;
  const __m512 scale = _mm512_load_ps(&tile.chunk.scales.scale[group][16 * v]);
  MARLIN_UNROLLED(r, kRows) {
    const __m512 factor = factor_of<kFactor>(scale, _mm512_castsi512_ps(broadcast(d + r)));
    const __m512i sum = _mm512_load_si512(sums.of[part & 1][r]);
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, acc[r]);
  }
  if (!tile.additive) return;
  const uint32_t* const counts = d + (1 + (part & tile.halves)) * kRows;
  constexpr auto kMask = static_cast<__mmask16>((1 << kRows) - 1);
  alignas(64) float products[kTileRows];
  _mm512_store_ps(products,
                  _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(kMask, counts)),
                                _mm512_maskz_loadu_ps(kMask, d)));
  const __m512 zero = _mm512_load_ps(&tile.chunk.scales.zero[group][16 * v]);
  MARLIN_UNROLLED(r, kRows) acc[r] = _mm512_fmadd_ps(_mm512_set1_ps(products[r]), zero, acc[r]);
}

template <Factor kFactor, int kRows>
MARLIN_AMX [[gnu::noinline]] void multiply_rows(const Tile& tile) {
  const int parts = tile.parts();
  for (int v = 0; v < kColumnGroups; ++v) {
    __m512 acc[kRows];
    load_sums(tile.first, tile.sums + 16 * v, acc);
    multiply_part<0, kRows>(tile, 0, v);
    multiply_part<1, kRows>(tile, 1, v);
    for (int part = 0; part < parts; part += 2) {
      GroupSums sums;
      _tile_stored(0, sums.of[0], 64);
      _tile_stored(1, sums.of[1], 64);
      if (part + 2 < parts) {
        multiply_part<0, kRows>(tile, part + 2, v);
        multiply_part<1, kRows>(tile, part + 3, v);
      }
      fence();
      scale_part<kFactor>(tile, part, v, sums, acc);
      scale_part<kFactor>(tile, part + 1, v, sums, acc);
    }
    store_sums(acc, tile.sums + 16 * v);
  }
}

MARLIN_AVX512 void multiply_tile(Int8Chunk& chunk, int, bool first, const PanelArgs& args,
                                 int64_t index, const uint32_t* a_block, float* sums) {
  const ActivationLayout& act = args.activations;
  const int rows = act.tile_rows;
  const Tile tile(args, chunk, first, a_block, sums);
  const auto* row_stats = reinterpret_cast<const float*>(args.packed_a + act.rows_offset(index));
  const bool finite = holds(ScaleRange::of<false>(row_stats, rows), chunk.magnitudes);
  chunk.registers.set_sizes(rows, 8 >> tile.halves);
  dispatch_rows<kTileRows>(rows, [&]<int kRows>() {
    finite ? multiply_rows<Factor::product, kRows>(tile)
           : multiply_rows<Factor::finite, kRows>(tile);
  });
}

}  // namespace

void cpu_amx_dequant_any_i8(const PanelArgs& args) {
  with_codes(args, [&]<CodeKind kCode, bool kSparse>() {
    if constexpr (!kSparse || !is_additive(kCode))
      walk_chunks<Int8Chunk, dequantize<kCode, kSparse>, multiply_tile>(args);
  });
}

}  // namespace metal_marlin::cpu

#endif
