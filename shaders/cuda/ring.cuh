// C = f(A W^T) for up to eight rows of A and weights of a form, on Hopper: few instructions a code,
// and as many bytes on their way as shared memory holds.
//
//   block       16 warps, one block a multiprocessor; it has jobs, each a row block of W with up
//               to eight rows of A, those of an item of routed rows, too (ring_work.cuh)
//   team        16, 8 or 4 of the warps (args.team_shift), which share the K of a row block; teams
//               take the block's jobs in turn
//   warp        a part of K of its own, and a ring of stages of up to 256 slots, which bulk copies
//               fill
//   A           copied to shared memory once, in the order in which lanes read it; of routed rows,
//               those of as many items as there is room for
//   sums        of a team meet in shared memory, in a fixed order
#pragma once
#include "ring_work.cuh"

constexpr int kRingWarps = 16, kMostStages = 8;
constexpr int kMostStageChunks = 4;  // of 64 slots
constexpr int kSumPitch = 36;        // floats between rows of sums: no bank conflicts

/// The part of K of a warp, in chunks of 64 slots.
struct WarpPart {
  int begin, end;  // chunks of the row block

  /// Part `i` of 2^shift parts of `units` units of `chunks_of_unit` chunks, of `chunks` in all.
  __device__ WarpPart(int first, int units, int chunks_of_unit, int chunks, int i, int shift) {
    begin = first + (units * i >> shift) * chunks_of_unit;
    end = first + min((units * (i + 1) >> shift) * chunks_of_unit, chunks);
  }
  __device__ int count() const { return end - begin; }
};

/// The sizes of a stage: of an equal share of a warp's part, of up to four chunks, or of as many
/// as leave room for three stages. (Divisions by numbers that the compiler does not know would take
/// a tenth of a small product's time.)
template <class Op>
struct StageShape {
  static constexpr int kWantedStages = 3;
  static constexpr int kUnitChunks = Op::kGroupsOf128 ? 2 : 1;  // whose scales are one piece
  static constexpr int kUnitBytes =
      kUnitChunks * Op::kChunkCodes + Op::kScaleBytes + Op::kZeroBytes;
  static constexpr int kMost = kMostStageChunks / kUnitChunks;
  int units = 1, stages = 0, stages_of_part;

  /// For the longest part of a warp, in units, and as many bytes of each warp.
  __device__ StageShape(int longest, int room) {
    stages_of_part = longest;
    UNROLL for (int i = 2; i <= kMost; i++) if (room >= kWantedStages * i * kUnitBytes)
        stages_of_part = (longest + i - 1) / i;
    UNROLL for (int i = 1; i < kMost; i++) if (units * stages_of_part < longest) units++;
    UNROLL for (int i = 1; i <= kMost; i++) if (units == i) stages = room / (i * kUnitBytes);
    stages = min(stages, kMostStages);
  }
  __device__ int chunks() const { return units * kUnitChunks; }
  __device__ int bytes() const { return units * kUnitBytes; }
  __device__ int scales_at() const { return chunks() * Op::kChunkCodes; }
  __device__ int zeros_at() const { return scales_at() + units * Op::kScaleBytes; }
};

/// The weights of a warp's part, a ring of stages.
template <class Op, class Work>
struct WeightRing {
  const Work& work;
  const WarpPart part;
  const StageShape<Op> shape;
  const u32 memory, barriers;  // addresses in shared memory
  const int step;
  int job, item, half, chunk, row_block;  // what comes next
  long long expert;  // the bytes from the first expert's weights to those of the job

  __device__ WeightRing(const Work& work_, const WarpPart& part_, const StageShape<Op>& shape_,
                        u32 memory_, u32 barriers_, int first_job, int step_)
      : work(work_),
        part(part_),
        shape(shape_),
        memory(memory_),
        barriers(barriers_),
        step(step_),
        job(part.count() == 0 ? work.end : first_job),
        item(work.first_item),
        half(0),
        chunk(part.begin) {
    begin_job();
  }

