// Tiles of AMX, which the kernels of many rows multiply. A tile register holds 16 rows of 64 bytes.
//
//   A  rows x 64 bytes: a row of A, a packed A block wide (activations.h, `run`)
//   B  16 rows x 64 bytes: dword c of row i holds the weights of column 16 v + c that the dwords i
//      of A multiply
//   C  rows x 16 sums, the integers or floats of 16 columns
//
// C += A B takes 16 cycles for 16 rows, however long the rows of A are. Nothing else reads a tile
// register, so sums that a scale multiplies go through L1.
#pragma once

#include <cstdint>

#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

inline constexpr int kTileRows = 16, kTileBytes = 1024;
/// A chunk is one superblock, so that its tiles, the activations of a tile of rows and their sums
/// fit in L1 together.
inline constexpr int kAmxBlocks = kBlocksPerSuper;

/// The sizes of the tile registers: sums in tiles 0 to 3, A in the tiles from 4 on, B in the tiles
/// from kFirstB on. The destructor clears the registers, so that no later context switch saves
/// them.
template <int kFirstB>
class TileRegisters {
 public:
  TileRegisters() = default;
  MARLIN_AMX ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  /// A has `rows` rows of `dwords` dwords. Setting sizes takes as long as some products of tiles,
  /// so sizes that are set already are not set again.
  MARLIN_AMX void set_sizes(int rows, int dwords) {
    if (config_.rows[0] == rows) return;
    for (int tile = 0; tile < 8; ++tile) {
      const bool is_a = tile >= 4 && tile < kFirstB, is_b = tile >= kFirstB;
      config_.row_bytes[tile] = static_cast<uint16_t>(is_a ? 4 * dwords : 64);
      config_.rows[tile] = static_cast<uint8_t>(is_b ? dwords : rows);
    }
    fence();  // the intrinsic of g++ 12 does not say that it reads all of its operand
    _tile_loadconfig(&config_);
  }

 private:
  struct alignas(64) Config {  // the operand of ldtilecfg
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
  static_assert(sizeof(Config) == 64);
  Config config_;
};

/// One tile of rows, and a chunk that it multiplies.
template <class Chunk>
struct AmxTile {
  AmxTile(const PanelArgs& args, const Chunk& chunk, bool first, const uint32_t* a_block,
          float* sums)
      : chunk(chunk),
        first(first),
        additive(is_additive(args.code)),
        a_block(a_block),
        a_block_size(args.activations.a_block_size()),
        sums(sums) {}

  /// The distance to the packed A blocks of the next tile of rows, in dwords.
  MARLIN_INLINE int64_t later() const { return kAmxBlocks * a_block_size; }

  const Chunk& chunk;
  bool first;     ///< the first chunk: sums start from 0
  bool additive;  ///< weights have additive zeros
  const uint32_t* a_block;
  int64_t a_block_size;  ///< in dwords
  float* sums;
};

/// Clears sums in tile 0 or 1.
template <int kTile>
MARLIN_AMX MARLIN_INLINE void zero_tile() {
  if constexpr (kTile == 0)
    _tile_zero(0);
  else
    _tile_zero(1);
}

/// Sums of scale groups on their way from tiles 0 and 1 to vectors.
struct alignas(64) GroupSums {
  uint32_t of[2][kTileRows][kGroupColumns];
};

/// Multiplies the parts of a chunk that are scaled at once, by turns in tiles 0 and 1: a tile of
/// rows has parts(), multiply<kTile, kRows>(part, v) and scale(part, v, sums, acc). The products of
/// two parts run while the sums of the two parts before are scaled.
template <int kRows, class Tile>
MARLIN_AMX [[gnu::noinline]] void multiply_rows(const Tile& tile) {
  const int parts = tile.parts();
  for (int v = 0; v < kColumnGroups; ++v) {
    __m512 acc[kRows];
    load_sums(tile.first, tile.sums + 16 * v, acc);
    tile.template multiply<0, kRows>(0, v);
    if (parts > 1) tile.template multiply<1, kRows>(1, v);
    for (int part = 0; part < parts; part += 2) {
      GroupSums sums;
      _tile_stored(0, sums.of[0], 64);
      if (parts > 1) _tile_stored(1, sums.of[1], 64);
      if (part + 2 < parts) {
        tile.template multiply<0, kRows>(part + 2, v);
        tile.template multiply<1, kRows>(part + 3, v);
      }
      fence();
      tile.scale(part, v, sums, acc);
      if (parts > 1) tile.scale(part + 1, v, sums, acc);
    }
    store_sums(acc, tile.sums + 16 * v);
  }
}

}  // namespace metal_marlin::cpu
