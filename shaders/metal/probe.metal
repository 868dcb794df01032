// What the packed layout and the decoders take for granted, asked of the device at hand. One simdgroup of 32 threads, once a
// device; where an answer differs from what ProbeResult says, the host must not use the product kernels.
#include "constants.h"

template <typename T>
static inline void probe_fragment(const device float* ramp, device T* scratch, device float* out, ushort lane) {
  scratch[2 * lane] = T(ramp[2 * lane]);
  scratch[2 * lane + 1] = T(ramp[2 * lane + 1]);
  simdgroup_barrier(mem_flags::mem_device);
  simdgroup_matrix<T, 8, 8> m;
  simdgroup_load(m, scratch, 8);
  out[2 * lane] = float(m.thread_elements()[0]);
  out[2 * lane + 1] = float(m.thread_elements()[1]);
}

/// All inputs come from memory, so that nothing is folded when compiling. ramp: 0..63, then 2^14, 1, 0.5, 2048.
kernel void probe(const device float* ramp [[buffer(MARLIN_BUFFER_PROBE_RAMP)]],
                  const device ushort* halves [[buffer(MARLIN_BUFFER_PROBE_HALVES)]],
                  device ProbeResult* out [[buffer(MARLIN_BUFFER_PROBE_RESULT)]],
                  device float* scratch [[buffer(MARLIN_BUFFER_PROBE_SCRATCH)]], ushort lane [[thread_index_in_simdgroup]],
                  uint width [[threads_per_simdgroup]]) {
  probe_fragment<float>(ramp, scratch, out->fragments[0], lane);
  simdgroup_barrier(mem_flags::mem_device);
  probe_fragment<half>(ramp, (device half*)scratch, out->fragments[1], lane);
  simdgroup_barrier(mem_flags::mem_device);
  simdgroup_float8x8 mine;
  mine.thread_elements()[0] = float(2 * lane);
  mine.thread_elements()[1] = float(2 * lane + 1);
  simdgroup_store(mine, out->stored, 8);
  if (lane < 4) out->half_values[lane] = float(as_type<half>(halves[lane]));
  if (lane == 4) out->restored_half = float(as_type<half>(halves[0]) * half(ramp[64]));

  // 2048 * 1 + 0.5 * 1: 2048.5 when sums are float32, 2048 when half.
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(0.0f), b = a, sum = a;
  a.thread_elements()[0] = lane_column(lane) == 0 ? ramp[67] : 0.0f;  // column 0
  a.thread_elements()[1] = lane_column(lane) == 0 ? ramp[66] : 0.0f;  // column 1
  b.thread_elements()[0] = b.thread_elements()[1] = ramp[65];
  simdgroup_multiply_accumulate(sum, a, b, sum);
  out->sums[2 * lane] = sum.thread_elements()[0];
  out->sums[2 * lane + 1] = sum.thread_elements()[1];
  if (lane == 0) out->simd_width = width;
}
