// Prepares activations for the product kernels: quantizes them to INT8 once for all products that
// share them, or puts them into the order of the slots (act-order), so that product kernels always
// read neighboring columns.
#include "activations.h"

/// The column of A at a slot, or -1.
static inline int column_of(const device int* slot_to_k, constant PrepareArgs& args, int slot) {
  const int k = has_slot_to_k ? slot_to_k[slot] : slot;
  return k < args.k ? k : -1;
}

/// Where row m of the prepared activations comes from: row m of A or, with routing, the row of the
/// routed row at place m of the sorted ones, in the order of columns of its expert.
struct PreparedRow {
  long row;
  const device int* slot_to_k;
  bool exists;

  PreparedRow(const device int* first_slot_to_k, const device int* routes,
              constant PrepareArgs& args, int m)
      : row(m), slot_to_k(first_slot_to_k), exists(true) {
    if (!routed) return;
    exists = m < routes[1];
    if (!exists) return;
    const int routed_row = routes[route_sorted_at(args.items) + m];
    row = routed_row / args.rows_of_a;
    const int expert = routes[route_experts_at(args.items, args.m) + routed_row];
    slot_to_k += expert * args.expert_stride / long(sizeof(int));
  }
};

/// Quantizes blocks of 32 slots: d = max|x| / 127 over the group of the block, and q = x / d, both
/// rounded to float32, and q then to nearest even. A group of zeros has d = 0. A group with NaN or
/// infinity has d = NaN, which reaches every product that uses it. Each block has one thread.
template <typename T>
kernel void quantize(const device T* a [[buffer(MARLIN_BUFFER_SOURCE)]],
                     device char* out [[buffer(MARLIN_BUFFER_QUANTIZED)]],
                     device float* scales [[buffer(MARLIN_BUFFER_QUANT_SCALES)]],
                     const device int* slot_to_k
                     [[buffer(MARLIN_BUFFER_SOURCE_SLOTS), function_constant(has_slot_to_k)]],
                     const device int* routes
                     [[buffer(MARLIN_BUFFER_ROUTES), function_constant(routed)]],
                     constant PrepareArgs& args [[buffer(MARLIN_BUFFER_PREPARE_ARGS)]],
                     uint2 at [[thread_position_in_grid]]) {
  const int blocks = args.slots / kActivationBlock, block = at.x, m = at.y;
  if (block >= blocks || m >= args.m) return;
  const PreparedRow from(slot_to_k, routes, args, m);
  if (!from.exists) return;
  const device T* row = a + from.row * args.lda;
  float x[kActivationBlock];
  uint largest = 0;  // the bits of |x| have the order of the floats; NaN and infinity come last
  UNROLL for (ushort i = 0; i < kActivationBlock; i++) {
    const int k = column_of(from.slot_to_k, args, block * kActivationBlock + i);
    x[i] = k < 0 ? 0.0f : float(row[k]);
    largest = max(largest, as_type<uint>(x[i]) & 0x7FFFFFFFu);
  }
  const int group = args.group == 0 ? args.slots : args.group;
  const int begin = block * kActivationBlock / group * group, end = min(begin + group, args.slots);
  for (int slot = begin; group > kActivationBlock && slot < end; slot++) {
    const int k = column_of(from.slot_to_k, args, slot);
    if (k >= 0) largest = max(largest, as_type<uint>(float(row[k])) & 0x7FFFFFFFu);
  }
  const float d = largest >= 0x7F800000u ? NAN : as_type<float>(largest) / 127.0f;
  device char4* q = (device char4*)(out + long(m) * args.slots + block * kActivationBlock);
  UNROLL for (ushort i = 0; i < kActivationBlock; i += 4) {
    char4 four = char4(0);
    // Near the smallest float, d may be much less than max / 127, and the quotient may exceed 127.
    if (d > 0)
      UNROLL for (ushort e = 0; e < 4; e++) four[e] =
          char(rint(clamp(x[i + e] / d, -127.0f, 127.0f)));
    q[i / 4] = four;
  }
  scales[long(m) * blocks + block] = d;
}
#define QUANTIZE(name, T) \
  template [[host_name("quantize_" #name)]] [[kernel]] decltype(quantize<T>) quantize<T>;
QUANTIZE(f32, float)
QUANTIZE(f16, half)
QUANTIZE(bf16, bfloat)

/// Eight slots have one thread; padding becomes 0.
template <typename T>
kernel void gather(const device T* a [[buffer(MARLIN_BUFFER_SOURCE)]],
                   device T* out [[buffer(MARLIN_BUFFER_QUANTIZED)]],
                   const device int* slot_to_k [[buffer(MARLIN_BUFFER_SOURCE_SLOTS)]],
                   const device int* routes
                   [[buffer(MARLIN_BUFFER_ROUTES), function_constant(routed)]],
                   constant PrepareArgs& args [[buffer(MARLIN_BUFFER_PREPARE_ARGS)]],
                   uint2 at [[thread_position_in_grid]]) {
  const int first = 8 * at.x, m = at.y;
  if (first >= args.slots || m >= args.m) return;
  const PreparedRow from(slot_to_k, routes, args, m);
  if (!from.exists) return;
  UNROLL for (ushort i = 0; i < 8; i++) {
    const int k = from.slot_to_k[first + i];
    out[long(m) * args.slots + first + i] = k < 0 ? T(0) : a[from.row * args.lda + k];
  }
}
#define GATHER(name, T) \
  template [[host_name("gather_" #name)]] [[kernel]] decltype(gather<T>) gather<T>;
GATHER(b2, ushort)
GATHER(b4, uint)
