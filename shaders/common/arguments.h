// The definitions that hosts and kernels share: argument structures, indices of buffers and
// function constants, and the grammar of kernel names. C++, Metal and CUDA include this file.
// Structures have fixed-size members in natural order, no padding, and equal sizes on both sides.
//
// Kernel names
//   kernel      = product | "unpack_" codes | "quantize_" float | "gather_" bytes | "finish"
//               | "route"
//               | "e4m3_" float                                   CUDA
//               | "group_sums_" ( "f16" | "bf16" )                CUDA, Hopper
//   product     = "gemv_" codes "_" activation "_m" rows
//               | "gemm_" codes "_" activation "_m" rows "_n" columns             CUDA
//               | "ring_" codes "_" activation "_m" rows                          CUDA, Hopper
//               | ( "mma_" | "wgmma_" ) [ "w16_" ] codes "_" activation "_m" rows "_n" columns
//                                       w16: weights rounded to 16 bits           CUDA, Hopper
//               | "regdecode_" codes "_" activation "_m" rows "_n" columns way
//   way         = "_direct" | "_threadgroup"                how the matrix unit reads A
//               | "_tensor" | "_nax"                        of Metal 4: from memory, or registers
//   codes       = ( "fp4" | "u4" | "i8" ) [ "_sparse" ]     sparse: 2:4
//               | "planes"                                  Metal; 2, 3, 5 and 6 bits
//               | "u8" | "e4m3"                             CUDA (on Metal they are "i8"); "e4m3"
//                                                           not with activation "i8"
//               | "lut4"                                    codebooks of 16 floats
//               | "floats"                                  Metal; floats as they are
//               | float                                     CUDA; the same
//                                                           The last three: not with activation
//                                                           "i8" (Metal's "lut4" is for IQ4)
//   activation  = float | "i8"                              i8: from quantize, with a_scales
//   float       = "f32" | "f16" | "bf16"
//   bytes       = "b2" | "b4"
//   rows: rows of A that a threadgroup takes; columns: columns of C that it makes
#pragma once

#include "layout.h"

#ifdef __METAL_VERSION__
#define MARLIN_INT64 long
#define MARLIN_OFFSET(type, member, offset) \
  static_assert(__builtin_offsetof(type, member) == offset, "same on host and device")
#else
#include <cstddef>
#define MARLIN_INT64 int64_t
#define MARLIN_OFFSET(type, member, offset) \
  static_assert(offsetof(type, member) == offset, "same on host and device")
#endif

// (Indices are macros because some compilers read the attributes of Metal before enumerators.)
/// Buffers of the product kernels. A buffer with a function constant in brackets is bound only if
/// the constant requires it.
#define MARLIN_BUFFER_CODES 0  // uint4
#define MARLIN_BUFFER_SCALES 1
#define MARLIN_BUFFER_ZEROS 2  // [zero_kind]; of lut4: float [16], the codebook; nested scales
#define MARLIN_BUFFER_ROWS 3   // RowFactor [row_factor]
#define MARLIN_BUFFER_A 4
#define MARLIN_BUFFER_A_SCALES 5    // float [m][slots / 32]; for tiles for Hopper [m] [quantized]
#define MARLIN_BUFFER_GROUP_SUMS 5  // of tiles for Hopper: what group_sums writes [additive zeros]
#define MARLIN_BUFFER_BIAS 6        // [bias_type]
#define MARLIN_BUFFER_C 7           // [not partial]
#define MARLIN_BUFFER_PARTIALS 8    // float [splits][m][n] [partial]; finish reads it
#define MARLIN_BUFFER_ARGS 9        // ProductArgs, by value
/// Of kernels whose threadgroups share tiles: float [threadgroups][rows][columns of one], and flags
/// that say whose sums are there; they are 0 between dispatches.
#define MARLIN_BUFFER_SHARED 10
#define MARLIN_BUFFER_FLAGS 11
/// The bytes of these flags, of which the last numbers are counters of tile_routes.cuh.
enum { kFlagBytes = 64 << 10, kRouteCounters = kFlagBytes / 4 - 4 };
/// Of products of experts: the table that `route` writes (below). Product kernels, finish, and
/// quantize and gather of permuted columns read it.
#define MARLIN_BUFFER_ROUTES 12  // [routed]
/// Of products that find the routed rows themselves: as for route.
#define MARLIN_BUFFER_ROUTED_IDS 13
#define MARLIN_BUFFER_ROUTED_SCALES 14
/// Of products that gather the routed rows themselves: A as the caller has it, and the columns of
/// A's slots [has_slot_to_k]. MARLIN_BUFFER_A is where the gathered rows lie.
#define MARLIN_BUFFER_GATHER_FROM 15
#define MARLIN_BUFFER_GATHER_SLOTS 16
/// Buffers of expand: codes, scales, zeros and arguments as above, and
#define MARLIN_BUFFER_EXPANDED 4  // the codes of floats of 16 bits (layout.h)
/// The warps of a threadgroup of expand, and the chunks of 64 slots of a row block that one makes.
enum { kExpandWarps = 8, kExpandChunks = 4 };
/// Buffers of unpack: codes, scales and zeros as above, RowOrigin at MARLIN_BUFFER_ROWS, and
#define MARLIN_BUFFER_OUT 4  // [count][ld] of output_type
#define MARLIN_BUFFER_ROW_LIST \
  5  // int32 [count], id_stride apart [has_row_list]; without it, rows are first_row ...
