// What becomes of the sums of a tile (tile_shape.cuh): blocks that share it join theirs, and
// results are written.
#pragma once
#include "epilogue.cuh"
#include "tile_shape.cuh"

/// The results of a warpgroup's part of a tile, and where they go. Those without an epilogue go
/// there at once: 16-bit numbers through shared memory, so that a thread writes 16 bytes, and
/// float32 in pieces of 32 bytes. The rest pass through shared memory as float32, so that the code
/// of epilogues is there once.
template <class Tile>
struct TileOutput {
  static constexpr int kPieces = Tile::kRows / kResults;
  const Launch& launch;
  const ProductArgs& args;
  int group, warp, lane, row, block;  // first row of A, first row block

  /// `memory` has room for the numbers of 16 rows, kOutPitch bytes apart.
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
  /// The column of C of row `in_half` of the half row block of a warp.
  __device__ int column(int of_warp, int in_half) const {
    return (block + of_warp) * kRowBlock + 16 * group + in_half;
  }

  __device__ void write_floats(const float (&sums)[Tile::kSums], float factor, bool partial) const {
    const int n = column(warp, lane / 4), m = row + 2 * (lane % 4);
    const Finish low(n, launch, args, partial), high(n + 8, launch, args, partial);
    float* const to = launch.buffer<float>(partial ? MARLIN_BUFFER_PARTIALS : MARLIN_BUFFER_C) + n;
    const long long pitch = partial ? args.n : args.ldc;
    UNROLL for (int i = 0; i < Tile::kSums / 2; i++) {
      const int at = m + i / 2 * 8 + i % 2, from = i / 2 * 4 + i % 2;
      if (at < args.m && n < args.n) to[at * pitch] = low(sums[from] * factor);
      if (at < args.m && n + 8 < args.n) to[at * pitch + 8] = high(sums[from + 2] * factor);
    }
  }

  template <class Number>
  __device__ void write_halves(const float (&sums)[Tile::kSums], float factor,
                               unsigned char* memory) const {
    const int n = column(warp, lane / 4), thread = 32 * warp + lane, in_piece = thread / 8;
    const Finish low(n, launch, args, false), high(n + 8, launch, args, false);
    const u32 out = shared_address(memory);
    const u32 from_lane = out + lane % 8 * kHalvesPitch + (16 * warp + lane / 8 % 2 * 8) * 2;
    const int to = column(thread % 8 / 2, thread % 2 * 8);
    UNROLL for (int piece = 0; piece < kPieces; piece++) {
      wait_for_group(group);  // the piece before is read
      UNROLL for (int i = 0; i < kResults / 8; i++) {
        const float* const s = sums + 4 * (piece * kResults / 8 + i);
        const u32 upper = Number::round(low(s[0] * factor), low(s[1] * factor));
        const u32 lower = Number::round(high(s[2] * factor), high(s[3] * factor));
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(
                         from_lane + 8 * i * kHalvesPitch),
                     "r"(upper), "r"(lower)
                     : "memory");
      }
      wait_for_group(group);
      const int m = row + piece * kResults + in_piece;
      if (m < args.m && to < args.n)
        *reinterpret_cast<uint4*>(launch.buffer<u16>(MARLIN_BUFFER_C) + m * args.ldc + to) =
            *reinterpret_cast<const uint4*>(memory + in_piece * kHalvesPitch + thread % 8 * 16);
    }
  }

  __device__ void write_any(const float (&sums)[Tile::kSums], float factor,
                            unsigned char* memory) const {
    const int g = lane / 4, j = lane % 4;
#pragma unroll 1
    for (int piece = 0; piece < kPieces; piece++) {
      wait_for_group(group);  // the piece before is read
      UNROLL for (int p = 0; p < kPieces; p++) {
        if (p != piece) continue;
        UNROLL for (int i = 0; i < kResults / 2; i++) {
          const int in_piece = i / 4 * 8 + 2 * j + i % 2;
          const int in_half = 16 * warp + g + (i % 4 < 2 ? 0 : 8);
          reinterpret_cast<float*>(memory + in_piece * kOutPitch)[in_half] =
              sums[p * (kResults / 2) + i] * factor;
        }
      }
      wait_for_group(group);
      const int thread = 32 * warp + lane;
#pragma unroll 1
      for (int i = 0; i < 8; i++) {
        const int in_row = thread % 64, in_piece = 2 * i + thread / 64;
        const int m = row + piece * kResults + in_piece, n = column(in_row / 16, in_row % 16);
        if (m < args.m && n < args.n)
          write_sum(reinterpret_cast<const float*>(memory + in_piece * kOutPitch)[in_row], m, n,
                    launch);
      }
    }
  }

  /// FinishedRow of a row that may lie outside of W, or nothing for partial sums.
  struct Finish {
    const FinishedRow row;
    const bool partial;
    __device__ Finish(int n, const Launch& launch, const ProductArgs& args, bool is_partial)
        : row(min(n, args.n - 1), launch), partial(is_partial) {}
    __device__ float operator()(float sum) const { return partial ? sum : row.finish(sum); }
  };
};

/// Joins the sums of a tile whose K several blocks share. True for the block that has them all.
template <class Tile>
__device__ inline bool join_sums(const Launch& launch, const Work& work, int tile, int group,
                                 u32 flag, float (&sums)[Tile::kSums]) {
  constexpr long long kTile = static_cast<long long>(Tile::kRows) * Tile::kColumns;
  const int thread = threadIdx.x % kGroupThreads;
  float4* const shared =
      launch.buffer<float4>(MARLIN_BUFFER_SHARED) + group * kGroupThreads + thread;
  const auto place = [&](int block, int i) {
    return shared + work.place_of(tile, block) * (kTile / 4) + i * Tile::kGroups * kGroupThreads;
  };
  UNROLL for (int i = 0; i < Tile::kSums / 4; i++)
      __stcg(place(blockIdx.x, i),
             make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  int first, last;
  work.sharers(tile, first, last);
  u32* const counter =
      launch.buffer<u32>(MARLIN_BUFFER_COUNTERS) + (tile - work.whole) * Tile::kGroups + group;
  __threadfence();
  wait_for_group(group);
  if (thread == 0) {
    const u32 before = atomicAdd(counter, 1);
    const bool all = before == u32(last - first);
    if (all) *counter = 0;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(flag + 4 * group), "r"(u32(all)) : "memory");
  }
  wait_for_group(group);
  u32 all;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(all) : "r"(flag + 4 * group) : "memory");
  if (all == 0) return false;
  __threadfence();
  UNROLL for (int i = 0; i < Tile::kSums; i++) sums[i] = 0.0f;
#pragma unroll 1
  for (int block = first; block <= last; block++) UNROLL for (int i = 0; i < Tile::kSums / 4; i++) {
      const float4 v = __ldcg(place(block, i));
      sums[4 * i] += v.x;
      sums[4 * i + 1] += v.y;
      sums[4 * i + 2] += v.z;
      sums[4 * i + 3] += v.w;
    }
  return true;
}
