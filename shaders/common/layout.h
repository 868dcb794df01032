// The packed layout of weights on a GPU. The packer of the host writes it, and every kernel reads
// it. C++, Metal and CUDA include this file.
//
// Rows of W are in row blocks of 32, padded at the end. Along K they have *slots*: the k of the
// file in order, or sorted by group (slot_to_k), padded to a multiple of 32. Slots are in blocks of
// 128. The remaining slots are one block of 64, one of 32, or both; this also holds for 2:4 sparse
// weights. In a block of S slots, the lanes hold operand A of an 8x8 simdgroup_matrix:
//
//   lane           (r, j): r = lane_row, 2 j = 2 lane_column the first column, of its two elements
//                  of an 8x8 matrix
//   tile i         rows 8 i + r of the row block, i = 0..3
//   span           the S / 4 consecutive slots S / 4 * j ..., S / 32 units of 8 slots each; unit w
//                  = 0..S / 32 - 1
//   step t = 0..3  of unit w: its slots t and 4 + t are the lane's two elements of the 8x8 matrix
//                  number 4 w + t
//
// The order of k inside a block is free, because the activations are read in the same order. With
// this order, a lane needs one scale per tile and block for groups of 32 and more, no two lanes
// need the same scale of a group of 32, and a unit is eight neighboring activations, which are 16
// bytes of half.
//
//   memory         [row block][block][word][lane][tile i], uint32: a lane loads a word as a uint4,
//                  and a simdgroup loads 512 consecutive bytes. Words per lane, tile and block of
//                  128 / 64 / 32 slots:
//     4-bit        4 / 2 / 1: word w is unit w
//     8-bit        8 / 4 / 2: words 2 w and 2 w + 1 are unit w
//     4-bit 2:4    3 / 2 / 1: [codes of units 0, 1][codes of units 2, 3][positions] /
//                  [codes][positions] / [both]
//     planes       codes of 2, 3, 5 and 6 bits, in planes one after another: the low four bits of a
//                  code (5 and 6 bits), as 4-bit codes; then two bits (2, 3 and 6 bits); then one
//                  bit (3 and 5 bits). The words of a plane are its bits divided by 32, rounded up:
//                  2, 3, 5 or 6 of a block of 128 in all (plane_words)
//     floats       16 bits: words 4 w + t are step t of unit w, p = 0 in the low half. 32 bits:
//                  words 8 w + 2 t + p
//
// This order is that of simdgroup matrices. CUDA's is the order of operand A of mma.m16n8k16 and of
// a warp's part of wgmma.m64nNk16, which have steps of 16 neighboring slots. Slots are padded to a
// multiple of 64. Unit w of a row block has its slots 32 w ... 32 w + 31 without regard to blocks.
// Lane 4 r + j has the rows 8 i + r, and code (t, p) of its unit is slot mma_slot(j, t, p).
//
//   memory         [row block][chunk][half of the row block, 16 rows][lane], uint4: a warp loads
//                  512 consecutive bytes, which are all that 16 rows have of a chunk
//     4-bit        a chunk has 64 slots; the words are tiles 2 half, 2 half + 1 of its first unit,
//                  then of its second
//     8-bit        a chunk has 32 slots; the words are both words of tile 2 half, then of the next
//     floats       32 bits: the same, of eight words: [row block][chunk][piece][half][lane], uint4.
//                  16 bits: [row block][64 slots][row], 128 bytes, which are the slots in order.
//                  Piece c of 16 bytes of row 8 i + r is at c ^ r: so wgmma reads its operand A in
//                  shared memory, without bank conflicts.
//     4-bit 2:4    [row block][64 slots] of: [lane] uint4, the kept codes of tiles 0..3; then
//     [lane]
//                  uint2, the positions of both halves (16 rows). Code (t, p) of lane 4 r + j is
//                  kept code p of the four slots 16 t + 4 j ..., which is the order of the sparse
//                  operand A of mma.sp.m16n8k16. Positions are that operand's metadata: lane 4 r +
//                  t has those of slots 16 t ... 16 t + 15 of the rows r and, from bit 16 on, 8 + r
//                  of the half, at bits 4 j + 2 p.
//
// Bits of a unit: p = 0 are slots 0..3 (step t is slot t), and p = 1 are slots 4..7. They are 16
// bits apart, so one operation on a word handles a pair of halves (p = 0, p = 1) of the same step.
//     FP4          bit of a 16-bit half  15 14 13 12 | 11 10 9 | 8 7 6 | 5 4 3 | 2 1 0
//                  step (sign or e e m)   0  2  3  1 |    0    |   1   |   2   |   3
//                  (five shifts decode eight codes). CUDA: fp4_mma_bit
//     INT4         code of step t at bits 4 t + 3 .. 4 t of half p. CUDA has codes of a codebook at
//                  bits 8 t + 4 p and above: a byte is a pair
//     INT8         value + 128 (UINT8 and E4M3: as they are); word 2 w holds steps 0, 1 and word
//                  2 w + 1 steps 2, 3: step t of half p at bits 16 p + 8 (t % 2) + 7 and below
//     2:4          each unit has 16 bits of kept codes, as nibbles: the first and second of slots
//                  0..3, then of 4..7; and 8 bits of positions, 2 per code in the same order. Units
//                  follow each other from bit 0: two units of codes per word, four units of
//                  positions. A block of 32 has its positions at bits 23..16 of the only word.
//                  Unused bits are 0.
//     planes       of two bits and of one: step t of half p of unit w is at bit 16 p + plane_bit(t)
//                  + width * w % 4 (two bits: and at the next) of word width * w / 4. One shift
//                  brings a unit to the place of unit 0, where steps 0 and 1 are above the nibbles
//                  of 4-bit codes. Unused bits are 0.
//
// Scales are quads of four (for the lane's tiles i = 0..3), [row block][quad g][r = 0..7][i], of
// the type of the scales. Quad g belongs to slot group g of 16, 32 or 64 slots. With groups of 128
// and more, it belongs to quad_blocks blocks of 128 slots (with one scale per row, to all blocks).
// Two-level scales (groups of 16 and 32) are [row block][super-block of 256 slots] of: the quads of
// float16 factors, [r][i], then the quads of its integers, int8. Two-level zeros have the same
// order. If both have integers of four bits (Q2_K), a byte of the scales holds two, that of the
// zero above, and the zeros are the factors alone. One-byte scales of groups of 16 are in pairs,
// [row block][g / 2][r][g % 2][i]: one load reads the two groups of a lane's span, and a simdgroup
// loads whole cache lines. Zeros have the same order; they are bytes (integer zero points) or have
// the type of the additive zeros. E8M0 scales are stored as e + shift of the row, and as 0 for NaN.
// The shift is 14, for the factor of 2^14 that FP4 codes lack (decode.h; E4M3 codes: 8; floats: 0),
// or less in rows with exponents above 240. On CUDA it is 126, so that the byte is the exponent of
// a bfloat16 that turns a code's bits into its value; it is less in rows with exponents above 128.
// CUDA stores E4M3 as e5m3_of: with neither a sign, which the codes have instead, nor subnormals.
// There is one RowFactor (arguments.h) per row of W, padded to whole row blocks; Metal's order has
// none if all are 1. Codes of a codebook have no zeros; their part has its 16 numbers, float32.
//
// Nested scales are bytes, in the order of one-byte scales. Byte b is the scale map[b] * factor +
// offset. These numbers follow the codebook, all float32: the 256 of the map; the quads that share
// a factor, an integer, in the first of four words; and for each row block its quads of offsets,
// [r][i], and of factors, [run of quads][r][i].
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#define MARLIN_SHARED static inline
typedef int marlin_int;
#else
#include <cstdint>
#ifdef __CUDACC__
#define MARLIN_SHARED __host__ __device__ constexpr
#else
#define MARLIN_SHARED constexpr
#endif
typedef int32_t marlin_int;
#endif