#define MARLIN_BUFFER_SLOT_TO_K 6    // int32 [slots] [has_slot_to_k]
#define MARLIN_BUFFER_UNPACK_ARGS 7  // UnpackArgs, by value
/// Buffers of quantize, gather, e4m3 (which writes bfloat16) and group_sums.
#define MARLIN_BUFFER_SOURCE 0     // [m][lda]
#define MARLIN_BUFFER_QUANTIZED 1  // int8 [m][slots]; gather writes [m][slots] of the source's type
#define MARLIN_BUFFER_QUANT_SCALES 2  // float [m][slots / 32]; quantize only
#define MARLIN_BUFFER_GROUP_SUMS_OUT \
  2  // float [eight groups][eight rows of A][8][16]; group_sums only
#define MARLIN_BUFFER_SOURCE_SLOTS 3  // slot_to_k: quantize [has_slot_to_k], gather always
#define MARLIN_BUFFER_PREPARE_ARGS 4  // PrepareArgs, by value
/// Buffers of route.
#define MARLIN_BUFFER_IDS 0  // int32 [tokens][top_k], rows id_stride apart
#define MARLIN_BUFFER_ID_SCALES \
  1  // [tokens][top_k] of bias_type, rows scale_stride apart [bias_type]
#define MARLIN_BUFFER_ROUTE_ARGS 2  // RouteArgs, by value

/// Function constants.
#define MARLIN_CONSTANT_SCALE_TYPE 0  // uint: enum MarlinScaleType
#define MARLIN_CONSTANT_ZERO_KIND 1   // uint: enum MarlinZeroKind
#define MARLIN_CONSTANT_GROUP_SHIFT \
  2                                   // uint: log2 of the slots of a quad: 4, 5, 6; kLongGroupShift
#define MARLIN_CONSTANT_ROW_FACTOR 3  // uint: enum MarlinRowFactor
#define MARLIN_CONSTANT_ALIGNED 4     // bool: A and all its rows begin at multiples of 16 bytes
#define MARLIN_CONSTANT_RAGGED \
  5  // bool: A has fewer columns than slots, so the last 32 slots are checked when they are read
#define MARLIN_CONSTANT_OUTPUT_TYPE 6  // uint: enum MarlinFloat, of C
#define MARLIN_CONSTANT_BIAS_TYPE 7    // uint: enum MarlinFloat, or 3: no bias; route: of scales
#define MARLIN_CONSTANT_EPILOGUE 8     // uint: enum MarlinEpilogue; Metal's products: one-input
#define MARLIN_CONSTANT_ACCUMULATE 9   // bool: the old C is added
#define MARLIN_CONSTANT_PARTIAL 10  // bool: raw sums go to the partials, and finish does the rest
#define MARLIN_CONSTANT_INTERLEAVED 11  // bool: rows of W alternate gate, up
#define MARLIN_CONSTANT_SLOT_TO_K \
  12  // bool: columns of A / of unpacked rows are permuted (quantize, unpack)
#define MARLIN_CONSTANT_QUANTIZED 14   // bool: activations are bytes, in kernels whose name says so
#define MARLIN_CONSTANT_ROW_LIST 13    // bool: unpack's rows are listed
#define MARLIN_CONSTANT_ROUTING 15     // uint: enum MarlinRouting
#define MARLIN_CONSTANT_CODE_FORM 16   // uint: enum MarlinCodeForm
#define MARLIN_CONSTANT_SORTS_ROWS 17  // bool: a product finds the routed rows itself (Metal)

