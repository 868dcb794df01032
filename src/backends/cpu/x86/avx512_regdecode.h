// Register-decoded tiles: up to 12 rows x 16 columns, for any number of rows from a few on.
//
// Codes are decoded in registers for each tile. This takes one or two instructions for every 4
// slots, which up to 12 rows share. It costs less than storing decoded weights (a 512-bit store
// takes two cycles on Zen 4) and reading back two or four times the bytes. Only scales and zeros
// are decoded in advance, a chunk at a time. The instruction that multiplies activations also
// broadcasts them, because the number of instructions matters if another thread shares the core.
#pragma once

#include <algorithm>

#include "backends/cpu/x86/avx512.h"

namespace metal_marlin::cpu {

inline constexpr int kRegdecodeBlocks = 12;

/// The expanded codes of a chunk.
template <CodeKind kCode>
struct ExpandedChunk {
  ExpandedCodes<kCode> supers[kRegdecodeBlocks / kBlocksPerSuper];
};

/// The packed codes of the next chunk, while the expanded codes of this chunk are multiplied.
/// Expansion alone would prefetch them all at once, and memory would rest during multiplication.
struct LaterCodes {
  const uint8_t* from = nullptr;  ///< null: nothing is prefetched
  int64_t super_bytes = 0, group_bytes = 0;

  /// Prefetches the codes of column group v of block b.
  MARLIN_INLINE void fetch(int b, int v) const {
    if (from == nullptr) return;
    const int64_t group = b % kBlocksPerSuper * kColumnGroups + v;
    fetch_lines(from + b / kBlocksPerSuper * super_bytes + group * group_bytes, group_bytes);
  }
};

/// Some rows of a tile, and a chunk. Packed A blocks have room for kRegdecodeRows rows.
template <class Chunk>
struct RegdecodeTile {
  Chunk& chunk;
  int blocks;
  bool first;  ///< the first chunk: sums start from 0
  const uint32_t* a_block;
  float* sums;       ///< [row][kPanelColumns]
  int64_t ahead;     ///< prefetch distance of codes; 0: an earlier tile prefetched them
  LaterCodes later;  ///< instead of `ahead`, of codes that were expanded

  RegdecodeTile from_row(int r, bool fetches) const {
    return {chunk,
            blocks,
            first,
            a_block + r,
            sums + r * kPanelColumns,
            fetches ? ahead : 0,
            fetches ? later : LaterCodes{}};
  }
};

/// Does the work of dispatch_rows. Tiles of more than kMost rows are cut in halves:
/// call.operator()<kRows>(tile).
template <int kMost, class Tile, class Call>
void in_halves(const Tile& tile, int rows, Call call) {
  constexpr int kHalf = kRegdecodeRows / 2;
  static_assert(kMost >= kHalf);
  const auto one = [&](const Tile& part, int height) {
    dispatch_rows<kMost>(height, [&]<int kRows>() { call.template operator()<kRows>(part); });
  };
  if (rows <= kMost) return one(tile, rows);
  one(tile, kHalf);
  one(tile.from_row(kHalf, false), rows - kHalf);
}

/// Multiplies a panel, chunk after chunk, by all tiles: kTile(args, tile, its rows, their
/// statistics (activations.h)). kDequantize(args, superblocks, blocks, chunk) decodes scales. The
/// first tile prefetches later data.
template <class Chunk, auto kDequantize, auto kTile>
void walk_regdecode(const PanelArgs& args) {
  const ActivationLayout& act = args.activations;
  const int64_t super_bytes = args.layout->super_bytes();
  alignas(64) Chunk chunk;
  for (int64_t block = 0; block < act.blocks; block += act.chunk_blocks) {
    const int blocks = static_cast<int>(act.chunk_length(block));
    const uint8_t* const packed = args.panel + block / kBlocksPerSuper * super_bytes;
    kDequantize(args, packed, blocks, chunk);
    const bool expands = chunk.codes != packed;
    for (int64_t index = args.tile_begin; index < args.tile_end; ++index) {
      const int64_t i = index - args.tile_begin;
      const LaterCodes later{.from = packed + blocks / kBlocksPerSuper * super_bytes,
                             .super_bytes = super_bytes,
                             .group_bytes = args.layout->group_bytes()};
      const RegdecodeTile<Chunk> tile{.chunk = chunk,
                                      .blocks = blocks,
                                      .first = block == 0,
                                      .a_block = args.packed_a + act.offset(index, block),
                                      .sums = args.sums + i * kRegdecodeRows * kPanelColumns,
                                      .ahead = i == 0 && !expands ? fetch_distance(super_bytes) : 0,
                                      .later = i == 0 && expands ? later : LaterCodes{}};
      kTile(args, tile, act.rows_of(index),
            reinterpret_cast<const float*>(args.packed_a + act.rows_offset(index)));
    }
  }
}

}  // namespace metal_marlin::cpu
