// C = f(A W^T) for many rows of A and weights of a form, on Hopper.
//
//   tile        128 rows of W (four row blocks) by ROWS rows of A
//   block       two warpgroups, of which one has the upper and one the lower half of each row
//               block, and a third that brings A; one block a multiprocessor, which takes tiles in
//               turn
//   W           from memory to registers, four chunks of 64 slots ahead; decoded there, it is the
//               register operand of wgmma
//   A           boxes of 64 slots in shared memory, swizzled, by the copy engine; a ring of them
//   sums        in registers; those of groups of 128 slots apart, until a scale multiplies them
//   K           whole tiles first. The rest is cut into equal parts, one a block (stream-K). Blocks
//               that share a tile put their sums into a workspace, and the last to come adds them
//               in the order of K, so that a result does not depend on who that is.
#pragma once
#include "epilogue.cuh"
#include "operand.cuh"
#include "wgmma.cuh"

constexpr int kGroups = 2, kGroupThreads = 128, kGroupRows = 64;  // warpgroups that multiply
constexpr int kTileColumns = kGroups * kGroupRows, kTileBlocks = kTileColumns / kRowBlock;
constexpr int kMostAhead = 4;                       // chunks of weights
constexpr int kPart = 2;                            // chunks that blocks share at least
constexpr int kBoxRowBytes = 128;                   // of 64 slots
constexpr int kResults = 16;                        // rows of results in shared memory
constexpr int kOutPitch = 4 * (kGroupRows + 4);     // bytes between them: no bank conflicts
constexpr int kHalvesPitch = 2 * (kGroupRows + 8);  // of 16-bit numbers

/// Waits for the other threads of a warpgroup, or of the one that brings A.
__device__ inline void wait_for_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

template <int ROWS>
struct TileMemory {
  static constexpr int kBoxes = ROWS <= 64 ? kMostAhead : 1;  // of a slot of the ring
  static constexpr int kBox = ROWS * kBoxRowBytes, kSlot = kBoxes * kBox;
  static constexpr int kOut = kResults * kOutPitch;
  static constexpr int kBarriers = 512, kAlignment = 1024, kMostSlots = 16;
  static constexpr int kRoom = (kTileSharedBytes - kAlignment - kBarriers - kGroups * kOut) / kSlot;
  static constexpr int kSlots = kRoom < kMostSlots ? kRoom : kMostSlots;
  static_assert(kSlots >= 3, "a ring");

  u32 boxes, full, empty;  // addresses
  unsigned char* out;

  __device__ explicit TileMemory(unsigned char* memory) {
    const u32 address = shared_address(memory);
    boxes = (address + kAlignment - 1) / kAlignment * kAlignment;
    full = boxes + kSlots * kSlot;
    empty = full + 8 * kSlots;
    out = memory + (full + kBarriers - address);
  }
  __device__ u32 flag() const { return full + 16 * kSlots; }
  /// One thread calls it.
  __device__ void init() const {
    for (int i = 0; i < kSlots; i++) {
      init_barrier(full + 8 * i, 1);
      init_barrier(empty + 8 * i, kGroups * kGroupThreads / 32);
    }
    publish_barriers();
  }
};

/// A place in a ring, and the phase of its barrier.
template <int SLOTS>
struct RingPlace {
  int slot = 0;
  u32 phase = 0;
  __device__ void advance() {
    if (++slot < SLOTS) return;
    slot = 0;
    phase ^= 1;
  }
};

/// Chunks of 64 slots of a tile. Tiles that follow each other have the same weights.
struct Segment {
  int tile, begin, stop;
};

/// The tiles of a block, in order, or parts of K of them.
struct Work {
  int chunks, parts;  // of a tile
  int whole, units;   // tiles that are not shared, parts of those that are
  int next_whole, at, end;