  /// Every lane of the warp calls it.
  __device__ void init() const {
    if (threadIdx.x % 32 < shape.stages) init_barrier(barriers + threadIdx.x % 32 * 8, 1);
    publish_barriers();
    __syncwarp();
  }
  /// Waits for up to `early` stages that were asked for since init(), and gives the memory back.
  /// Every lane of the warp calls it.
  __device__ void abandon(int first_job, int early) const {
    int asked = 0;
    for (int job = first_job; job < work.end; job += step)
      for (int i = 0; i < part.count(); i += shape.chunks()) asked += work.halves();
    for (int s = 0; s < min(asked, early); s++) wait_for_phase(barriers + 8 * s, 0);
    __syncwarp();
    if (threadIdx.x % 32 < shape.stages) end_barrier(barriers + threadIdx.x % 32 * 8);
  }
  /// Starts to fill a stage with what comes next, if anything does. One lane calls it.
  __device__ void refill(u32 stage) {
    if (job >= work.end) return;
    const ProductArgs& args = work.args;
    const int chunks = min(shape.chunks(), part.end - chunk);
    const u32 to = memory + stage * shape.bytes(), barrier = barriers + 8 * stage;
    const u32 code_bytes = chunks * Op::kChunkCodes;
    const int groups = (chunks + shape.kUnitChunks - 1) / shape.kUnitChunks;
    const int first_group = chunk / shape.kUnitChunks;
    arrive_expecting(barrier, code_bytes + groups * (Op::kScaleBytes + Op::kZeroBytes));
    const long long code_pitch = static_cast<long long>(args.slots / kMmaSlots) * Op::kChunkCodes;
    copy_pieces(of_buffer(MARLIN_BUFFER_CODES) + expert + row_block * code_pitch, Op::kChunkCodes,
                chunk, chunks, 1, to, barrier);
    copy_pieces(of_buffer(MARLIN_BUFFER_SCALES) + expert + row_block * scale_pitch<Op>(args),
                Op::kScaleBytes, first_group, groups, quad_blocks_of<Op>(args),
                to + shape.scales_at(), barrier);
    if (Op::kZeroBytes != 0)
      copy_pieces(of_buffer(MARLIN_BUFFER_ZEROS) + expert + row_block * zero_pitch<Op>(args),
                  Op::kZeroBytes, first_group, groups, quad_blocks_of<Op>(args),
                  to + shape.zeros_at(), barrier);
    chunk += chunks;
    if (chunk < part.end) return;
    chunk = part.begin;
    row_block += work.of_item;
    if (++half < work.halves()) return;
    half = 0;
    job += step;
    begin_job();
  }

 private:
  __device__ void begin_job() {
    if (job >= work.end) return;
    item = work.item(job, item);
    row_block = work.row_block(job, item, 0);
    expert = work.weights_at(item);
  }
  __device__ const unsigned char* of_buffer(int index) const {
    return work.launch.template buffer<const unsigned char>(index);
  }
};

/// The numbers of a quad, of ELEMENT bytes, that lane row g needs.
template <int ELEMENT, int WORDS>
__device__ inline void read_quad(const unsigned char* quad, int g, u32 (&to)[WORDS]) {
  static_assert(ELEMENT <= 2, "longer ones take more registers than there are");
  if constexpr (ELEMENT == 1) {
    to[0] = *reinterpret_cast<const u32*>(quad + 4 * g);
  } else if constexpr (ELEMENT == 2) {
    const uint2 two = *reinterpret_cast<const uint2*>(quad + 8 * g);
    to[0] = two.x;
    to[1] = two.y;
  }
}

/// What a lane reads of the scales and zeros number `c` of a stage: of 64 slots, or of 128 if that
/// is the group.
template <class Op>
__device__ inline ChunkScales<Op, 2> read_scales(const unsigned char* stage,
                                                 const StageShape<Op>& shape, int c, int g) {
  ChunkScales<Op, 2> to{};
  const unsigned char* const scales = stage + shape.scales_at() + c * Op::kScaleBytes;
  const unsigned char* const zeros = stage + shape.zeros_at() + c * Op::kZeroBytes;
  if constexpr (Op::kE4m3) {
    UNROLL for (int u = 0; u < 2; u++) {  // quads in pairs
      const uint2 two = *reinterpret_cast<const uint2*>(scales + 64 * u + 8 * g);
      to.scales[2 * u][0] = two.x;
      to.scales[2 * u + 1][0] = two.y;
    }
  } else {
    constexpr int kScale = Op::kScaleElement, kZero = Op::kZeroElement;
    UNROLL for (int q = 0; q < Op::kQuads; q++) {
      read_quad<kScale>(scales + q * kRowBlock * kScale, g, to.scales[q]);
      read_quad<kZero>(zeros + q * kRowBlock * kZero, g, to.zeros[q]);
    }
  }
  return to;
}

