// The last steps for a finished sum: row factor, bias, activation, the old C, one rounding. All
// steps are in float32.
#pragma once
#include "constants.h"

/// x / (1 + e^-argument). If e^-x overflows, the quotient is 0, which is right. The limit at
/// -infinity is -0, but infinity * 0 would be NaN.
static inline float times_sigmoid(float x, float argument) {
  return x < -3.0e38f ? -0.0f : x / (1.0f + precise::exp(-argument));
}
static inline float silu(float x) { return times_sigmoid(x, x); }

/// 0.5 x (1 + tanh(u)) is x sigmoid(2 u), which does not cancel for negative x.
static inline float gelu_tanh(float x) {
  const float two_sqrt_2_over_pi = 1.5957691216057308f;
  return times_sigmoid(x, two_sqrt_2_over_pi * (x + 0.044715f * x * x * x));
}

/// erfc(z) for z >= 0, which Metal does not have: t e^(-z^2 + P(t)) with t = 1 / (1 + z / 2), the
/// Chebyshev fit of W. H. Press et al., "Numerical Recipes in C" (2nd ed., 6.2); relative error
/// below 1.2e-7 = 2 u plus its own arithmetic, for every z.
static inline float erfc_positive(float z) {
  const float t = 1.0f / (1.0f + 0.5f * z);
  float p = 0.17087277f;
  p = fma(p, t, -0.82215223f);
  p = fma(p, t, 1.48851587f);
  p = fma(p, t, -1.13520398f);
  p = fma(p, t, 0.27886807f);
  p = fma(p, t, -0.18628806f);
  p = fma(p, t, 0.09678418f);
  p = fma(p, t, 0.37409196f);
  p = fma(p, t, 1.00002368f);
  p = fma(p, t, -1.26551223f);
  return t * precise::exp(p - z * z);
}

/// 0.5 x erfc(-x / sqrt 2); at -infinity it is the limit -0. For x > 0 it uses erfc(-z) = 2 -
/// erfc(z).
static inline float gelu_erf(float x) {
  if (x < -3.0e38f) return -0.0f;
  const float tail = erfc_positive(fabs(x) * 0.70710678118654752f);
  return 0.5f * x * (x < 0 ? tail : 2.0f - tail);
}

static inline float activate(float x) {
  if (epilogue == kEpilogueSilu) return silu(x);
  if (epilogue == kEpilogueGeluTanh) return gelu_tanh(x);
  if (epilogue == kEpilogueGeluErf) return gelu_erf(x);
  return x;
}

/// With clamped gate and up. min() might turn NaN into the limit.
static inline float swiglu(float gate, float up, constant ProductArgs& by) {
  const float g = gate > by.gate_limit ? by.gate_limit : gate;
  const float low = up < -by.up_limit ? -by.up_limit : up;
  const float u = low > by.up_limit ? by.up_limit : low;
  return times_sigmoid(g, by.gate_alpha * g) * (u + by.up_offset);
}
static inline float soft_limit(float x, float limit) { return limit * precise::tanh(x / limit); }
static inline float situ(float gate, float up, constant ProductArgs& by) {
  return soft_limit(gate, by.gate_limit) * times_sigmoid(1.0f, gate) * soft_limit(up, by.up_limit);
}
static inline float combine(float gate, float up, constant ProductArgs& by) {
  if (epilogue == kEpilogueGegluTanh) return gelu_tanh(gate) * up;
  if (epilogue == kEpilogueSitu) return situ(gate, up, by);
  return swiglu(gate, up, by);
}

static inline float read_float(const device void* from, long at, uint type) {
  if (type == kFloat32) return ((const device float*)from)[at];
  if (type == kFloat16) return float(((const device half*)from)[at]);
  return float(((const device bfloat*)from)[at]);
}
static inline void write_float(device void* to, long at, uint type, float v) {
  if (type == kFloat32)
    ((device float*)to)[at] = v;
  else if (type == kFloat16)
    ((device half*)to)[at] = half(v);
  else
    ((device bfloat*)to)[at] = bfloat(v);
}

/// Turns the sum of row n of W into the argument of the epilogue. The bias of the rows begins at
/// element `bias_at`.
static inline float scale_and_bias(float sum, int n, const device RowFactor* factors,
                                   const device void* bias, long bias_at = 0) {
  if (has_row_factor) {
    const RowFactor f = factors[n];
    // The quotient of both might leave the range of float32 although the result does not. One of
    // the two is 1 or a power of 2.
    sum = row_factor == kRowFactorDivide ? sum * f.multiplier / f.divisor : sum * f.multiplier;
  }
  return has_bias ? sum + read_float(bias, bias_at + n, bias_type) : sum;
}

static inline void store(device void* c, long at, float v) {
  write_float(c, at, output_type, accumulate ? v + read_float(c, at, output_type) : v);
}
