// The kernels beside products: preparing activations, finishing partial sums, unpacking weights.
#include "../common/exact.h"
#include "epilogue.cuh"
#include "gather.cuh"
#include "real.cuh"
#include "round.cuh"

// A kernel that starts while the one before it still runs, and waits for it. So many blocks share
// the registers of a multiprocessor.
#define MARLIN_HELPER_OF(name, threads, blocks)                         \
  __device__ inline void name##_work(const CudaParameters& parameters); \
  extern "C" __global__ void __launch_bounds__(threads, blocks)         \
      name(const __grid_constant__ CudaParameters parameters) {         \
    let_next_start();                                                   \
    wait_for_previous();                                                \
    name##_work(parameters);                                            \
  }                                                                     \
  __device__ inline void name##_work(const CudaParameters& parameters)
#define MARLIN_HELPER(name) MARLIN_HELPER_OF(name, kHelperThreads, 1)

__device__ inline int item_x() { return int(blockIdx.x * blockDim.x + threadIdx.x); }

// --- activations --------------------------------------------------------------------------------

MARLIN_HELPER_OF(quantize_f32, kHelperThreads, 2) { quantize_row<float>(parameters); }
MARLIN_HELPER_OF(quantize_f16, kHelperThreads, 3) { quantize_row<Half>(parameters); }
MARLIN_HELPER_OF(quantize_bf16, kHelperThreads, 3) { quantize_row<Bfloat>(parameters); }

MARLIN_HELPER(e4m3_f32) { round_row<float>(parameters); }
MARLIN_HELPER(e4m3_f16) { round_row<Half>(parameters); }
MARLIN_HELPER(e4m3_bf16) { round_row<Bfloat>(parameters); }

/// Eight slots have one thread; padding becomes 0.
template <class T>
__device__ inline void gather(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const PrepareArgs& args = launch.arguments<PrepareArgs>();
  const int slot = kGatheredSlots * item_x(), m = int(launch.group_y());
  if (slot >= args.slots || m >= args.m) return;
  const PreparedRow from(source_of(launch), m);
  if (!from.exists) return;
  const bool aligned = launch.constant(MARLIN_CONSTANT_ALIGNED) != 0;
  alignas(16) T x[kGatheredSlots];
  load_slots(launch.buffer<const T>(MARLIN_BUFFER_SOURCE) + from.row * args.lda, from, slot, args.k,
             aligned, x);
  T* const to = launch.buffer<T>(MARLIN_BUFFER_QUANTIZED) + static_cast<long long>(m) * args.slots;
  UNROLL for (int i = 0; i < int(sizeof x / sizeof(uint4));
              i++) reinterpret_cast<uint4*>(to + slot)[i] = reinterpret_cast<const uint4*>(x)[i];
}
MARLIN_HELPER(gather_b2) { gather<u16>(parameters); }
MARLIN_HELPER(gather_b4) { gather<u32>(parameters); }

/// The sums of A over the groups of W (sum_slots). Groups and rows that only fill up eight are 0.
template <class T>
__device__ inline void sum_groups(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const PrepareArgs& args = launch.arguments<PrepareArgs>();
  const int slot = kGatheredSlots * item_x(), m = int(launch.group_y());
  int rows = args.m;
  if (launch.constant(MARLIN_CONSTANT_ROUTING) != kRoutingNone)
    rows = launch.buffer<const int>(MARLIN_BUFFER_ROUTES)[1];
  if (slot >= args.slots || m >= (rows + 7) / 8 * 8) return;  // of a warp all threads, or none
  const T* const a = launch.buffer<const T>(MARLIN_BUFFER_SOURCE);
  sum_slots(m < rows ? a + m * args.lda : nullptr, m, args.m, slot, args.k,
            launch.constant(MARLIN_CONSTANT_ALIGNED) != 0,
            int(launch.constant(MARLIN_CONSTANT_GROUP_SHIFT)),
            launch.buffer<float>(MARLIN_BUFFER_GROUP_SUMS_OUT));
}
MARLIN_HELPER(group_sums_f16) { sum_groups<Half>(parameters); }
MARLIN_HELPER(group_sums_bf16) { sum_groups<Bfloat>(parameters); }

// --- partial sums -------------------------------------------------------------------------------

/// One element of the result of row `row` of the partial sums of `rows` rows, whose weights are
/// those of `expert`: what is loaded for it, and what it becomes. INPUTS: 2 for a gate and an up
/// row of W.
template <int INPUTS>
struct Result {
  FinishedRow row_of_w[INPUTS];
  float sum[INPUTS];