  __device__ Work(int tiles, int chunks_) : chunks(chunks_) {
    const int blocks = gridDim.x;
    parts = (chunks + kPart - 1) / kPart;
    const int waves = tiles / blocks - (tiles % blocks == 0 || tiles < blocks ? 0 : 1);
    whole = waves * blocks;
    units = (tiles - whole) * parts;
    next_whole = blockIdx.x;
    at = start(blockIdx.x);
    end = start(blockIdx.x + 1);
  }
  /// The first part of block i.
  __device__ int start(int i) const {
    return int(static_cast<long long>(units) * i / int(gridDim.x));
  }
  __device__ bool next(Segment& to) {
    if (next_whole < whole) {
      to = Segment{next_whole, 0, chunks};
      next_whole += int(gridDim.x);
      return true;
    }
    if (at >= end) return false;
    const int shared = at / parts, first = at - shared * parts;
    const int last = min(parts, first + (end - at));
    to = Segment{whole + shared, first * kPart, min(last * kPart, chunks)};
    at += last - first;
    return true;
  }
  __device__ bool is_part(const Segment& s) const { return s.begin > 0 || s.stop < chunks; }
  /// Blocks first ... last share a tile.
  __device__ void sharers(int tile, int& first, int& last) const {
    const int from = (tile - whole) * parts;
    first = last = int(blockIdx.x);
    while (first > 0 && start(first) > from) first--;
    while (last + 1 < int(gridDim.x) && start(last + 1) < from + parts) last++;
  }
  /// The place of a block's sums of a tile: a block has two, of a tile that another block has
  /// begun, and of one that it begins.
  __device__ int place_of(int tile, int block) const {
    return 2 * block + (start(block) > (tile - whole) * parts ? 0 : 1);
  }
};

