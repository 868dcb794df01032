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
#include "ring_stage.cuh"
#include "ring_work.cuh"

constexpr int kRingWarps = 16;
constexpr int kSumPitch = 36;  // floats between rows of sums: no bank conflicts

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

/// The 2^shift warps that share the K of a row block, by which a warp finds itself among them.
struct RingTeam {
  const int shift, warps, teams;  // warps of a team, teams of the block
  const int number, warp;         // of the team, and in it

  __device__ RingTeam(int shift_, int warp_of_block)
      : shift(shift_),
        warps(1 << shift),
        teams(kRingWarps >> shift),
        number(warp_of_block >> shift),
        warp(warp_of_block - (number << shift)) {}
  __device__ void wait() const {
    asm volatile("bar.sync %0, %1;" ::"r"(number + 1), "r"(32 * warps) : "memory");
  }
  /// Waits for the warps that read what this one has copied of A. A part of a team of 16 is read by
  /// the warp that copied it.
  __device__ void wait_for_readers() const {
    if (teams == 1)
      __syncwarp();
    else
      __syncthreads();
  }
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
    if (Op::kScaleBytes != 0)
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

/// Copies a warp's columns of `rows` rows of A, which begin at place `first`, to rows of `pitch`
/// bytes, in this order: of each unit of 32 slots, the operands B of both steps of lane column j
/// are 16 bytes. Calls `meanwhile` while the first are on their way, and `see` with eight columns.
template <class Activation, class Work, class Meanwhile, class See>
__device__ inline void copy_activations(const Work& work, int first, int rows, const WarpPart& part,
                                        unsigned char* to, int pitch, const Meanwhile& meanwhile,
                                        const See& see) {
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
      see(x[i]);
      place[i][0] = x[i].x;
      place[i][4] = x[i].y;
      place[i][8] = x[i].z;
      place[i][12] = x[i].w;
    }
  }
  if (!begun) meanwhile();
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

/// Adds the products of the chunks of a stage to `total`.
template <class Codes, class Number, class Form, bool ROUTED>
__device__ inline void add_stage_of_form(const unsigned char* weights,
                                         const StageShape<Operand<Codes, Number, Form>>& shape,
                                         const unsigned char* x, int chunks, int lane,
                                         bool multiplies_dropped, float (&total)[2][4]) {
  typedef Operand<Codes, Number, Form> Op;
  if constexpr (Op::kFloats)
    add_stage_of_halves<Op, Number>(weights, x, chunks, lane, total);
  else if constexpr (Op::kScaleElement == 4 && !Op::kGroupsOf128 && Op::kQuads > 1)
    add_stage_of_floats<Codes, Number, Form, ROUTED>(weights, shape, x, chunks, lane, total);
  else
    add_stage<Codes, Number, Form>(weights, shape, x, chunks, lane, total);
  if constexpr (Codes::kSparse)
    if (multiplies_dropped) add_dropped_slots_of_stage<Op, Number>(weights, x, chunks, lane, total);
}