enum {
  kRowBlock = 32,  // rows of W
  kBlockSlots = 128,
  kTailSlots = 32,  // slots are padded to a multiple of this
  kUnitSlots = 8,
  kLanes = 32,
  kActivationBlock = 32,   // slots that share a scale of INT8 activations
  kFp4Exponent = 14,       // FP4 codes are decoded as 2^-14 of their value
  kE4m3Exponent = 8,       // E4M3 codes as 2^-8 of it
  kMmaExponent = 126,      // in CUDA's order: their bits are bfloat16 numbers of 2^-126 of it
  kMmaSlots = 64,          // in CUDA's order, slots are padded to a multiple of this
  kSuperBlockShift = 8,    // log2 of the slots of a super-block, which share a factor
  kFactorWords = 16,       // uint32 of the factors of a super-block of a row block
  kMmaSparseWords = 192,   // in CUDA's order, of 64 slots of a row block of 2:4 weights
  kE5m3Zero = 9,           // exponent field of 1 in an E5M3 byte
  kLargestExponent = 254,  // of stored E8M0 bytes
  kScaleMapAt = 16,        // float32 numbers of nested scales, counted from the codebook
  kFactorQuadsAt = kScaleMapAt + 256,
  kNestedAt = kFactorQuadsAt + 4,
};