/// Copies a warp's columns of `rows` rows of A, which begin at place `first`, to rows of `pitch`
/// bytes, in this order: of each unit of 32 slots, the operands B of both steps of lane column j
/// are 16 bytes. Calls `meanwhile` while the first are on their way.
template <class Activation, class Work, class Meanwhile>
__device__ inline void copy_activations(const Work& work, int first, int rows, const WarpPart& part,
                                        unsigned char* to, int pitch, const Meanwhile& meanwhile) {
  constexpr int kAtOnce = 4;
  const ProductArgs& args = work.args;
  const int pieces = 8 * part.count();  // of eight columns
  const bool aligned = work.launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  const u16* const a = work.launch.template buffer<const u16>(MARLIN_BUFFER_A);
  bool begun = false;
  int row = 0, piece = int(threadIdx.x % 32);
  const auto wrap = [&] {
    for (; pieces != 0 && piece >= pieces; row++) piece -= pieces;
  };
  wrap();
  while (pieces != 0 && row < rows) {
    uint4 x[kAtOnce];
    u32* place[kAtOnce];
    UNROLL for (int i = 0; i < kAtOnce; i++) {
      // What there is no more of is copied once more.
      const int of_row = min(row, rows - 1), k = 64 * part.begin + 8 * piece;
      const u16* const from = a + work.row_of_a(first + of_row) * args.lda;
      place[i] = reinterpret_cast<u32*>(to + of_row * pitch + piece / 4 * 64) + piece % 4;
      if (aligned && k + 8 <= args.k) {
        x[i] = *reinterpret_cast<const uint4*>(from + k);
      } else {
        const uint2 low = load_columns<Activation>(from, k, args.k);
        const uint2 high = load_columns<Activation>(from, k + 4, args.k);
        x[i] = make_uint4(low.x, low.y, high.x, high.y);
      }
      piece += 32;
      wrap();
    }
    if (!begun) meanwhile();
    begun = true;
    UNROLL for (int i = 0; i < kAtOnce; i++) {
      place[i][0] = x[i].x;
      place[i][4] = x[i].y;
      place[i][8] = x[i].z;
      place[i][12] = x[i].w;
    }
  }
  if (!begun) meanwhile();
}

