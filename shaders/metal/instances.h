// The list of compiled kernels: every kind of codes with every type of activations, but for floats
// with INT8 activations. Who compiles one kernel alone defines others (the host's kernel_text.h).
// The kernels of tensor operations are compiled for MARLIN_TENSOR_CODES, which 16 bits hold, and
// those of fragments for MARLIN_NAX_CODES.
#pragma once

#define MARLIN_NAX_CODES(X, a_name, T) \
  X(fp4, Fp4, a_name, T)               \
  X(u4, U4, a_name, T)                 \
  X(i8, I8, a_name, T)
#define MARLIN_TENSOR_CODES(X, a_name, T) \
  MARLIN_NAX_CODES(X, a_name, T)          \
  X(planes, Planes, a_name, T)            \
  X(fp4_sparse, Fp4Sparse, a_name, T) X(u4_sparse, U4Sparse, a_name, T)
#define MARLIN_CODES(X, a_name, T)  \
  MARLIN_TENSOR_CODES(X, a_name, T) \
  X(lut4, Lut4, a_name, T)
#define MARLIN_FLOAT_CODES(X, a_name, T) \
  MARLIN_CODES(X, a_name, T)             \
  X(floats, Floats, a_name, T)
#ifndef MARLIN_PRODUCTS
#define MARLIN_PRODUCTS(X)          \
  MARLIN_FLOAT_CODES(X, f32, float) \
  MARLIN_FLOAT_CODES(X, f16, half)  \
  MARLIN_FLOAT_CODES(X, bf16, bfloat) MARLIN_CODES(X, i8, char)
#endif

// The shapes of the kernels.
#ifndef MARLIN_GEMV_ROWS
#define MARLIN_GEMV_ROWS(X, ...) \
  X(__VA_ARGS__, 1)              \
  X(__VA_ARGS__, 2) X(__VA_ARGS__, 3) X(__VA_ARGS__, 4) X(__VA_ARGS__, 6)
#endif

// DIRECT(..., rows, columns) and THREADGROUP(..., rows, columns).
#ifndef MARLIN_REGDECODE_TILES
#define MARLIN_REGDECODE_TILES(DIRECT, THREADGROUP, ...) \
  DIRECT(__VA_ARGS__, 8, 32) DIRECT(__VA_ARGS__, 16, 32) THREADGROUP(__VA_ARGS__, 32, 128)
#endif