/// Brings the boxes of A. 128 threads call it.
template <class Activation, int ROWS>
__device__ inline void bring_activations(const CudaParameters& parameters, Work work, int row_tiles,
                                         const TileMemory<ROWS>& memory) {
  typedef TileMemory<ROWS> Memory;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const u16* const a = launch.buffer<const u16>(MARLIN_BUFFER_A);
  const int thread = threadIdx.x % kGroupThreads;
  if (aligned && thread != 0) return;
  wait_for_previous();
  RingPlace<Memory::kSlots> place;
  for (Segment now; work.next(now);) {
    const int row = now.tile % row_tiles * ROWS;
    for (int c = now.begin; c < now.stop; c += Memory::kBoxes) {
      const int boxes = min(Memory::kBoxes, now.stop - c);
      const u32 to = memory.boxes + place.slot * Memory::kSlot, full = memory.full + 8 * place.slot;
      wait_for_phase(memory.empty + 8 * place.slot, place.phase ^ 1);
      if (aligned) {
        arrive_expecting(full, boxes * Memory::kBox);
        for (int i = 0; i < boxes; i++)
          copy_box(to + i * Memory::kBox, parameters.tensor_map, kMmaSlots * (c + i), row, full);
      } else {
        // The copy engine takes no such rows. A thread has the column pairs of a row, 32 apart.
        for (int at = thread; at < boxes * ROWS * 32; at += kGroupThreads) {
          const int pair = at % 32, in_box = at / 32 % ROWS, box = at / 32 / ROWS;
          const int k = kMmaSlots * (c + box) + 2 * pair, m = row + in_box;
          u32 both = 0;
          if (m < args.m)
            both = column_or_0(a + m * args.lda, k, args.k) |
                   u32(column_or_0(a + m * args.lda, k + 1, args.k)) << 16;
          const u32 piece = (pair / 4) ^ (in_box % 8);
          const u32 address =
              to + box * Memory::kBox + in_box * kBoxRowBytes + piece * 16 + pair % 4 * 4;
          asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(both) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        wait_for_group(kGroups);
        if (thread == 0) arrive(full);
      }
      place.advance();
    }
  }
}

/// A lane's weights of AHEAD chunks, of its half of a row block.
template <class Op, int AHEAD>
struct WeightQueue {
  const uint4* codes;  // of the row block
  const unsigned char *scales, *zeros;
  int quad_blocks, half;
  uint4 q[AHEAD];
  ChunkScales s[AHEAD];

  __device__ void seek(const Launch& launch, int row_block, int lane) {
    const ProductArgs& args = launch.arguments<ProductArgs>();
    const long long quads = static_cast<long long>(row_block) * args.quads;
    constexpr int kQuad = Op::kGroupsOf128 ? Op::kScaleBytes : kRowBlock;
    codes = launch.buffer<const uint4>(MARLIN_BUFFER_CODES) +
            static_cast<long long>(row_block) * (args.slots / kMmaSlots) * 64 + half * 32 + lane;
    scales = launch.buffer<const unsigned char>(MARLIN_BUFFER_SCALES) + quads * kQuad;
    zeros = launch.buffer<const unsigned char>(MARLIN_BUFFER_ZEROS) + quads * kRowBlock;
    quad_blocks = args.quad_blocks;
  }
  /// Fills place i with chunk c.
  __device__ void fetch(int i, int c, int g) {
    q[i] = __ldcs(codes + c * 64);
    ChunkScales& to = s[i];
    if (Op::kE8m0) {
      UNROLL for (int u = 0; u < 2; u++) to.words[u] =
          *reinterpret_cast<const u16*>(scales + 64 * c + 32 * u + 4 * g + 2 * half);
    } else if (Op::kE4m3) {
      UNROLL for (int u = 0; u < 2; u++) {
        const uint2 two = *reinterpret_cast<const uint2*>(scales + 128 * c + 64 * u + 8 * g);
        to.words[2 * u] = two.x;
        to.words[2 * u + 1] = two.y;
      }
    } else {
      const int quad = c / 2 / quad_blocks;
      to.words[0] =
          *reinterpret_cast<const u32*>(scales + quad * Op::kScaleBytes + 8 * g + 4 * half);
      if (Op::kZeroBytes != 0)
        to.zeros = *reinterpret_cast<const u16*>(zeros + quad * Op::kZeroBytes + 4 * g + 2 * half);
    }
  }
  /// Place i as operands of the half 0.
  __device__ void decode(int i, u32 (&a)[4][4]) const {
    ChunkScales mine = s[i];
    if (Op::kE4m3) UNROLL for (int w = 0; w < 4; w++) mine.words[w] >>= 16 * half;
    Op::template decode<0>(q[i], mine, a);
  }
};

/// The sums of a tile, a lane's part: elements 4 i + e of column 8 i + 2 j + e % 2 of the tile's
/// rows of A, and row g + 8 (e / 2) of its 16 rows of W.
template <class Codes, class Activation, class Form, int ROWS>
struct TileSums {
  typedef typename Activation::Number Number;
  typedef Operand<Codes, Number, Form> Op;
  typedef TileMemory<ROWS> Memory;
  static constexpr bool kApart = !Op::kFolded;
  /// Many sums leave few registers, and take their time.
  static constexpr int kAhead = ROWS > 128 || (kApart && ROWS > 64) ? 2 : kMostAhead;

  float total[ROWS / 2], part[kApart ? ROWS / 2 : 1];
  u32 a[2][4][4];
  WeightQueue<Op, kAhead> weights;
  RingPlace<Memory::kSlots> place;

  __device__ void clear() { UNROLL for (int i = 0; i < ROWS / 2; i++) total[i] = 0.0f; }

  /// Multiplies chunk `kb` of a stage by its box.
  __device__ void multiply(const Memory& memory, int kb, bool first) {
    u32(&operand)[4][4] = a[kb % 2];
    weights.decode(kb, operand);
    if (Memory::kBoxes == 1) wait_for_phase(memory.full + 8 * place.slot, place.phase);
    const u64 box = operand_b(memory.boxes + place.slot * Memory::kSlot) +
                    (Memory::kBoxes > 1 ? kb * (Memory::kBox >> 4) : 0);
    wgmma_fence();
    UNROLL for (int step = 0; step < 4; step++) {
      if constexpr (kApart)
        Wgmma<ROWS>::add(Number(), part, operand[step], box + 2 * step, kb % 2 + step != 0);
      else
        Wgmma<ROWS>::add(Number(), total, operand[step], box + 2 * step, !first || step != 0);
    }
    wgmma_commit();
  }

  __device__ void scale(int kb) {
    const float low = Op::template scale<0>(weights.s[kb], 0, 0);
    const float high = Op::template scale<0>(weights.s[kb], 0, 1);
    UNROLL for (int i = 0; i < ROWS / 2; i++) total[i] =
        fmaf(part[i], i % 4 < 2 ? low : high, total[i]);
  }
};

/// The results of a warpgroup's part of a tile, and where they go. Those without an epilogue go
/// there at once: 16-bit numbers through shared memory, so that a thread writes 16 bytes, and
/// float32 in pieces of 32 bytes. The rest pass through shared memory as float32, so that the code
/// of epilogues is there once.
template <int ROWS>
struct TileOutput {
  static constexpr int kPieces = ROWS / kResults;
  const Launch& launch;
  const ProductArgs& args;
  int group, warp, lane, row, block;  // first row of A, first row block

  /// `memory` has room for the numbers of 16 rows, kOutPitch bytes apart.
  __device__ void write(const float (&sums)[ROWS / 2], float factor, unsigned char* memory) const {
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

  __device__ void write_floats(const float (&sums)[ROWS / 2], float factor, bool partial) const {
    const int n = column(warp, lane / 4), m = row + 2 * (lane % 4);
    const Finish low(n, launch, args, partial), high(n + 8, launch, args, partial);
    float* const to = launch.buffer<float>(partial ? MARLIN_BUFFER_PARTIALS : MARLIN_BUFFER_C) + n;
    const long long pitch = partial ? args.n : args.ldc;
    UNROLL for (int i = 0; i < ROWS / 4; i++) {
      const int at = m + i / 2 * 8 + i % 2, from = i / 2 * 4 + i % 2;
      if (at < args.m && n < args.n) to[at * pitch] = low(sums[from] * factor);
      if (at < args.m && n + 8 < args.n) to[at * pitch + 8] = high(sums[from + 2] * factor);
    }
  }

  template <class Number>
  __device__ void write_halves(const float (&sums)[ROWS / 2], float factor,
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

  __device__ void write_any(const float (&sums)[ROWS / 2], float factor,
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
template <int ROWS>
__device__ inline bool join_sums(const Launch& launch, const Work& work, int tile, int group,
                                 u32 flag, float (&sums)[ROWS / 2]) {
  constexpr long long kTile = static_cast<long long>(ROWS) * kTileColumns;
  const int thread = threadIdx.x % kGroupThreads;
  float4* const shared =
      launch.buffer<float4>(MARLIN_BUFFER_SHARED) + group * kGroupThreads + thread;
  const auto place = [&](int block, int i) {
    return shared + work.place_of(tile, block) * (kTile / 4) + i * kGroups * kGroupThreads;
  };
  UNROLL for (int i = 0; i < ROWS / 8; i++)
      __stcg(place(blockIdx.x, i),
             make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  int first, last;
  work.sharers(tile, first, last);
  u32* const counter =
      launch.buffer<u32>(MARLIN_BUFFER_COUNTERS) + (tile - work.whole) * kGroups + group;
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
  UNROLL for (int i = 0; i < ROWS / 2; i++) sums[i] = 0.0f;
#pragma unroll 1
  for (int block = first; block <= last; block++) UNROLL for (int i = 0; i < ROWS / 8; i++) {
      const float4 v = __ldcg(place(block, i));
      sums[4 * i] += v.x;
      sums[4 * i + 1] += v.y;
      sums[4 * i + 2] += v.z;
      sums[4 * i + 3] += v.w;
    }
  return true;
}

/// The products of the warpgroups that multiply.
template <class Codes, class Activation, class Form, int ROWS>
__device__ inline void multiply_tiles(const CudaParameters& parameters, Work work, int row_tiles,
                                      const TileMemory<ROWS>& memory) {
  typedef TileSums<Codes, Activation, Form, ROWS> Sums;
  typedef TileMemory<ROWS> Memory;
  constexpr int kAhead = Sums::kAhead;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / kGroupThreads, 0);
  const int warp = threadIdx.x % kGroupThreads / 32, lane = threadIdx.x % 32, g = lane / 4;
  const int row_blocks = (args.n + kRowBlock - 1) / kRowBlock;
  Sums sums;
  sums.weights.half = group;
  const auto fetch_first = [&](const Segment& of) {
    const int block = of.tile / row_tiles * kTileBlocks + warp;
    sums.weights.seek(launch, min(block, row_blocks - 1), lane);
    UNROLL for (int i = 0; i < kAhead; i++) if (of.begin + i < of.stop)
        sums.weights.fetch(i, of.begin + i, g);
  };
  const auto give_back = [&](int slot) {
    if (lane == 0) arrive(memory.empty + 8 * slot);
  };

  Segment now{}, next{};
  bool more = work.next(now);
  if (more) fetch_first(now);
  wait_for_previous();
  for (; more; now = next) {
    sums.clear();
    int last_slot = -1;  // whose boxes may still be read
    const auto stage = [&](auto is_whole, int c, int chunks) {
      constexpr bool kWhole = decltype(is_whole)::value != 0;
      if (Memory::kBoxes > 1) wait_for_phase(memory.full + 8 * sums.place.slot, sums.place.phase);
      UNROLL for (int kb = 0; kb < kAhead; kb++) {
        if (!kWhole && kb >= chunks) break;
        sums.multiply(memory, kb, c == now.begin && kb == 0);
        if (Sums::kApart && (kb % 2 != 0 || (!kWhole && kb + 1 == chunks))) {
          wgmma_wait<0>();
          sums.scale(kb);
        } else if (!Sums::kApart) {
          wgmma_wait<1>();
        }
        if (kWhole && c + kAhead + kb < now.stop) sums.weights.fetch(kb, c + kAhead + kb, g);
        if (Memory::kBoxes == 1 || kb == 0) {
          // All but the newest group are done, or all.
          if (last_slot >= 0) give_back(last_slot);
          last_slot = -1;
        }
        if (Memory::kBoxes == 1) {
          last_slot = sums.place.slot;
          sums.place.advance();
        }
      }
      if (Memory::kBoxes > 1) {
        last_slot = sums.place.slot;
        sums.place.advance();
      }
    };
    int c = now.begin;
    for (; c + kAhead <= now.stop; c += kAhead) stage(Constant<1>(), c, kAhead);
    if (c < now.stop) stage(Constant<0>(), c, now.stop - c);
    wgmma_wait<0>();
    if (last_slot >= 0) give_back(last_slot);

    more = work.next(next);
    if (more) fetch_first(next);  // while the results are written
    if (work.is_part(now) &&
        !join_sums<ROWS>(launch, work, now.tile, group, memory.flag(), sums.total))
      continue;
    const TileOutput<ROWS> output{launch,
                                  args,
                                  group,
                                  warp,
                                  lane,
                                  now.tile % row_tiles * ROWS,
                                  now.tile / row_tiles * kTileBlocks};
    output.write(sums.total, Sums::Op::kFactor, memory.out + group * Memory::kOut);
  }
}

template <class Codes, class Activation, class Form, int ROWS>
__device__ inline void hopper_gemm(const CudaParameters& parameters) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  typedef Operand<Codes, typename Activation::Number, Form> Op;
  // Sums of groups of 32 would take more instructions than wgmma saves: no such product gets here.
  if constexpr (!Op::kFolded && !Op::kGroupsOf128) return;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const TileMemory<ROWS> memory(dynamic);
  const int row_tiles = (args.m + ROWS - 1) / ROWS;
  const int column_tiles = (args.n + kTileColumns - 1) / kTileColumns;
  const Work work(row_tiles * column_tiles, args.slots / kMmaSlots);
  if (threadIdx.x == 0) memory.init();
  let_next_start();
  __syncthreads();
  if (threadIdx.x >= kGroups * kGroupThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    bring_activations<Activation, ROWS>(parameters, work, row_tiles, memory);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    multiply_tiles<Codes, Activation, Form, ROWS>(parameters, work, row_tiles, memory);
  }
}