  __device__ void load(const Launch& launch, int row, long long rows, int expert, int column,
                       int columns) {
    const ProductArgs& args = launch.arguments<ProductArgs>();
    const bool interleaved = launch.constant(MARLIN_CONSTANT_INTERLEAVED) != 0;
    const int step = INPUTS == 2 && interleaved ? 2 : 1;
    const float* const partials = launch.buffer<const float>(MARLIN_BUFFER_PARTIALS);
    UNROLL for (int input = 0; input < INPUTS; input++) {
      const int n = column * step + input * (interleaved ? 1 : columns);
      const float* const from = partials + static_cast<long long>(row) * args.n + n;
      row_of_w[input] = FinishedRow(n, launch, expert);
      sum[input] = from[0];
      for (int s = 1; s < args.splits; s++) sum[input] += from[s * rows * args.n];
    }
  }
  __device__ float value(const Launch& launch) const {
    const u32 epilogue = launch.constant(MARLIN_CONSTANT_EPILOGUE);
    const float first = row_of_w[0].finish(sum[0]);
    if constexpr (INPUTS == 2)
      return combine(first, row_of_w[1].finish(sum[1]), epilogue, launch.arguments<ProductArgs>());
    else
      return activate(first, epilogue);
  }
};

/// An element of C of a product of experts: a result, or the sum of a token's results times their
/// scales, in order. What is loaded for AT_ONCE of them is on its way at once.
template <int INPUTS, int AT_ONCE>
__device__ inline float routed_result(const Launch& launch, int m, int column, int columns) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const bool sums = launch.constant(MARLIN_CONSTANT_ROUTING) == kRoutingSums;
  const int of_row = sums ? args.top_k : 1, rows = args.m * of_row, end = (m + 1) * of_row;
  const int* const table = launch.buffer<const int>(MARLIN_BUFFER_ROUTES);
  const int* const experts = table + route_experts_at(args.items, rows);
  const float* const scales =
      reinterpret_cast<const float*>(table + route_scales_at(args.items, rows));
  float v = 0.0f;
#pragma unroll 1
  for (int begin = m * of_row; begin < end; begin += AT_ONCE) {
    int expert[AT_ONCE];
    float scale[AT_ONCE];
    Result<INPUTS> result[AT_ONCE];
    UNROLL for (int i = 0; i < AT_ONCE; i++) expert[i] = begin + i < end ? experts[begin + i] : -1;
    UNROLL for (int i = 0; i < AT_ONCE; i++) {
      if (expert[i] < 0) continue;
      if (sums) scale[i] = scales[begin + i];
      result[i].load(launch, begin + i, rows, expert[i], column, columns);
    }
    UNROLL for (int i = 0; i < AT_ONCE; i++) {
      if (expert[i] < 0) continue;
      const float one = result[i].value(launch);
      v = sums ? fmaf(scale[i], one, v) : one;
    }
  }
  return v;
}

/// An element of C.
template <int INPUTS, int AT_ONCE>
__device__ inline float finished(const Launch& launch, int m, int column, int columns) {
  if (launch.constant(MARLIN_CONSTANT_ROUTING) != kRoutingNone)
    return routed_result<INPUTS, AT_ONCE>(launch, m, column, columns);
  Result<INPUTS> result;
  result.load(launch, m, launch.arguments<ProductArgs>().m, 0, column, columns);
  return result.value(launch);
}

/// Adds the splits of K in a fixed order and then does the last steps of the product kernels, or an
/// epilogue that takes a gate and an up row. With routing, it adds a token's routed rows times
/// their scales, in order. Each element of C has one thread.
MARLIN_HELPER(finish) {
  const Launch launch{parameters};
  const ProductArgs& args = launch.arguments<ProductArgs>();
  const bool two_inputs = launch.constant(MARLIN_CONSTANT_EPILOGUE) >= kEpilogueSwiglu;
  const int columns = two_inputs ? args.n / 2 : args.n, m = int(launch.group_y());
  const int column = item_x();
  if (column >= columns || m >= args.m) return;
  const float v = two_inputs ? finished<2, 1>(launch, m, column, columns)
                             : finished<1, 4>(launch, m, column, columns);
  store(v, m * args.ldc + column, launch);
}

// --- routes of a mixture of experts -------------------------------------------------------------

