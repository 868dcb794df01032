// What becomes of the sums of a tile (tile_shape.cuh): blocks that share it join theirs, and
// results are written.
#pragma once
#include "epilogue.cuh"
#include "routes.cuh"
#include "tile_shape.cuh"

/// The results of a warpgroup's part of a tile, and where they go. Those without an epilogue go
/// there at once: 16-bit numbers through shared memory, so that a thread writes 16 bytes, and
/// float32 in pieces of 32 bytes. The rest pass through shared memory as float32, so that the code
/// of epilogues is there once, and gate and up rows meet.
template <class Tile>
struct TileOutput {
  const Launch& launch;
  const ProductArgs& args;
  int group, warp, lane;
  int row, end, block;  // the rows of A, first row block
  int expert;

  /// `memory` has Tile::kOut bytes.
  __device__ void write(const float (&sums)[Tile::kSums], float factor,
                        unsigned char* memory) const {
    const u32 type = launch.constant(MARLIN_CONSTANT_OUTPUT_TYPE);
    const bool partial = launch.constant(MARLIN_CONSTANT_PARTIAL) != 0;
    const bool plain = launch.constant(MARLIN_CONSTANT_ACCUMULATE) == 0 &&
                       launch.constant(MARLIN_CONSTANT_EPILOGUE) == kEpilogueNone;
    const u64 c = launch.p.buffers[MARLIN_BUFFER_C];
    if (partial || (plain && type == kFloat32)) {
      write_floats(sums, factor, partial);
    } else if (plain && (c | u64(args.ldc * 2) | u64(args.n * 2)) % 16 == 0) {
      if (type == kFloat16)
        write_halves<F16>(sums, factor, memory);
      else
        write_halves<Bf16>(sums, factor, memory);
    } else {
      write_any(sums, factor, memory);
    }
  }

 private:
  /// The row of W of row `of_group` of the 64 of the warpgroup.
  __device__ int column(int of_group) const {
    return block * kRowBlock + kGroupRows * group + of_group;
  }
  /// The row of C, or of the partial sums, of row `at` of A.
  __device__ long long row_of_c(int at) const {
    if (args.items == 0) return at;
    return routed_row_of_tile<Tile>(launch, at);
  }

  __device__ void write_floats(const float (&sums)[Tile::kSums], float factor, bool partial) const {
    const int n = column(16 * warp + lane / 4), m = row + 2 * (lane % 4);
    const Finish low(n, *this, partial), high(n + 8, *this, partial);
    float* const to = launch.buffer<float>(partial ? MARLIN_BUFFER_PARTIALS : MARLIN_BUFFER_C) + n;
    const long long pitch = partial ? args.n : args.ldc;
    UNROLL for (int i = 0; i < Tile::kSums / 2; i++) {
      const int at = m + i / 2 * 8 + i % 2, from = i / 2 * 4 + i % 2;
      if (at >= end) continue;
      float* const row_of_sums = to + row_of_c(at) * pitch;
      if (n < args.n) *row_of_sums = low(sums[from] * factor);
      if (n + 8 < args.n) row_of_sums[8] = high(sums[from + 2] * factor);
    }
  }

  /// A warp turns 16 x 16 numbers at a time, so that two lanes write 32 bytes of a row of C. It
  /// waits for no other.
  template <class Number>
  __device__ void write_halves(const float (&sums)[Tile::kSums], float factor,
                               unsigned char* memory) const {
    static_assert(kHalvesRows == 16, "four matrices of 8 x 8");
    const int n = column(16 * warp + lane / 4);
    const Finish low(n, *this, false), high(n + 8, *this, false);
    unsigned char* const mine = memory + warp * kHalvesRows * kHalvesPitch;
    const u32 from_lane =
        shared_address(mine) + (lane / 16 * 8 + lane % 8) * kHalvesPitch + lane / 8 % 2 * 16;
    const unsigned char* const of_lane = mine + lane / 2 * kHalvesPitch + lane % 2 * 16;
    const int to = column(16 * warp + lane % 2 * 8);
    u16* const c = launch.buffer<u16>(MARLIN_BUFFER_C) + to;
    UNROLL for (int piece = 0; piece < Tile::kRows / kHalvesRows; piece++) {
      u32 halves[4];
      UNROLL for (int i = 0; i < 2; i++) {
        const float* const s = sums + 4 * (2 * piece + i);
        halves[2 * i] = Number::round(low(s[0] * factor), low(s[1] * factor));
        halves[2 * i + 1] = Number::round(high(s[2] * factor), high(s[3] * factor));
      }
      asm volatile(
          "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(from_lane),
          "r"(halves[0]), "r"(halves[1]), "r"(halves[2]), "r"(halves[3])
          : "memory");
      __syncwarp();
      const int m = row + piece * kHalvesRows + lane / 2;
      if (m < end && to < args.n)
        *reinterpret_cast<uint4*>(c + row_of_c(m) * args.ldc) =
            *reinterpret_cast<const uint4*>(of_lane);
      __syncwarp();  // the place is free again
    }
  }