/// The row and half the column of a lane's first element in an 8x8 simdgroup_matrix, as on every
/// Apple GPU so far. The host checks a product on the device.
MARLIN_SHARED marlin_int lane_row(marlin_int lane) { return (lane / 4 & 4) | (lane / 2 & 3); }
MARLIN_SHARED marlin_int lane_column(marlin_int lane) { return (lane / 4 & 2) | (lane & 1); }
/// The lane (row, column / 2): the inverse of the two above.
MARLIN_SHARED marlin_int lane_at(marlin_int row, marlin_int column) {
  return (row & 4) << 2 | (column & 2) << 2 | (row & 3) << 1 | (column & 1);
}

/// The slot of a unit of 32 slots in CUDA's order: that of code (t, p) of lane j.
MARLIN_SHARED marlin_int mma_slot(marlin_int j, marlin_int t, marlin_int p) {
  return 16 * (t / 2) + 2 * j + 8 * (t % 2) + p;
}
/// The number, in a row block of CUDA's order, of word v of a unit of floats of 16 bits for tile i:
/// that of step v.
MARLIN_SHARED marlin_int mma_halves_word(marlin_int unit, marlin_int lane, marlin_int i,
                                         marlin_int v) {
  const marlin_int r = lane / 4, row = kRowBlock * (unit / 2) + 8 * i + r;
  return 32 * row + 4 * ((4 * (unit & 1) + v) ^ r) + (lane & 3);
}
/// The same of codes and floats of other sizes. Units have so many words of a lane and tile: one,
/// two (8-bit codes), four or eight (floats).
MARLIN_SHARED marlin_int mma_word(marlin_int unit, marlin_int words, marlin_int lane, marlin_int i,
                                  marlin_int v) {
  if (words == 4) return mma_halves_word(unit, lane, i, v);
  const marlin_int in_half = words * (i & 1) + v, pieces = words / 2;
  return words == 1
             ? 4 * (kLanes * ((unit & ~1) + i / 2) + lane) + 2 * (unit & 1) + (i & 1)
             : 4 * (kLanes * (2 * (pieces * unit + in_half / 4) + i / 2) + lane) + in_half % 4;
}

/// The same of 2:4 weights: the word of kept codes of tile i of chunk `chunk` of 64 slots, and the
/// word of positions of a half.
MARLIN_SHARED marlin_int mma_kept_word(marlin_int chunk, marlin_int lane, marlin_int i) {
  return kMmaSparseWords * chunk + 4 * lane + i;
}
MARLIN_SHARED marlin_int mma_positions_word(marlin_int chunk, marlin_int lane, marlin_int half) {
  return kMmaSparseWords * chunk + 4 * kLanes + 2 * lane + half;
}