/// The group shift of groups of 128 slots and more: quads of quad_blocks blocks.
enum { kLongGroupShift = 7 };
/// What codes are, within a kind: of planes, their bits.
enum MarlinCodeForm {
  kFormOwn = 0,  // what the kind's name says
  kForm2Bits = 2,
  kForm3Bits = 3,
  kForm5Bits = 5,
  kForm6Bits = 6,
  kFormUnsigned = 8,  // i8: 0..255
  kFormE4m3 = 9,      // i8: E4M3
  kFormF32 = 10,      // floats
  kFormF16 = 11,
  kFormBf16 = 12
};
enum MarlinScaleType {
  kScaleF32 = 0,
  kScaleF16 = 1,
  kScaleBf16 = 2,
  kScaleE8m0 = 3,
  kScaleE4m3 = 4,
  kScaleTwoLevel = 5,  // int8 times the float16 of a super-block
  kScaleNested = 6     // a byte; the buffer of zeros has the other numbers
};
enum MarlinZeroKind {
  kZeroNone = 0,
  kZeroInteger = 1,
  kZeroF32 = 2,
  kZeroF16 = 3,
  kZeroBf16 = 4,
  kZeroTwoLevel = 5,  // -(int8 times the float16 of a super-block)
  kZeroCodebook = 6,  // none: the buffer has a codebook
  kZeroJoined = 7     // kZeroTwoLevel, with integers in the upper halves of the scales' bytes
};
/// The row factor of finished sums: none; * multiplier; * multiplier / divisor.
enum MarlinRowFactor { kRowFactorNone = 0, kRowFactorMultiply = 1, kRowFactorDivide = 2 };
enum MarlinFloat { kFloat32 = 0, kFloat16 = 1, kFloatBf16 = 2, kFloatNone = 3 };

/// Products of experts: none; C has a row for each routed row; or one for each token, the sum of
/// its routed rows times their scales (finish).
enum MarlinRouting { kRoutingNone = 0, kRoutingRows = 1, kRoutingSums = 2 };

/// MARLIN_EPILOGUE_* of the C ABI. SWIGLU_OAI is kEpilogueSwiglu with numbers. From kEpilogueSwiglu
/// on they take a gate and an up row.
enum MarlinEpilogue {
  kEpilogueNone = 0,
  kEpilogueSilu = 1,
  kEpilogueGeluTanh = 2,
  kEpilogueGeluErf = 3,
  kEpilogueSwiglu = 4,
  kEpilogueGegluTanh = 5,
  kEpilogueSitu = 7
};

/// The numbers by which the finished sums of one row of W are multiplied and then divided. The
/// multiplier contains 2^(14 - shift) of E8M0 exponents. It is NaN if a scale of the row is NaN,
/// because every product of this row is then NaN.
struct RowFactor {
  float multiplier;
  float divisor;
};
/// The parts that unpack needs: the tensor scale of the file (1: none), and the shift of stored
/// E8M0 exponents. Metal's order has them only beside row factors.
struct RowOrigin {
  float tensor;
  marlin_int divide;  // weight / tensor instead of weight * tensor
  marlin_int shift;   // stored exponent = e + shift
};

