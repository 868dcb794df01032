// The only parameter of every CUDA kernel. Hosts fill it from a dispatch (src/device/device.h).
#pragma once

#include "arguments.h"

enum {
  kCudaBuffers = 17,
  kCudaConstants = 16,
  kCudaArgumentBytes = 144,
  kTensorMapBytes = 128  // of CUtensorMap
};

/// Bytes of shared memory that the launch of a kernel for Hopper gives it. (A ring with 2560 less
/// has room for two stages of a warp in place of three: one row took 13 % longer at K = 8192.)
enum { kRingSharedBytes = 230400, kTileSharedBytes = 232448 };
/// Bytes of A that a ring kernel keeps there: eight rows of a part of K, or more routed rows.
enum { kRingActivationBytes = 96 << 10 };
/// Bytes of a table of the pairs of codes of a codebook, one for each lane.
enum { kPairTableBytes = 256 * 4 * 32 };
/// Teams of two warpgroups that multiply, and take the stages of K in turn. Tiles of few rows wait
/// for instructions that depend on each other, and have registers for two.
MARLIN_SHARED unsigned tile_teams_of(unsigned tile_rows) { return tile_rows <= 16 ? 2 : 1; }
MARLIN_SHARED unsigned tile_threads_of(unsigned tile_rows) {
  return 128 * (2 * tile_teams_of(tile_rows) + 1);
}
/// Blocks that make a tile together: they share its rows of A, which pays if those are many.
MARLIN_SHARED unsigned tile_cluster_of(unsigned tile_rows) { return tile_rows <= 32 ? 1 : 2; }
/// Rows of a box of A that the copy engine brings for a tile: each of these blocks brings one.
MARLIN_SHARED unsigned box_rows_of(unsigned tile_rows) {
  return tile_rows / tile_cluster_of(tile_rows);
}
/// Whether Hopper has a tile of so many rows of A for weights of a form, whose units have `words`
/// of a lane and tile. Bytes (two words) have no registers for teams, and none for 192 rows of sums
/// that short groups scale. Three stages of 256 rows with bytes, float32 scales or many zeros
/// (`wide`) are more than the shared memory. Floats of 16 bits (four words) take no registers.
MARLIN_SHARED bool has_tile_of(unsigned rows, unsigned words, bool wide, unsigned group_shift) {
  if (words > 1 && tile_teams_of(rows) > 1) return false;
  if (words == 2 && group_shift < kLongGroupShift) return rows <= 128;
  if (words == 4) return true;
  return rows <= (words > 1 || wide ? 192 : 256);
}
/// The same of a tile that rounds weights to 16 bits: its sums have no scales, its stages have
/// additive zeros, and its teams have no registers for float32 scales.
MARLIN_SHARED bool has_rounding_tile_of(unsigned rows, unsigned words, bool float32_scales,
                                        bool zeros, unsigned group_shift) {
  const bool wide = float32_scales || (zeros && group_shift < kLongGroupShift);
  return !(float32_scales && tile_teams_of(rows) > 1) &&
         has_tile_of(rows, words, wide, kLongGroupShift);
}

/// Whether Hopper has a tile of INT8 activations for weights whose units have `words`. Decoding
/// INT4 leaves no registers for the sums of many rows.
MARLIN_SHARED bool has_byte_tile_of(unsigned rows, unsigned words) {
  return rows <= 128 || words == 2;
}

/// Whether the blocks of a ring sort many routed rows. Integers in groups of less than 128 slots,
/// 2:4 weights in such groups, and float32 scales leave no registers for it.
MARLIN_SHARED bool ring_sorts_many(bool is_dense_fp4, bool are_floats, unsigned zero_kind,
                                   unsigned group_shift) {
  const bool half_zeros = zero_kind == kZeroF16 || zero_kind == kZeroBf16;
  return is_dense_fp4 || half_zeros || (group_shift == kLongGroupShift && !are_floats);
}
/// Whether wgmma multiplies integers of scales of this type: it takes products of code and scale
/// that are exact in 16 bits, or keeps sums in units of the scale of a group. Ratios of float16
/// numbers are float32 numbers, and so are those of the float32 scales that packing has found
/// steady; those of E8M0 are not.
MARLIN_SHARED bool has_wgmma_of(unsigned scale_type, bool is_bf16) {
  return scale_type != kScaleE8m0 || is_bf16;
}