/// Sorts routed rows by expert and cuts them into items (../common/arguments.h). One block.
MARLIN_HELPER_OF(route, kRouteThreads, 1) {
  __shared__ int places[kMostExperts];
  __shared__ u64 shared[kLanes];
  const Launch launch{parameters};
  const RouteArgs& args = launch.arguments<RouteArgs>();
  const RoutesToSort routes{launch.buffer<const int>(MARLIN_BUFFER_IDS),
                            launch.buffer<const void>(MARLIN_BUFFER_ID_SCALES),
                            launch.constant(MARLIN_CONSTANT_BIAS_TYPE),
                            launch.buffer<int>(MARLIN_BUFFER_ROUTES),
                            args.tokens * args.top_k,
                            args.top_k,
                            args.experts,
                            args.tile_rows,
                            args.items,
                            args.id_stride,
                            args.scale_stride};
  int* const experts = routes.table + route_experts_at(routes.items, routes.rows);
  sort_into_memory(routes, places, shared, experts);
  copy_route_scales(routes, experts);
}

// --- unpacking ----------------------------------------------------------------------------------

constexpr u32 kQuietNaN = 0x7FC00000u;

/// The number of code (t, p) of a lane's unit, whose words these are, exactly; of U4 and U8 the
/// code.
struct UnpackFp4 : Fp4 {
  __device__ static int bit(const u32* word, int t, int p, int b) {
    return int(word[0] >> ((fp4_mma_bit(t, b) + 16 * p) & 31) & 1);
  }
  __device__ static float number(const u32* word, int t, int p, const float*) {
    const int code = bit(word, t, p, 0) | bit(word, t, p, 1) << 1 | bit(word, t, p, 2) << 2;
    const int twice = code < 2 ? code : (2 + (code & 1)) << (code / 2 - 1);
    return bit(word, t, p, 3) != 0 ? -0.5f * float(twice) : 0.5f * float(twice);
  }
};
__device__ inline u32 nibble_of(const u32* word, int t, int p) {
  return word[0] >> (16 * p + 4 * t) & 15;
}
__device__ inline u32 byte_of(const u32* word, int t, int p) {
  return word[t / 2] >> (16 * p + 8 * (t % 2)) & 255;
}
struct UnpackU4 : U4 {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    return float(nibble_of(word, t, p));
  }
};
struct UnpackI8 : I8 {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    return float(int(byte_of(word, t, p)) - 128);
  }
};
struct UnpackU8 : U8 {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    return float(byte_of(word, t, p));
  }
};
struct UnpackE4m3 : E4m3 {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    const u32 code = byte_of(word, t, p);
    if ((code & 0x7F) == 0x7F) return __uint_as_float(kQuietNaN);
    const u32 bits = (code & 0x7F) << 20;  // below the sign, a float32 of 2^-120
    return __uint_as_float(bits | code >> 7 << 31) * __uint_as_float((127u + 120u) << 23);
  }
};
struct UnpackLut4 : Lut4 {
  __device__ static float number(const u32* word, int t, int p, const float* codebook) {
    return codebook[word[0] >> (8 * t + 4 * p) & 15];
  }
};
struct UnpackF32 : Floats32 {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    return __uint_as_float(word[2 * t + p]);
  }
};
struct UnpackF16 : Floats16<F16> {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    return f16_to_float(u16(word[t] >> (16 * p)));
  }
};
struct UnpackBf16 : Floats16<Bf16> {
  __device__ static float number(const u32* word, int t, int p, const float*) {
    return bf16_to_float(u16(word[t] >> (16 * p)));
  }
};

/// The bits of scale or zero number `at`, as float32; `type` is a MarlinScaleType.
__device__ inline u32 scale_bits(const void* from, long long at, u32 type, int shift) {
  switch (type) {
    case kScaleF32:
      return static_cast<const u32*>(from)[at];
    case kScaleF16:
      return __float_as_uint(f16_to_float(static_cast<const u16*>(from)[at]));
    case kScaleBf16:
      return u32(static_cast<const u16*>(from)[at]) << 16;
    case kScaleE4m3: {
      const u32 byte = static_cast<const unsigned char*>(from)[at];
      return byte == 0xFF ? kQuietNaN : __float_as_uint(e5m3_value(byte));
    }
    default: {
      const int stored = static_cast<const unsigned char*>(from)[at];
      if (stored == 0) return kQuietNaN;
      const int e = stored - shift;
      return e == 0 ? 0x00400000u : u32(e) << 23;
    }
  }
}

/// Turns finite numbers other than 0 into +-1, so that no number flushes on the way to an infinity
/// or a NaN.
__device__ inline float shape_of(u32 bits) {
  if (!is_finite_bits(bits) || (bits & 0x7FFFFFFFu) == 0) return __uint_as_float(bits);
  return bits >> 31 != 0 ? -1.0f : 1.0f;
}