struct ProductArgs {
  marlin_int m, n;
  marlin_int k;             // columns of A
  marlin_int slots;         // packed length of K, a multiple of 32
  marlin_int quads;         // scale quads per row block
  marlin_int quad_blocks;   // with group shift 7
  marlin_int split_blocks;  // blocks of K per split (threadgroup position z); at least 1
  marlin_int splits;        // finish: partials to add
  marlin_int team_shift;    // ring: log2 of the warps that share a row block
  marlin_int items;         // routed: tiles of rows for which the table of routes has room
  MARLIN_INT64 lda, ldc;    // in elements; of INT8 activations lda = slots
  // Routed. m: of products routed rows, of finish rows of C.
  marlin_int top_k;
  marlin_int rows_of_a;  // the routed rows that share a row of A: 1 or top_k; 0: A was gathered
  MARLIN_INT64 expert_stride;  // bytes from the weights of one expert to those of the next
  MARLIN_INT64 bias_stride;    // elements from the bias of one expert to the next; 0: all share one
  // Few routed rows, without route: every threadgroup reads the ids, and the first one writes the
  // experts and scales of the table, which finish reads.
  marlin_int experts;                    // 0: route has written the table
  marlin_int ring_rows;                  // ring: routed rows of A that there is room for
  MARLIN_INT64 id_stride, scale_stride;  // in elements
  // Tiles for Hopper whose launch sorts routed rows into the table in memory, and gathers rows of A
  // (tile_routes.cuh).
  marlin_int gather_experts;    // 0: the launch does neither
  marlin_int gather_k;          // columns of the caller's A
  marlin_int gather_rows_of_a;  // as rows_of_a, or 0: no row is gathered
  marlin_int expanded;          // 1: the kernel before writes the codes (expand)
  MARLIN_INT64 gather_lda;
  // Numbers of kEpilogueSwiglu and kEpilogueSitu (GateNumbers of src/core/backend.h).
  float gate_limit, up_limit, gate_alpha, up_offset;
};
/// Bytes between rows of 16-bit activations, of so many slots, in the shared memory of a ring
/// kernel: a quarter of a warp, which reads two rows, meets all banks.
MARLIN_SHARED marlin_int ring_pitch(marlin_int slots) { return 2 * slots + 64; }
static_assert(sizeof(ProductArgs) == 144, "same on host and device");
MARLIN_OFFSET(ProductArgs, quads, 16);
MARLIN_OFFSET(ProductArgs, lda, 40);
MARLIN_OFFSET(ProductArgs, gate_limit, 128);

struct UnpackArgs {
  marlin_int n, k, slots, quads, quad_blocks;
  marlin_int count;  // rows of the output; a row whose id is no row of W becomes NaN
  MARLIN_INT64 first_row, ld, id_stride;  // ld and id_stride in elements
};
static_assert(sizeof(UnpackArgs) == 48, "same on host and device");
MARLIN_OFFSET(UnpackArgs, first_row, 24);

struct PrepareArgs {
  marlin_int m, k, slots;
  marlin_int items;  // gather: as below; row m of the result is that of place m of `sorted`
  MARLIN_INT64 lda;
  marlin_int rows_of_a;
  marlin_int group;  // quantize: slots that share a scale, 32, 64 or 128; 0: those of a row
  MARLIN_INT64 expert_stride;
  // Quantize: 1: for tiles for Hopper, a scale for each row, and slots in the order of their bytes
  // (cuda/round.cuh).
  marlin_int for_tiles, reserved;
};
static_assert(sizeof(PrepareArgs) == 48, "same on host and device");

// Products of experts. Slot s of token t is routed row t top_k + s. `route` sorts the routed rows
// by expert, in any order within one, and cuts each expert's into tiles of up to tile_rows rows,
// the items. A product kernel takes item y, or returns at once if there are fewer: the host, which
// never sees ids, launches for as many as there can be.
//
//   table, int32   [count of items, places in `sorted`, 0, 0]
//                  [items][expert, first, rows, 0]   rows of `sorted` from `first` on
//                  [routed rows] sorted: the routed row at each place
//                  [routed rows] expert, or -1 for an id outside of the stack
//                  [routed rows] scale, a float
struct RouteArgs {
  marlin_int tokens, top_k, experts, tile_rows;
  marlin_int items, reserved;
  MARLIN_INT64 id_stride, scale_stride;  // in elements
};
static_assert(sizeof(RouteArgs) == 40, "same on host and device");
enum { kRouteItem = 4, kMostExperts = 4096, kRouteThreads = 512, kFewRoutedRows = 32 };
/// Of a product kernel that sorts routed rows itself: the bytes of its table, up to the experts of
/// the rows, and the experts that it counts.
enum { kOwnTableBytes = 12 << 10, kMostOwnExperts = 512 };
MARLIN_SHARED MARLIN_INT64 route_sorted_at(marlin_int items) {
  return kRouteItem + MARLIN_INT64(kRouteItem) * items;
}
MARLIN_SHARED MARLIN_INT64 route_experts_at(marlin_int items, marlin_int routed_rows) {
  return route_sorted_at(items) + routed_rows;
}
MARLIN_SHARED MARLIN_INT64 own_table_bytes(marlin_int items, marlin_int routed_rows) {
  return 4 * route_experts_at(items, routed_rows);
}
MARLIN_SHARED MARLIN_INT64 route_scales_at(marlin_int items, marlin_int routed_rows) {
  return route_experts_at(items, routed_rows) + routed_rows;
}
static_assert(sizeof(RowFactor) == 8 && sizeof(RowOrigin) == 12, "same on host and device");
