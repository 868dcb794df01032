// Rows of A in the order and type that a kernel reads: tiles of a few rows, and blocks of 32 slots.
// Each tile has one packed A block for each block of slots.
//
//   packed A block (tile, block) = steps x [tile_rows] dwords, then extras x [tile_rows] dwords
//   - int8: 8 steps of 4 slots as int8. The extras are d and then the sum of the block times
//     `sum_factor` (one sum, or two for slots 0-15 and 16-31).
//   - bf16: 16 steps of 2 slots as bfloat16. f32: 32 steps of one float. The extras are the sums of
//     the slots, if has_sums().
//   - bf16x3: the 16 steps of bf16 of the first pieces, then of the second and of the third ones.
//   - run: this many steps of a row lie together, row after row. The matrix instructions of NEON
//     take two at a time, and those of AMX take all steps of a block. f32 with a run of 2 has slots
//     0 2 1 3 of every 4: vectors of 4 columns x 2 slots.
//   - gathered (for kernels of 2:4 sparse weights, which pick activations by position): slots are
//     in their own order. The run is the steps among which a position chooses (two; f32: four).
//     int8 holds q + 128, unsigned.
//
// The packed A blocks of one chunk of blocks lie together, tile after tile, so that a kernel that
// dequantizes a chunk of a panel walks through them as one stream.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "backends/cpu/layout.h"
#include "core/backend.h"

namespace metal_marlin::cpu {

/// bf16x3: floats as sums of three BF16 numbers, which are exact (bf16_piece).
enum class ActivationForm : uint8_t { int8, bf16, bf16x3, f32 };
inline constexpr int kPieces = 3;

/// The slot inside a group of 8 that step `i` multiplies, for f32. A 4-bit dword holds slots 0 4 1
/// 5 2 6 3 7 from its low nibble up (layout.h), and decoding shifts it right by 4 for each step.
constexpr int slot_of_step(int i) { return (i & ~7) | (i & 1) << 2 | (i >> 1 & 3); }
/// The first slot of bf16 step i; the second is 2 further. A 16-bit word holds slots h and 4 + h;
/// the slots of its neighbor are 2 higher.
constexpr int first_slot_of_pair(int i) { return (i >> 2) * 8 + ((i & 1) << 2) + (i >> 1 & 1); }

struct ActivationLayout {
  ActivationForm form = ActivationForm::f32;
  int tile_rows = 1;
  int chunk_blocks = 0;    ///< blocks whose packed A blocks lie together; a multiple of 4
  int sums_per_block = 0;  ///< 0, 1 or 2
  int sum_factor = 1;      ///< int8: the factor of the integer sums
  int64_t rows = 0;        ///< of the product
  int64_t tiles = 0, blocks = 0;
  int64_t blocks_behind = 0;  ///< of a part of K (one tile only): blocks of later parts
  bool cut_last = false;      ///< packed A blocks of the last tile hold only its rows, and one row
                              ///< of 0 if their number is odd
  bool gathered = false;
  int run = 1;  ///< steps of a row that lie together