// The forms of weights that most files have. Product kernels of float16 and bfloat16 activations
// are compiled for each of them, too, under names that end with "_s" SCALE "z" ZERO "g" SHIFT, and
// "e" if a ring kernel is for routed rows:
// X(MARLIN_CONSTANT_SCALE_TYPE, MARLIN_CONSTANT_ZERO_KIND, MARLIN_CONSTANT_GROUP_SHIFT, tiles).
//
// Hopper has ring kernels of its own for them, and the tiles that the last column names: none; mma;
// or wgmma, which take longest to compile, and mma. INT4, INT8 and FP8 have all tiles that round
// weights to 16 bits, too (MARLIN_COMPUTE_W16), under the names mma_w16 and wgmma_w16; other tiles
// need no rounding. "rounded" means such tiles and a ring_w16 alone: codebooks, whose numbers need
// more than 16 bits. Packing turns scales and zeros of other types to float16 where that
// is exact.
//
// Floats of 16 bits have them if A has the same type. Of FP8 they are those of rows and of blocks
// of 128. Of FP4 these are MXFP4 and NVFP4. Of INT4, long groups are those of GPTQ and AWQ; short
// ones those of Q4_0, Q4_1, MLX, HQQ and others in groups of 64. Q4_K is widened to float32. Of
// INT8, the form with groups of 32 is that of Q8_0, Q5_0 and IQ4_NL, and the long one that of whole
// rows; Q6_K and Q5_K are widened to float32.
#define MARLIN_FORMS_fp4(X) X(3, 0, 5, wgmma) X(4, 0, 4, wgmma)
#define MARLIN_FORMS_OF_128_u4(X) X(1, 0, 7, wgmma) X(1, 1, 7, wgmma)
#define MARLIN_FORMS_OF_64_u4(X) X(1, 0, 6, wgmma) X(1, 1, 6, wgmma) X(1, 3, 6, wgmma)
#define MARLIN_FORMS_OF_32_u4(X) \
  X(1, 0, 5, wgmma) X(1, 3, 5, wgmma) X(0, 2, 5, wgmma) X(1, 1, 5, mma)
#define MARLIN_FORMS_u4(X) \
  MARLIN_FORMS_OF_128_u4(X) MARLIN_FORMS_OF_64_u4(X) MARLIN_FORMS_OF_32_u4(X)
#define MARLIN_FORMS_i8(X) X(1, 0, 5, wgmma) X(1, 0, 7, wgmma) X(0, 0, 4, wgmma) X(0, 2, 5, wgmma)
#define MARLIN_FORMS_e4m3(X) X(0, 0, 7, wgmma)
#define MARLIN_FORMS_lut4(X) X(0, 6, 6, rounded)
#define MARLIN_FORMS_f16(X) X(0, 0, 7, wgmma)
#define MARLIN_FORMS_bf16(X) X(0, 0, 7, wgmma)
#define MARLIN_FORMS_fp4_sparse(X) X(3, 0, 5, none) X(4, 0, 4, none)
#define MARLIN_FORMS_u4_sparse(X) X(1, 0, 5, none) X(1, 0, 6, none) X(1, 0, 7, none)

/// The forms for which Hopper has tiles of activations of a byte: INT8, if rows of both have one
/// scale each, and E4M3.
#define MARLIN_BYTE_FORMS_u4(X) MARLIN_FORMS_OF_128_u4(X)
#define MARLIN_BYTE_FORMS_i8(X) X(1, 0, 7, wgmma)
#define MARLIN_BYTE_FORMS_e4m3(X) MARLIN_FORMS_e4m3(X)

struct CudaParameters {
  unsigned long long buffers[kCudaBuffers];                // addresses, by MARLIN_BUFFER_*
  unsigned char constants[kCudaConstants];                 // by MARLIN_CONSTANT_*
  alignas(8) unsigned char arguments[kCudaArgumentBytes];  // ProductArgs, RouteArgs, ...
  unsigned first_row_of_groups;  // is added to blockIdx.y, whose limit is 65535
  unsigned reserved;
  /// Boxes of A for the copy engine, if A is aligned and the kernel has them (kernels.inc).
  alignas(64) unsigned char tensor_map[kTensorMapBytes];
};
static_assert(sizeof(ProductArgs) <= kCudaArgumentBytes &&
                  sizeof(UnpackArgs) <= kCudaArgumentBytes &&
                  sizeof(PrepareArgs) <= kCudaArgumentBytes &&
                  sizeof(RouteArgs) <= kCudaArgumentBytes,
              "arguments fit");
static_assert(sizeof(CudaParameters) == 448, "same on host and device");