struct Group {
  u32 scale, zero;  // bits; zero of additive zeros only
  bool additive;
};

/// A number without the zeros at its end.
__device__ inline Exact exact_code(float number) {
  const Exact all = exact_of(__float_as_uint(number));
  if (all.mantissa == 0) return all;
  const int shift = __ffsll(static_cast<long long>(all.mantissa)) - 1;
  return Exact{all.negative, all.mantissa >> shift, all.exponent + shift};
}

/// (number * scale + zero) * tensor, rounded once. Real codes (real.cuh) have no tensor scale.
__device__ inline u32 value_bits(float number, const Group& group, RowOrigin row) {
  const u32 tensor = __float_as_uint(row.tensor);
  const bool no_tensor = row.tensor == 1.0f;
  if (!is_finite_bits(__float_as_uint(number)))
    return __float_as_uint(number * shape_of(group.scale));
  if (!is_finite_bits(group.scale) || (group.additive && !is_finite_bits(group.zero)) ||
      !is_finite_bits(tensor) || (row.divide != 0 && row.tensor == 0.0f)) {
    float v = number * shape_of(group.scale);
    if (group.additive) v += shape_of(group.zero);
    if (!no_tensor) v = row.divide != 0 ? v / shape_of(tensor) : v * shape_of(tensor);
    return __float_as_uint(v);
  }
  Exact v = multiply(exact_code(number), exact_of(group.scale));
  if (group.additive) v = add(v, exact_of(group.zero));
  if (!no_tensor) v = row.divide != 0 ? divide(v, exact_of(tensor)) : multiply(v, exact_of(tensor));
  return round_to_bits(v);
}

