// The last steps for a finished sum: row factor, bias, activation, the old C, one rounding. All
// steps are in float32.
#pragma once
#include "numbers.cuh"

/// x / (1 + e^-argument). If e^-x overflows, the quotient is 0, which is right. The limit at
/// -infinity is -0, but infinity * 0 would be NaN.
__device__ inline float times_sigmoid(float x, float argument) {
  return x < -3.0e38f ? -0.0f : x / (1.0f + expf(-argument));
}
__device__ inline float silu(float x) { return times_sigmoid(x, x); }

/// 0.5 x (1 + tanh(u)) is x sigmoid(2 u), which does not cancel for negative x.
__device__ inline float gelu_tanh(float x) {
  const float two_sqrt_2_over_pi = 1.5957691216057308f;
  return times_sigmoid(x, two_sqrt_2_over_pi * (x + 0.044715f * x * x * x));
}

/// 0.5 x erfc(-x / sqrt 2); at -infinity it is the limit -0.
__device__ inline float gelu_erf(float x) {
  return x < -3.0e38f ? -0.0f : 0.5f * x * erfcf(x * -0.70710678118654752f);
}

__device__ inline float activate(float x, u32 epilogue) {
  if (epilogue == kEpilogueSilu) return silu(x);
  if (epilogue == kEpilogueGeluTanh) return gelu_tanh(x);
  if (epilogue == kEpilogueGeluErf) return gelu_erf(x);
  return x;
}

/// With clamped gate and up. min() might turn NaN into the limit.
__device__ inline float swiglu(float gate, float up, const ProductArgs& by) {
  const float g = gate > by.gate_limit ? by.gate_limit : gate;
  const float low = up < -by.up_limit ? -by.up_limit : up;
  const float u = low > by.up_limit ? by.up_limit : low;
  return times_sigmoid(g, by.gate_alpha * g) * (u + by.up_offset);
}
__device__ inline float soft_limit(float x, float limit) { return limit * tanhf(x / limit); }
__device__ inline float situ(float gate, float up, const ProductArgs& by) {
  return soft_limit(gate, by.gate_limit) * times_sigmoid(1.0f, gate) * soft_limit(up, by.up_limit);
}
__device__ inline float combine(float gate, float up, u32 epilogue, const ProductArgs& by) {
  if (epilogue == kEpilogueGegluTanh) return gelu_tanh(gate) * up;
  if (epilogue == kEpilogueSitu) return situ(gate, up, by);
  return swiglu(gate, up, by);
}

/// Whether a product kernel applies an epilogue that takes a gate and an up row.
__device__ inline bool combines_rows(const Launch& launch) {
  return launch.constant(MARLIN_CONSTANT_EPILOGUE) >= kEpilogueSwiglu;
}
/// Whether it also finds the two in different halves of W.
__device__ inline bool pairs_halves(const Launch& launch) {
  return combines_rows(launch) && launch.constant(MARLIN_CONSTANT_INTERLEAVED) == 0;
}

/// What turns the sums of row n of W into arguments of the epilogue.
struct FinishedRow {
  RowFactor factor{1.0f, 1.0f};
  float bias = -0.0f;  // the one that changes nothing
  bool divides = false;

  FinishedRow() = default;
  __device__ FinishedRow(int n, const Launch& launch, int expert = 0) {
    const ProductArgs& args = launch.arguments<ProductArgs>();
    const u32 kind = launch.constant(MARLIN_CONSTANT_ROW_FACTOR);
    const unsigned char* const factors =
        launch.buffer<const unsigned char>(MARLIN_BUFFER_ROWS) + expert * args.expert_stride;
    if (kind != kRowFactorNone) factor = reinterpret_cast<const RowFactor*>(factors)[n];
    divides = kind == kRowFactorDivide;
    const u32 type = launch.constant(MARLIN_CONSTANT_BIAS_TYPE);
    if (type != kFloatNone)
      bias = read_float(launch.buffer<const void>(MARLIN_BUFFER_BIAS),
                        expert * args.bias_stride + n, type);
  }
  __device__ float finish(float sum) const {
    sum *= factor.multiplier;
    // The quotient of both might leave the range of float32 although the result does not. One of
    // the two is 1 or a power of 2.
    if (divides) sum /= factor.divisor;
    return sum + bias;
  }
};
__device__ inline float scale_and_bias(float sum, int n, const Launch& launch, int expert = 0) {
  return FinishedRow(n, launch, expert).finish(sum);
}

__device__ inline void store(float v, long long at, const Launch& launch) {
  void* const c = launch.buffer<void>(MARLIN_BUFFER_C);
  const u32 type = launch.constant(MARLIN_CONSTANT_OUTPUT_TYPE);
  if (launch.constant(MARLIN_CONSTANT_ACCUMULATE) != 0) v += read_float(c, at, type);
  write_float(c, at, type, v);
}

/// Writes one element of C or of the partial sums; its weights are those of `expert`.
__device__ inline void write_sum(float sum, int m, int n, const Launch& launch, int expert = 0) {
  const ProductArgs& args = launch.arguments<ProductArgs>();
  if (launch.constant(MARLIN_CONSTANT_PARTIAL) != 0) {
    float* const partials = launch.buffer<float>(MARLIN_BUFFER_PARTIALS);
    partials[(static_cast<long long>(blockIdx.z) * args.m + m) * args.n + n] = sum;
  } else {
    const float x = scale_and_bias(sum, n, launch, expert);
    store(activate(x, launch.constant(MARLIN_CONSTANT_EPILOGUE)), m * args.ldc + n, launch);
  }
}