/// The number of blocks of K, including the block of 64 and the block of 32.
MARLIN_SHARED marlin_int block_count(marlin_int slots) {
  return slots / kBlockSlots + (slots / 64 & 1) + (slots / 32 & 1);
}
/// The slots of block b.
MARLIN_SHARED marlin_int block_slots(marlin_int slots, marlin_int b) {
  if (b < slots / kBlockSlots) return 128;
  return b == slots / kBlockSlots && (slots & 64) != 0 ? 64 : 32;
}
/// The first slot of block b <= block_count(slots).
MARLIN_SHARED marlin_int block_begin(marlin_int slots, marlin_int b) {
  if (b <= slots / kBlockSlots) return kBlockSlots * b;
  return b < block_count(slots) ? slots - 32 : slots;
}

/// The number, in a row block, of the quad of slot group g for the rows 8 i + r. `pairs` means
/// one-byte elements of groups of 16.
MARLIN_SHARED marlin_int scale_quad_at(marlin_int g, marlin_int r, bool pairs) {
  return pairs ? 8 * (g & ~1) + 2 * r + (g & 1) : 8 * g + r;
}

/// Two-level scales: the uint32 of a super-block of a row block, and the places in the row block of
/// the quad of integers of slot group g and of the quad of factors (two uint32) of super-block s,
/// for the rows 8 i + r. Groups have 2^shift slots, of which shift is 4 or 5.
MARLIN_SHARED marlin_int super_block_words(marlin_int shift) {
  return kFactorWords + (8 << kSuperBlockShift >> shift);
}
MARLIN_SHARED marlin_int two_level_quad_at(marlin_int g, marlin_int r, marlin_int shift) {
  const marlin_int groups = 1 << kSuperBlockShift >> shift;
  return g / groups * super_block_words(shift) + kFactorWords +
         scale_quad_at(g % groups, r, shift == 4);
}
MARLIN_SHARED marlin_int factor_quad_at(marlin_int s, marlin_int r, marlin_int shift) {
  return s * super_block_words(shift) + 2 * r;
}

/// The same of zeros that have factors alone.
MARLIN_SHARED marlin_int joined_factor_quad_at(marlin_int s, marlin_int r) {
  return s * kFactorWords + 2 * r;
}

/// Of nested scales: the float32 numbers of a row block, which has `quads` quads.
MARLIN_SHARED marlin_int nested_row_block(marlin_int quads, marlin_int factor_quads) {
  return kRowBlock * (1 + (quads - 1) / factor_quads + 1);
}

/// The uint32 of a lane and tile for `units` units of codes of 2, 3, 5 or 6 bits.
MARLIN_SHARED marlin_int plane_words(marlin_int bits, marlin_int units) {
  const marlin_int low = bits > 4 ? 4 : 2;  // bits of the first plane
  return (low * units + 3) / 4 + ((bits - low) * units + 3) / 4;
}
/// The position, in a 16-bit half, of step t of unit 0 in a plane of one or two bits.
MARLIN_SHARED marlin_int plane_bit(marlin_int t) { return t < 2 ? 4 * t + 4 : 12 * (t - 2); }

/// The position of the code of step t in a 16-bit half of dense FP4.
MARLIN_SHARED marlin_int fp4_sign_bit(marlin_int t) {
  if (t < 2) return 15 - 3 * t;  // 15, 12
  return 16 - t;                 // 14, 13
}
MARLIN_SHARED marlin_int fp4_low_bit(marlin_int t) { return 9 - 3 * t; }

/// The position of bit b of the code of step t in CUDA's order, in a word rotated right by 16 p.
/// Bit 3 is the sign. One shift or rotation brings steps 0, 1 and 2 to the bits 15 and 8..6, which
/// are the sign, the low exponent bits and the high fraction bit of a bfloat16, in both halves at
/// once; step 3 takes what bits are left.
MARLIN_SHARED marlin_int fp4_mma_bit(marlin_int t, marlin_int b) {
  if (t == 3) return b < 2 ? 4 + b : 16 - b;  // 4, 5, 14, 13
  return (t == 0 ? 6 : 10 * (t - 1)) + (b < 3 ? b : 9);
}