__device__ inline void write_bits(void* out, long long at, u32 type, u32 bits) {
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  if (type == kFloat32) {
    static_cast<u32*>(out)[at] = bits;
  } else if (type == kFloat16) {
    static_cast<u16*>(out)[at] = float_to_f16(__uint_as_float(bits));
  } else {
    static_cast<u16*>(out)[at] =
        u16(nan ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
}

template <class Codes>
struct SparseCodes : Codes {
  static constexpr bool kSparse = true;
};

/// The codes of eight slots of row 8 i + r of a row block: those of a unit of 32 slots that lane
/// 4 r + j has.
template <class Codes>
struct PackedCodes {
  u32 words[Codes::kWords];
  u32 positions[2];  // of 2:4 weights: of the kept codes of four slots of both steps, 2 bits each
  int unit, j;

  __device__ PackedCodes(const u32* codes, int slots, int row_block, int u, int r, int lane_j,
                         int i)
      : unit(u), j(lane_j) {
    if constexpr (Codes::kSparse) {
      codes += static_cast<long long>(row_block) * (slots / kMmaSlots) * kMmaSparseWords;
      words[0] = codes[mma_kept_word(unit / 2, 4 * r + j, i)];
      UNROLL for (int step = 0; step < 2; step++) {
        const int lane = 4 * r + 2 * (unit & 1) + step;
        positions[step] =
            codes[mma_positions_word(unit / 2, lane, i / 2)] >> (16 * (i & 1) + 4 * j) & 15;
      }
    } else {
      codes += static_cast<long long>(row_block) * slots * Codes::kWords * 4;
      UNROLL for (int v = 0; v < Codes::kWords; v++) words[v] =
          codes[mma_word(unit, Codes::kWords, 4 * r + j, i, v)];
    }
  }
  /// Of code e = 0..7, in the unit.
  __device__ int slot(int e) const {
    return Codes::kSparse ? 16 * (e / 4) + 4 * j + e % 4 : mma_slot(j, e / 2, e % 2);
  }
  /// Where the code is in the words. Returns false if there is none.
  __device__ bool find(int e, int& t, int& p) const {
    t = e / 2;
    p = e % 2;
    if (!Codes::kSparse) return true;
    const int first = int(positions[e / 4] & 3), second = int(positions[e / 4] >> 2);
    t = 2 * (unit & 1) + e / 4;
    p = e % 4 == second ? 1 : 0;
    return e % 4 == first || e % 4 == second;
  }
};

/// Each part of a row that a lane holds of a unit, eight slots, has one thread.
template <class Codes>
__device__ inline void unpack(const CudaParameters& parameters) {
  const Launch launch{parameters};
  const UnpackArgs& args = launch.arguments<UnpackArgs>();
  const int unit = item_x() / 4, j = item_x() % 4, item = int(launch.group_y());
  if (32 * unit >= args.slots || item >= args.count) return;
  const bool listed = launch.constant(MARLIN_CONSTANT_ROW_LIST) != 0;
  const long long asked =
      listed ? launch.buffer<const int>(MARLIN_BUFFER_ROW_LIST)[item * args.id_stride]
             : args.first_row + item;
  const bool exists = asked >= 0 && asked < args.n;
  const int row = exists ? int(asked) : 0, row_block = row / kRowBlock;
  const int r = row % 8, i = row % kRowBlock / 8;
  const u32* const codes = launch.buffer<const u32>(MARLIN_BUFFER_CODES);
  const PackedCodes<Codes> packed(codes, args.slots, row_block, unit, r, j, i);
  const u32 shift = launch.constant(MARLIN_CONSTANT_GROUP_SHIFT);
  const u32 scale_type = launch.constant(MARLIN_CONSTANT_SCALE_TYPE);
  const u32 zero_kind = Codes::kReal ? u32(kZeroNone) : launch.constant(MARLIN_CONSTANT_ZERO_KIND);
  const void* const scales = launch.buffer<const void>(MARLIN_BUFFER_SCALES);
  const void* const zeros = launch.buffer<const void>(MARLIN_BUFFER_ZEROS);
  const int* const slot_to_k = launch.constant(MARLIN_CONSTANT_SLOT_TO_K) != 0
                                   ? launch.buffer<const int>(MARLIN_BUFFER_SLOT_TO_K)
                                   : nullptr;
  const RowOrigin origin = launch.buffer<const RowOrigin>(MARLIN_BUFFER_ROWS)[row];
  const long long first = static_cast<long long>(row_block) * args.quads * kRowBlock + i;
  for (int e = 0; e < 8; e++) {
    const int slot = 32 * unit + packed.slot(e);
    const int k = slot_to_k != nullptr ? slot_to_k[slot] : slot;
    if (k < 0 || k >= args.k) continue;
    const int quad = shift == 7 ? (slot >> 7) / args.quad_blocks : slot >> shift;
    const bool pairs = shift == 4;
    const long long scale_at =
        first + 4ll * scale_quad_at(quad, r, pairs && scale_type >= kScaleE8m0);
    const long long zero_at =
        first + 4ll * scale_quad_at(quad, r, pairs && zero_kind == kZeroInteger);
    Group group{scale_bits(scales, scale_at, scale_type, origin.shift), 0, zero_kind >= kZeroF32};
    if (group.additive) group.zero = scale_bits(zeros, zero_at, zero_kind - kZeroF32, 0);
    u32 point = group.additive ? 0 : Codes::kMiddle;
    if (zero_kind == kZeroInteger) point = static_cast<const unsigned char*>(zeros)[zero_at];
    int t, p;
    u32 bits = 0;  // of a slot that 2:4 weights do not keep
    if (packed.find(e, t, p)) {
      const auto* const codebook = static_cast<const float*>(zeros);  // of real codes
      const float number = Codes::number(packed.words, t, p, codebook);
      constexpr bool kFloats = Codes::kWords > 2;  // whose scale is 1
      bits = kFloats ? __float_as_uint(number) : value_bits(number - float(point), group, origin);
    }
    write_bits(launch.buffer<void>(MARLIN_BUFFER_OUT), item * args.ld + k,
               launch.constant(MARLIN_CONSTANT_OUTPUT_TYPE), exists ? bits : kQuietNaN);
  }
}
MARLIN_HELPER(unpack_fp4) { unpack<UnpackFp4>(parameters); }
MARLIN_HELPER(unpack_u4) { unpack<UnpackU4>(parameters); }
MARLIN_HELPER(unpack_i8) { unpack<UnpackI8>(parameters); }
MARLIN_HELPER(unpack_fp4_sparse) { unpack<SparseCodes<UnpackFp4>>(parameters); }
MARLIN_HELPER(unpack_u4_sparse) { unpack<SparseCodes<UnpackU4>>(parameters); }
MARLIN_HELPER(unpack_u8) { unpack<UnpackU8>(parameters); }
MARLIN_HELPER(unpack_e4m3) { unpack<UnpackE4m3>(parameters); }
MARLIN_HELPER(unpack_lut4) { unpack<UnpackLut4>(parameters); }
MARLIN_HELPER(unpack_f32) { unpack<UnpackF32>(parameters); }
MARLIN_HELPER(unpack_f16) { unpack<UnpackF16>(parameters); }
MARLIN_HELPER(unpack_bf16) { unpack<UnpackBf16>(parameters); }