  /// A thread finishes one column of C, of one or two rows of W.
  __device__ void write_any(const float (&sums)[Tile::kSums], float factor,
                            unsigned char* memory) const {
    constexpr int kRowsAtOnce = Tile::kFloatsRows, kOfMma = 8;
    const bool combines = combines_rows(launch), apart = pairs_halves(launch);
    const int columns = combines ? kGroupRows / 2 : kGroupRows, thread = 32 * warp + lane;
    const int i = thread % columns, rows_of_all = kGroupThreads / columns;
    const bool alternate = combines && !apart;
    const int at = alternate ? 2 * i : i, at_up = apart ? i + kRowBlock : at + 1;
    const int n = apart ? column(0) / 2 + i : column(at);  // the row of W
    const int n_of_up = apart ? n + args.n / 2 : n + 1;
    const bool exists = n < (apart ? args.n / 2 : args.n);
    const Finish first(n, *this, false), second(combines ? n_of_up : n, *this, false);
    const u32 epilogue = launch.constant(MARLIN_CONSTANT_EPILOGUE);
    const int g = lane / 4, j = lane % 4;
#pragma unroll 1
    for (int begin = 0; begin < Tile::kRows; begin += kRowsAtOnce) {
      wait_for_group(group);  // the rows before are read
      UNROLL for (int p = 0; p < Tile::kRows / kOfMma; p++) {
        if (p * kOfMma / kRowsAtOnce * kRowsAtOnce != begin) continue;
        UNROLL for (int e = 0; e < 4; e++) {
          const int in_group = 16 * warp + g + (e < 2 ? 0 : 8);
          const int in_rows = p * kOfMma % kRowsAtOnce + 2 * j + e % 2;
          reinterpret_cast<float*>(memory + in_rows * kFloatsPitch)[in_group] =
              sums[4 * p + e] * factor;
        }
      }
      wait_for_group(group);
#pragma unroll 1
      for (int in_rows = thread / columns; in_rows < kRowsAtOnce; in_rows += rows_of_all) {
        const int m = row + begin + in_rows;
        if (m >= end || !exists) break;
        const float* const from = reinterpret_cast<const float*>(memory + in_rows * kFloatsPitch);
        const float x = first(from[at]);
        store(combines ? combine(x, second(from[at_up]), epilogue, args) : activate(x, epilogue),
              row_of_c(m) * args.ldc + (alternate ? n / 2 : n), launch);
      }
    }
  }

  /// FinishedRow of a row that may lie outside of W, or nothing for partial sums.
  struct Finish {
    FinishedRow row;
    const bool partial;
    __device__ Finish(int n, const TileOutput& of, bool is_partial) : partial(is_partial) {
      if (!partial) row = FinishedRow(min(n, of.args.n - 1), of.launch, of.expert);
    }
    __device__ float operator()(float sum) const { return partial ? sum : row.finish(sum); }
  };
};

/// Joins the sums of a tile whose K several blocks share: adds those of the others, in the order of
/// K, to those of the block that has the first part. True for this block.
///
/// It waits for blocks that were started before it, and those wait for none that were started
/// later: whatever else the device runs, one of them goes on.
template <class Tile>
__device__ inline bool join_sums(const Launch& launch, const Work<Tile>& work, const Segment& now,
                                 u32 rank, int group, float (&sums)[Tile::kSums]) {
  constexpr long long kTile = static_cast<long long>(Tile::kRows) * Tile::kColumns;
  constexpr int kThreads = Tile::kGroups * kGroupThreads;
  const int thread = threadIdx.x % kGroupThreads;
  float4* const shared = launch.buffer<float4>(MARLIN_BUFFER_SHARED) + rank * (kTile / 4) +
                         group * kGroupThreads + thread;
  const auto place = [&](int block) { return shared + block * Tile::kCluster * (kTile / 4); };
  const auto flag = [&](int block) {
    return launch.buffer<u32>(MARLIN_BUFFER_FLAGS) +
           (block * Tile::kCluster + rank) * Tile::kGroups + group;
  };
  if (now.begin > 0) {
    float4* const to = place(work.me());
    UNROLL for (int i = 0; i < Tile::kSums / 4; i++)
        __stcg(to + i * kThreads,
               make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
    __threadfence();
    wait_for_group(group);
    if (thread == 0)
      asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag(work.me())) : "memory");
    return false;
  }
  const int last = work.last_sharer(now.tile);
  for (int block = work.me() + 1 + thread; block <= last; block += kGroupThreads) {
    u32 there;
    do
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(there)
                   : "l"(flag(block))
                   : "memory");
    while (there == 0);
    *flag(block) = 0;
  }
  wait_for_group(group);
  constexpr int kAtOnce = Tile::kSums < 64 ? 64 / Tile::kSums : 1;
#pragma unroll kAtOnce
  for (int block = work.me() + 1; block <= last; block++) {
    const float4* const from = place(block);
    UNROLL for (int i = 0; i < Tile::kSums / 4; i++) {
      const float4 v = __ldcg(from + i * kThreads);
      sums[4 * i] += v.x;
      sums[4 * i + 1] += v.y;
      sums[4 * i + 2] += v.z;
      sums[4 * i + 3] += v.w;
    }
  }
  return true;
}