  constexpr int float_steps() const {
    if (form == ActivationForm::bf16x3) return kPieces * 16;
    return form == ActivationForm::bf16 ? 16 : 32;
  }
  int nan_seeds() const { return gathered ? 1 : 0; }
  constexpr int steps() const { return form == ActivationForm::int8 ? 8 : float_steps(); }
  /// Whether all steps of a row, or of a piece of it, lie together.
  constexpr bool has_whole_rows() const {
    return run == (form == ActivationForm::bf16x3 ? 16 : steps());
  }
  int extras() const { return sums_per_block + (form == ActivationForm::int8 ? 1 : 0); }
  /// f32: the slot of its block that a step multiplies.
  int slot(int step) const {
    if (gathered) return step;
    return run == 2 ? (step & ~3) | (step & 1) << 1 | (step >> 1 & 1) : slot_of_step(step);
  }
  /// The dword index of a step in its packed A block.
  int step_index(int step, int row) const {
    if (run == 1)
      return step * tile_rows + row;  // most kernels; a division would take a quarter of the time
    return (step / run * tile_rows + row) * run + step % run;
  }
  /// int8: the dword index of the sum of half `part`, or of the whole block.
  constexpr int sum_index(int part, int row) const { return (9 + part) * tile_rows + row; }
  /// Rows of the product in a tile.
  int rows_of(int64_t tile) const {
    const int64_t left = rows - tile * tile_rows;
    return left < tile_rows ? static_cast<int>(left) : tile_rows;
  }
  /// Rows of a tile whose packed A blocks are written.
  int written_rows(int64_t tile) const { return cut_last ? (rows_of(tile) + 1) & ~1 : tile_rows; }
  /// The size of a packed A block in dwords.
  int64_t a_block_size() const { return int64_t{steps() + extras()} * tile_rows; }
  /// Blocks in the chunk that starts at `block`.
  int64_t chunk_length(int64_t block) const {
    return blocks - block < chunk_blocks ? blocks - block : int64_t{chunk_blocks};
  }
  /// Dword index of a packed A block.
  int64_t offset(int64_t tile, int64_t block) const {
    const int64_t in_chunk = block % chunk_blocks, first = block - in_chunk;
    return (first * tiles + tile * chunk_length(first) + in_chunk) * a_block_size();
  }
  /// The dword index of the row statistics of a tile, after the packed A blocks.
  /// int8: the largest d of every row, then the smallest (DRange).
  /// Gathered floats: for every row the NaN seed, which is 0, or NaN if the row holds a NaN or an
  /// infinity. A dense product multiplies such an activation by 0 if its weight is not kept, but
  /// gathering skips it. The sums therefore start from the NaN seed.
  int64_t rows_offset(int64_t tile) const {
    return tiles * (blocks + blocks_behind) * a_block_size() + tile * row_stat_count() * tile_rows;
  }
  int row_stat_count() const { return form == ActivationForm::int8 ? 2 : nan_seeds(); }
  uint64_t bytes() const { return static_cast<uint64_t>(rows_offset(tiles)) * 4; }
  bool operator==(const ActivationLayout&) const = default;
};

/// The first of the pieces of x, which is x cut to the 8 significant bits of BF16. The first pieces
/// of x, of the rest, and of the rest of that add up to x, because x has 24 significant bits. NaN
/// stays NaN.
inline float bf16_piece(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x) & 0xffff0000u;
  return std::bit_cast<float>(x != x ? bits | 0x400000u : bits);
}

/// The range of d in every row of a tile, for kernels that combine d with scales and must know
/// whether the product could overflow.
class DRange {
 public:
  /// `row_stats`: at ActivationLayout::rows_offset.
  DRange(uint32_t* row_stats, int rows)
      : largest_(reinterpret_cast<float*>(row_stats)), smallest_(largest_ + rows) {
    for (int r = 0; r < rows; ++r) {
      largest_[r] = 0;
      smallest_[r] = std::numeric_limits<float>::max();
    }
  }
  /// A NaN makes the smallest 0 and does not count as the largest.
  void add(int row, float d) {
    if (d > largest_[row]) largest_[row] = d;
    if (!(d >= smallest_[row])) smallest_[row] = d < smallest_[row] ? d : 0;
  }

  float* largest() const { return largest_; }
  float* smallest() const { return smallest_; }

 private:
  float *largest_, *smallest_;
};

/// The source and the destination of activations.
struct PrepareArgs {
  const MatrixView* a = nullptr;
  int64_t first_row = 0, rows = 0;  ///< of the product; rows past them in the last tile are 0
  const int32_t* rows_of_a =
      nullptr;  ///< the row of A of each row of the product; null: the same row
  const int32_t* slot_to_k = nullptr;  ///< [slots], or null: slot s is k s
  ActivationLayout layout;
  uint32_t* out = nullptr;
  int64_t group_blocks = 1;  ///< int8: blocks of a row that share d; may be more than it has

  int64_t row_of_a(int64_t row) const {
    return rows_of_a != nullptr ? rows_of_a[first_row + row] : first_row + row;
  }
};

/// The most rows of a tile (ActivationLayout::tile_rows).
inline constexpr int kMostTileRows = 16;

/// Writes the packed A blocks of tiles [tile_begin, tile_end). INT8 rounds with d = max|x| / 127 of
/// a group and q = round-half-even(x / d), at most 127 in magnitude. A group with NaN or Inf gets
/// d = NaN. A group of zeros (or a group whose d would be 0) gets q = 0 and d = 1, because kernels
/// may add the exponent of a scale to the exponent of d, and 0 has none.
void prepare_activations(const PrepareArgs& args, int64_t tile_begin, int64_t tile_end);
void prepare_activations_avx512(const PrepareArgs& args, int64_t tile_begin, int64_t tile_end);

/// Reads one block of one row of A as floats, by slot_to_k; slots without a k are 0.
void gather_block(const PrepareArgs& args, int64_t row, int64_t block, float* x);

}  // namespace metal_marlin::cpu
