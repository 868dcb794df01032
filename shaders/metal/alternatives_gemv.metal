// Shapes of gemv that no table chooses, and that METAL_MARLIN_KERNEL may name. A program
// that compiles kernels from their text compiles this file only if it asks for one of these.
#ifndef MARLIN_PRODUCTS
#define MARLIN_PRODUCTS MARLIN_DENSE_PRODUCTS
#endif
#undef MARLIN_GEMV_ROWS
#define MARLIN_GEMV_ROWS(X, ...)
#define MARLIN_GEMV_SHAPES(X, ...) \
  X(__VA_ARGS__, 1, 32, 2)         \
  X(__VA_ARGS__, 1, 32, 8)         \
  X(__VA_ARGS__, 1, 64, 2)         \
  X(__VA_ARGS__, 1, 128, 1)        \
  X(__VA_ARGS__, 2, 32, 8)         \
  X(__VA_ARGS__, 2, 64, 2)         \
  X(__VA_ARGS__, 4, 32, 8) X(__VA_ARGS__, 4, 64, 2) X(__VA_ARGS__, 8, 64, 2)
#include "gemv.metal"