/// Adds the products of a warp's part of a row block to `total`, and asks for what comes next. `x`
/// is where a lane reads A; `stage` and `parity` are the place in the ring.
template <class Codes, class Number, class Form, bool ROUTED>
__device__ inline void multiply_part(
    WeightRing<Operand<Codes, Number, Form>, RingWork<ROUTED>>& ring, const unsigned char* stages,
    const unsigned char* x, int lane, bool multiplies_dropped, int& stage, u32& parity,
    float (&total)[2][4]) {
  for (int done = 0; done < ring.part.count(); done += ring.shape.chunks()) {
    wait_for_phase(ring.barriers + 8 * stage, parity);
    add_stage_of_form<Codes, Number, Form, ROUTED>(
        stages + stage * ring.shape.bytes(), ring.shape, x + 128 * done,
        min(ring.part.count() - done, ring.shape.chunks()), lane, multiplies_dropped, total);
    __syncwarp();
    if (lane == 0) ring.refill(stage);
    if (++stage == ring.shape.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

/// Writes a warp's sums of some rows of A to shared memory.
__device__ inline void store_sums(const float (&total)[2][4], int rows, int lane, float* sums) {
  float* const to = sums + lane / 4;
  UNROLL for (int e = 0; e < 2; e++) {
    const int row = 2 * (lane % 4) + e;
    UNROLL for (int i = 0; i < 4; i++) if (row < rows) to[row * kSumPitch + 8 * i] =
        total[i / 2][2 * (i % 2) + e];
  }
}

/// Adds up the sums of the warps of a team, in their order.
__device__ inline float sum_of_warps(const float* from, int sum_floats, int warps) {
  float sum = from[0];
  UNROLL for (int w = 1; w < kRingWarps; w++) if (w < warps) sum += from[w * sum_floats];
  return sum;
}

/// The stages of a warp's ring that are asked for before A. Many copies on their way would hold up
/// the end of the kernel before, and A; a long product makes up for it. Products of experts begin
/// with A: of few routed rows one stage is asked for before it, or two while the kernel before
/// still runs. (FP4 with float16 activations has no registers for it.)
template <class Codes, class Op, bool ROUTED>
__device__ inline int stages_before_a(const RingWork<ROUTED>& work, const StageShape<Op>& shape,
                                      int halves, int teams, bool guesses) {
  constexpr bool kAMayBeFirst = Op::kIsBf16 || Codes::kZeros || Codes::kWords > 1;
  const bool is_long =
      static_cast<long long>(work.end - work.begin) * halves * shape.stages_of_part >
      static_cast<long long>(2 * shape.stages) * teams;
  const int wanted = is_long || shape.chunks() < kMostStageChunks / 2 ? 2 : 1;
  const bool a_first = kAMayBeFirst && work.args.m <= kFewRoutedRows;
  const int of_experts = guesses ? min(2, shape.stages) : (a_first ? 1 : shape.stages);
  return ROUTED ? of_experts : min(wanted, shape.stages);
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
  extern __shared__ __align__(128) unsigned char dynamic[];
  unsigned char* const memory = dynamic + Codes::kTableBytes;
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, j = lane % 4;
  constexpr bool kDenseFp4 = !Codes::kZeros && Codes::kWords == 1 && !Codes::kSparse;
  constexpr bool kSortsMany =
      ROUTED && ring_sorts_many(kDenseFp4, Op::kFloats, Form::kZero, Form::kShift);
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
  const RingTeam team(args.team_shift, warp);
  const WarpPart part(first_chunk, units, kUnitChunks, chunks, team.warp, team.shift);

  // Shared memory: a table of codes, routes, A, the sums of all warps, barriers, rings.
  const int pitch = ring_pitch(kMmaSlots * chunks);
  const int room_for = ROUTED ? work.all_rows(args.ring_rows) : work.rows(0);
  const int sum_floats = min(room_for, kRingRows) * kSumPitch;
  const auto x = [&] { return memory + (kSortsMany ? bytes_of_routes(launch) : 0); };
  float* const sums = reinterpret_cast<float*>(x() + room_for * pitch);
  unsigned char* const barriers = reinterpret_cast<unsigned char*>(sums + kRingWarps * sum_floats);
  unsigned char* const rings = barriers + kRingWarps * kMostStages * 8;
  const StageShape<Op> shape((units + team.warps - 1) >> team.shift,
                             (shared_bytes - int(rings - memory)) / kRingWarps / 16 * 16);
  unsigned char* const mine = rings + warp * shape.stages * shape.bytes();
  WeightRing<Op, RingWork<ROUTED>> ring(work, part, shape, shared_address(mine),
                                        shared_address(barriers) + warp * kMostStages * 8,
                                        work.begin + team.number, team.teams);
  ring.init();
  const int halves = work.halves();
  const int early = stages_before_a<Codes>(work, shape, halves, team.teams, guesses);
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
      ring.abandon(work.begin + team.number, early);
      free_memory_of_routes();
      return false;
    }
    clear_rows_of_no_expert(launch, table + route_experts_at(args.items, args.m), 32 * kRingWarps);
  }
  // Each warp copies a part of A.
  constexpr int kAllWarps = 4;
  static_assert(1 << kAllWarps == kRingWarps, "log2");
  const WarpPart copied(first_chunk, units, kUnitChunks, chunks, warp, kAllWarps);

  int stage = 0;
  u32 parity = 0;
  bool again = false;
  int job = work.begin + team.number, of = work.first_item;
  // The jobs of items whose rows of A there is room for.
  int unfilled = early;  // the first stage that was not asked for yet
  for (int item = work.first_item; item * work.of_item < work.end;) {
    const int first_place = work.place(item);
    int rows_of_items = work.rows(item++);
    while (item * work.of_item < work.end && rows_of_items + work.rows(item) <= room_for)
      rows_of_items += work.rows(item++);
    const int end = min(item * work.of_item, work.end);
    if (unfilled == shape.stages) team.wait_for_readers();  // of the items before
    [[maybe_unused]] FiniteCheck<Number> check;
    copy_activations<Activation>(
        work, first_place, rows_of_items, copied, x() + 128 * (copied.begin - first_chunk), pitch,
        [&] {
          refill(unfilled, shape.stages);
          unfilled = shape.stages;
        },
        [&](const uint4& columns) {
          if constexpr (Codes::kSparse) check.see(columns);
        });
    team.wait_for_readers();
    // 0 times an infinity or a NaN is a NaN, also in slots that are not kept.
    bool multiplies_dropped = false;
    if constexpr (Codes::kSparse)
      multiplies_dropped =
          team.teams == 1 ? __any_sync(~0u, check.fails()) : __syncthreads_or(check.fails());
    for (; job < end; job += team.teams) {
      of = work.item(job, of);
      const int rows = work.rows(of), place = work.place(of);
      const unsigned char* const lane_x = x() + 128 * (part.begin - first_chunk) +
                                          (place - first_place + min(g, rows - 1)) * pitch + 16 * j;
      constexpr int kMostOfWarp = 2;
      float gates[kMostOfWarp] = {};
      for (int half = 0; half < halves; half++) {
        const int row_block = work.row_block(job, of, half);
        if (team.warp < rows) work.prefetch_factors(row_block, of);
        float total[2][4] = {};
        multiply_part<Codes, Number, Form>(ring, mine, lane_x, lane, multiplies_dropped, stage,
                                           parity, total);
        if (again) team.wait();  // the sums before are read
        again = true;
        store_sums(total, rows, lane, sums + warp * sum_floats);
        team.wait();
        UNROLL for (int i = 0; i < kMostOfWarp; i++) {
          const int row = team.warp + i * team.warps;
          if (row >= rows) break;
          const float* const from =
              sums + team.number * team.warps * sum_floats + row * kSumPitch + lane;
          const float sum = sum_of_warps(from, sum_floats, team.warps) * Op::kFactor;
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
  typedef typename RingCodes<Codes, Form>::type Quick;
  let_next_start();
  if constexpr (Quick::kTableBytes != 0) {
    Quick::template make_table<typename Activation::Number>(
        launch.buffer<const float>(MARLIN_BUFFER_ZEROS));
    __syncthreads();
    shared_bytes -= Quick::kTableBytes;
  }
  // Other weights and activations leave no registers for a guess.
  constexpr bool kGuesses = ROUTED && !Codes::kZeros && Codes::kWords == 1 && !Codes::kSparse &&
                            Activation::Number::kMagic == Bf16::kMagic;
  if constexpr (kGuesses) {
    bool guesses = args.experts != 0 && args.m <= kFewRoutedRows;
#pragma unroll 1
    while (
        !multiply_ring<Quick, Activation, Form, ROUTED>(parameters, first, shared_bytes, guesses))
      guesses = false;
  } else {
    multiply_ring<Quick, Activation, Form, ROUTED>(parameters, first, shared_bytes, false);
  }
}