/// Adds the products of a stage of `chunks` chunks to the sums of both halves of the row block.
template <class Codes, class Number, class Form>
__device__ inline void add_stage(const unsigned char* stage,
                                 const StageShape<Operand<Codes, Number, Form>>& shape,
                                 const unsigned char* x, int chunks, int lane,
                                 float (&total)[2][4]) {
  typedef Operand<Codes, Number, Form> Op;
  const int g = lane / 4;
  float part[2][4];
  ChunkScales<Op, 2> scales{};
  // Additive zeros take registers, and so do short groups: fewer chunks are under way.
  constexpr bool kOf64 = !Op::kFolded && !Op::kGroupsOf128 && Op::kGroupUnits == 2;
  constexpr int kUnrolled = Op::kAdditive ? 1 : (kOf64 ? 2 : kMostStageChunks);
#pragma unroll kUnrolled
  for (int c = 0; c < kMostStageChunks; c++) {
    if (c > 0 && c >= chunks) break;
    const bool begins = !Op::kGroupsOf128 || c % 2 == 0;
    if (begins) scales = read_scales<Op>(stage, shape, Op::kGroupsOf128 ? c / 2 : c, g);
    if (begins) UNROLL for (int i = 0; i < 4; i++) part[0][i] = part[1][i] = 0.0f;
    const uint4 low = *reinterpret_cast<const uint4*>(x + 128 * c);
    const uint4 high = *reinterpret_cast<const uint4*>(x + 128 * c + 64);
    const u32 b[4][2] = {{low.x, low.y}, {low.z, low.w}, {high.x, high.y}, {high.z, high.w}};
    const auto half = [&](auto number) {
      constexpr int kHalf = decltype(number)::value;
      uint4 q[Op::kPieces];
      UNROLL for (int i = 0; i < Op::kPieces; i++) q[i] = *reinterpret_cast<const uint4*>(
          stage + c * Op::kChunkCodes + 1024 * i + 512 * kHalf + 16 * lane);
      u32 a[4][4];
      Op::template decode<kHalf>(q, scales, a);
      if constexpr (Op::kFolded) {
        UNROLL for (int s = 0; s < 4; s++) Number::mma(total[kHalf], a[s], b[s]);
      } else if constexpr (Op::kGroupsOf128) {
        UNROLL for (int s = 0; s < 4; s++) Number::mma(part[kHalf], a[s], b[s]);
      } else {
        UNROLL for (int u = 0; u < 2; u += Op::kGroupUnits) {
          float sum[4] = {};
          [[maybe_unused]] float sum_of_a[4] = {};  // the same in all rows of W
          UNROLL for (int s = 2 * u; s < 2 * (u + Op::kGroupUnits); s++) {
            Number::mma(sum, a[s], b[s]);
            if constexpr (Op::kAdditive) {
              const u32 ones[4] = {Number::kOne, Number::kOne, Number::kOne, Number::kOne};
              Number::mma(sum_of_a, ones, b[s]);
            }
          }
          UNROLL for (int i = 0; i < 4; i++) {
            float& to = total[kHalf][i];
            to = fmaf(sum[i], Op::template scale<kHalf>(scales, 2 * u, i / 2), to);
            if constexpr (Op::kAdditive)
              to = fmaf(sum_of_a[i % 2], Op::template zero<kHalf>(scales, 2 * u, i / 2), to);
          }
        }
      }
    };
    half(Constant<0>());
    half(Constant<1>());
    if constexpr (!Op::kFolded && Op::kGroupsOf128) {
      if (c % 2 == 0 && c + 1 < chunks) continue;
      UNROLL for (int i = 0; i < 4; i++) {
        total[0][i] = fmaf(part[0][i], Op::template scale<0>(scales, 0, i / 2), total[0][i]);
        total[1][i] = fmaf(part[1][i], Op::template scale<1>(scales, 0, i / 2), total[1][i]);
      }
    }
  }
}

/// The bytes at the begin of shared memory of the table of routes that the block has made, a
/// multiple of 128. (The compiler would keep the number, for which there is no register.)
__device__ inline int bytes_of_routes(const Launch& launch) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int zero = unknown_zero();
  if (args.experts + zero == 0 || args.m + zero <= kFewRoutedRows) return 0;
  return (int(own_table_bytes(args.items + zero, args.m)) + 127) & ~127;
}

/// The table of routes of a product of experts, which may be in `memory` (free_memory_of_routes),
/// and the experts of all rows. `tells` is that of sort_few_routes().
template <bool SORTS_MANY>
__device__ inline const int* find_ring_routes(const Launch& launch, unsigned char* memory,
                                              bool tells, const int*& experts) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (!SORTS_MANY || args.experts == 0 || args.m <= kFewRoutedRows) {
    alignas(16) __shared__ int few[kFewRoutes];
    const int* const table = find_few_routes(launch, kRingRows, few, tells);
    experts = table + route_experts_at(args.items, args.m);
    return table;
  }
  int* const table = reinterpret_cast<int*>(memory);
  experts =
      sort_routes<32 * kRingWarps>(launch, kRingRows, table, memory + bytes_of_routes(launch));
  return table;
}

