// The packed layout of weights on a GPU: what the host's packer writes and every kernel reads.
// Included by C++ and by Metal.
//
// Rows of W come in row blocks of 32, padded at the end. Along K, in *slots*: the k of the file in
// order, or sorted by group (slot_to_k), padded to whole 32. Slots come in blocks of 128; what is
// left is a block of 64 and / or one of 32 (2:4 sparse weights alike). Who holds what in a block of
// S slots is that of operand A of an 8x8 simdgroup_matrix:
//
//   lane           (r, j): r = lane_row, 2 j = 2 lane_column the first column, of its two elements
//                  of an 8x8 matrix
//   tile i         rows 8 i + r of the row block, i = 0..3
//   span           the S / 4 consecutive slots S / 4 * j ..., S / 32 units of 8 slots each; unit w
//                  = 0..S / 32 - 1
//   step t = 0..3  of unit w: its slots t and 4 + t are the lane's two elements of the 8x8 matrix
//                  number 4 w + t
//
// The order of k inside a block is free because the activations are read in the same order. It is
// chosen so that a lane needs one scale a tile and block with groups of 32 and more, that no two
// lanes need the same scale of a group of 32, and that a unit is eight neighboring activations: 16
// bytes of half.
//
//   memory         [row block][block][word][lane][tile i], uint32: a lane's load of a word is a
//                  uint4, a simdgroup's is 512 consecutive bytes. Words a lane, tile and block of
//                  128 / 64 / 32 slots:
//     4-bit        4 / 2 / 1: word w is unit w
//     8-bit        8 / 4 / 2: words 2 w and 2 w + 1 are unit w
//     4-bit 2:4    3 / 2 / 1: [codes of units 0, 1][codes of units 2, 3][positions] /
//                  [codes][positions] / [both]
//
// Bits of a unit: p = 0 are slots 0..3 (step t is slot t), p = 1 slots 4..7; they stand 16 bits
// apart, so that one operation on a word handles a pair of halves (p = 0, p = 1) of the same step.
//     FP4          bit of a 16-bit half  15 14 13 12 | 11 10 9 | 8 7 6 | 5 4 3 | 2 1 0
//                  step (sign or e e m)   0  2  3  1 |    0    |   1   |   2   |   3      five
//                                         shifts decode eight codes
//     INT4         code of step t at bits 4 t + 3 .. 4 t of half p
//     INT8         value + 128; word 2 w holds steps 0, 1 and word 2 w + 1 steps 2, 3: step t of
//                  half p at bits 16 p + 8 (t % 2) + 7 and below
//     2:4          of each unit 16 bits of kept codes, as nibbles: the first and second of slots
//                  0..3, then of 4..7; and 8 bits of positions, 2 a code in the same order. Units
//                  follow each other from bit 0: two units of codes a word, four units of
//                  positions; a block of 32 has its positions at bits 23..16 of the only word.
//                  Unused bits are 0.
//
// Scales: quads of four (the lane's tiles i = 0..3), [row block][quad g][r = 0..7][i], of the
// scale's type. Quad g belongs to slot group g of 16, 32 or 64 slots; with groups of 128 and more
// to quad_blocks blocks of 128 slots (one scale a row: all). One-byte scales of groups of 16 stand
// in pairs, [row block][g / 2][r][g % 2][i]: the two groups of a lane's span are one load, and a
// simdgroup's load is whole cache lines. Zeros lie the same way: bytes (integer zero points), or of
// the additive zeros' type. E8M0 scales are stored as e + shift of the row, 0 for NaN; the shift is
// 14, for the factor of 2^14 that FP4 codes lack (decode.h), or less in rows with exponents above
// 240. Row factors: one RowFactor (arguments.h) a row of W, padded to whole row blocks.
#pragma once

#ifdef __METAL_VERSION__
#include <metal_stdlib>
#define MARLIN_SHARED static inline
typedef int marlin_int;
#else
#include <cstdint>
#define MARLIN_SHARED constexpr
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
  kLargestExponent = 254,  // of stored E8M0 bytes
};

/// Row and half the column of a lane's first element in an 8x8 simdgroup_matrix, as on every Apple
/// GPU so far; the host checks a product on the device at hand.
MARLIN_SHARED marlin_int lane_row(marlin_int lane) { return (lane / 4 & 4) | (lane / 2 & 3); }
MARLIN_SHARED marlin_int lane_column(marlin_int lane) { return (lane / 4 & 2) | (lane & 1); }
/// The lane (row, column / 2): the inverse of the two above.
MARLIN_SHARED marlin_int lane_at(marlin_int row, marlin_int column) {
  return (row & 4) << 2 | (column & 2) << 2 | (row & 3) << 1 | (column & 1);
}

/// Of K in slots: blocks, the one of 64 and the one of 32 included.
MARLIN_SHARED marlin_int block_count(marlin_int slots) {
  return slots / kBlockSlots + (slots / 64 & 1) + (slots / 32 & 1);
}
/// Slots of block b.
MARLIN_SHARED marlin_int block_slots(marlin_int slots, marlin_int b) {
  if (b < slots / kBlockSlots) return 128;
  return b == slots / kBlockSlots && (slots & 64) != 0 ? 64 : 32;
}
/// First slot of block b <= block_count(slots).
MARLIN_SHARED marlin_int block_begin(marlin_int slots, marlin_int b) {
  if (b <= slots / kBlockSlots) return kBlockSlots * b;
  return b < block_count(slots) ? slots - 32 : slots;
}

/// In a row block, the number of the quad of slot group g for the rows 8 i + r. `pairs`: one-byte
/// elements of groups of 16.
MARLIN_SHARED marlin_int scale_quad_at(marlin_int g, marlin_int r, bool pairs) {
  return pairs ? 8 * (g & ~1) + 2 * r + (g & 1) : 8 * g + r;
}

/// Position of step t's code in a 16-bit half of dense FP4.
MARLIN_SHARED marlin_int fp4_sign_bit(marlin_int t) {
  if (t < 2) return 15 - 3 * t;  // 15, 12
  return 16 - t;                 // 14, 13
}
MARLIN_SHARED marlin_int fp4_low_bit(marlin_int t) { return 9 - 3 * t; }