/// The products of ring(). With `guesses`, it takes the ids of few routed rows as they are while
/// the kernel before still runs, and asks for weights of these experts. When that kernel has ended,
/// it reads the ids again: if they name other experts now, nothing was written, and it returns
/// false.
template <class Codes, class Activation, class Form, bool ROUTED>
__device__ inline bool multiply_ring(const CudaParameters& parameters, int first, int shared_bytes,
                                     bool guesses) {
  typedef typename Activation::Number Number;
  typedef Operand<Codes, Number, Form> Op;
  extern __shared__ __align__(128) unsigned char memory[];
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
  // Integers in short groups leave no registers for it (routes_of_ring of
  // src/backends/cuda/policy.cc).
  constexpr bool kIntegers = Codes::kZeros || Codes::kWords > 1;
  constexpr bool kSortsMany = ROUTED && (!kIntegers || Op::kGroupsOf128 || Op::kAdditive);
  const int* table = nullptr;
  if constexpr (ROUTED) {
    if (!guesses) wait_for_previous();
    const int* experts;
    table = find_ring_routes<kSortsMany>(launch, memory, !guesses, experts);
    if (!guesses) clear_rows_of_no_expert(launch, experts, 32 * kRingWarps);
    if (kSortsMany && table == reinterpret_cast<const int*>(memory)) free_memory_of_routes();
  }
  const RingWork<ROUTED> work(launch, table, first);
  const int first_block = int(blockIdx.z) * args.split_blocks;
  const int end_block = min(first_block + args.split_blocks, block_count(args.slots));
  const int first_chunk = block_begin(args.slots, first_block) / kMmaSlots;
  const int chunks = block_begin(args.slots, end_block) / kMmaSlots - first_chunk;
  constexpr int kUnitChunks = StageShape<Op>::kUnitChunks;
  const int units = (chunks + kUnitChunks - 1) / kUnitChunks;
  const int shift = args.team_shift, warps = 1 << shift, teams = kRingWarps >> shift;
  const int team = warp >> shift, in_team = warp - (team << shift);
  const WarpPart part(first_chunk, units, kUnitChunks, chunks, in_team, shift);

  // Shared memory: routes, A, the sums of all warps, barriers, rings.
  const int pitch = ring_pitch(kMmaSlots * chunks);
  const int room_for = ROUTED ? work.all_rows(args.ring_rows) : work.rows(0);
  const int sum_floats = min(room_for, kRingRows) * kSumPitch;
  const auto x = [&] { return memory + (kSortsMany ? bytes_of_routes(launch) : 0); };
  float* const sums = reinterpret_cast<float*>(x() + room_for * pitch);
  unsigned char* const barriers = reinterpret_cast<unsigned char*>(sums + kRingWarps * sum_floats);
  unsigned char* const rings = barriers + kRingWarps * kMostStages * 8;
  const StageShape<Op> shape((units + warps - 1) >> shift,
                             (shared_bytes - int(rings - memory)) / kRingWarps / 16 * 16);
  unsigned char* const mine = rings + warp * shape.stages * shape.bytes();
  WeightRing<Op, RingWork<ROUTED>> ring(work, part, shape, shared_address(mine),
                                        shared_address(barriers) + warp * kMostStages * 8,
                                        work.begin + team, teams);
  ring.init();
  // Many copies on their way would hold up the end of the kernel before, and A. A long product
  // makes up for it.
  const int halves = work.halves();
  const bool is_long =
      static_cast<long long>(work.end - work.begin) * halves * shape.stages_of_part >
      static_cast<long long>(2 * shape.stages) * teams;
  const int wanted = is_long || shape.chunks() < kMostStageChunks / 2 ? 2 : 1;
  // Products begin with A: of few routed rows one stage is asked for before it, or two while the
  // kernel before still runs. (FP4 with float16 activations has no registers for it.)
  constexpr bool kAMayBeFirst = Op::kIsBf16 || Codes::kZeros || Codes::kWords > 1;
  const bool a_first = kAMayBeFirst && args.m <= kFewRoutedRows;
  const int before_a = guesses ? min(2, shape.stages) : (a_first ? 1 : shape.stages);
  const int early = ROUTED ? before_a : min(wanted, shape.stages);
  const auto refill = [&](int begin, int end) {
    if (lane != 0) return;
#pragma unroll 1
    for (int s = begin; s < end; s++) ring.refill(s);
  };
  refill(0, early);
  __syncwarp();
  wait_for_previous();
  if (ROUTED && guesses) {
    if (!confirm_few_routes(launch, table)) {
      ring.abandon(work.begin + team, early);
      free_memory_of_routes();
      return false;
    }
    clear_rows_of_no_expert(launch, table + route_experts_at(args.items, args.m), 32 * kRingWarps);
  }
  // Each warp copies a part of A. A part of a team of 16 is read by the warp that copied it.
  constexpr int kAllWarps = 4;
  static_assert(1 << kAllWarps == kRingWarps, "log2");
  const WarpPart copied(first_chunk, units, kUnitChunks, chunks, warp, kAllWarps);
  const auto wait_for_team = [&] {
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(32 * warps) : "memory");
  };
  const auto wait_for_readers = [&] {
    if (teams == 1)
      __syncwarp();
    else
      __syncthreads();
  };

  int stage = 0;
  u32 parity = 0;
  bool again = false;
  int job = work.begin + team, of = work.first_item;
  // The jobs of items whose rows of A there is room for.
  int unfilled = early;  // the first stage that was not asked for yet
  for (int item = work.first_item; item * work.of_item < work.end;) {
    const int first_place = work.place(item);
    int rows_of_items = work.rows(item++);
    while (item * work.of_item < work.end && rows_of_items + work.rows(item) <= room_for)
      rows_of_items += work.rows(item++);
    const int end = min(item * work.of_item, work.end);
    if (unfilled == shape.stages) wait_for_readers();  // of the items before
    copy_activations<Activation>(work, first_place, rows_of_items, copied,
                                 x() + 128 * (copied.begin - first_chunk), pitch, [&] {
                                   refill(unfilled, shape.stages);
                                   unfilled = shape.stages;
                                 });
    wait_for_readers();
    for (; job < end; job += teams) {
      of = work.item(job, of);
      const int rows = work.rows(of), place = work.place(of);
      const unsigned char* const lane_x = x() + 128 * (part.begin - first_chunk) +
                                          (place - first_place + min(g, rows - 1)) * pitch + 16 * j;
      constexpr int kMostOfWarp = 2;
      float gates[kMostOfWarp] = {};
      for (int half = 0; half < halves; half++) {
        const int row_block = work.row_block(job, of, half);
        if (in_team < rows) work.prefetch_factors(row_block, of);
        float total[2][4] = {};
        for (int done = 0; done < part.count(); done += shape.chunks()) {
          wait_for_phase(ring.barriers + 8 * stage, parity);
          add_stage<Codes, Number, Form>(mine + stage * shape.bytes(), shape, lane_x + 128 * done,
                                         min(part.count() - done, shape.chunks()), lane, total);
          __syncwarp();
          if (lane == 0) ring.refill(stage);
          if (++stage == shape.stages) {
            stage = 0;
            parity ^= 1;
          }
        }
        if (again) wait_for_team();  // the sums before are read
        again = true;
        float* const to = sums + warp * sum_floats + g;
        UNROLL for (int e = 0; e < 2; e++) {
          const int row = 2 * j + e;
          UNROLL for (int i = 0; i < 4; i++) if (row < rows) to[row * kSumPitch + 8 * i] =
              total[i / 2][2 * (i % 2) + e];
        }
        wait_for_team();
        UNROLL for (int i = 0; i < kMostOfWarp; i++) {
          const int row = in_team + i * warps;
          if (row >= rows) break;
          const float* const from = sums + team * warps * sum_floats + row * kSumPitch + lane;
          float sum = from[0];
          UNROLL for (int w = 1; w < kRingWarps; w++) if (w < warps) sum += from[w * sum_floats];
          sum *= Op::kFactor;
          if (half + 1 == halves)
            work.write(gates[i], sum, place + row, row_block, of);
          else
            gates[i] = sum;
        }
      }
    }
  }
  return true;
}

/// The rows of A from `first` on, eight of them, or all routed rows.
template <class Codes, class Activation, class Form, bool ROUTED>
__device__ inline void ring(const CudaParameters& parameters, int first, int shared_bytes) {
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  let_next_start();
  // Other weights and activations leave no registers for a guess.
  constexpr bool kGuesses =
      ROUTED && !Codes::kZeros && Codes::kWords == 1 && Activation::Number::kMagic == Bf16::kMagic;
  if constexpr (kGuesses) {
    bool guesses = args.experts != 0 && args.m <= kFewRoutedRows;
#pragma unroll 1
    while (
        !multiply_ring<Codes, Activation, Form, ROUTED>(parameters, first, shared_bytes, guesses))
      guesses = false;
  } else {
    multiply_ring<Codes, Activation, Form, ROUTED>(parameters, first, shared_bytes, false);
  }
}
