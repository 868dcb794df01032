// Tiles of regdecode that no table chooses, as in alternatives_gemv.metal.
#ifndef MARLIN_PRODUCTS
#define MARLIN_PRODUCTS MARLIN_DENSE_PRODUCTS
#endif
#undef MARLIN_REGDECODE_TILES
#define MARLIN_REGDECODE_TILES(DIRECT, THREADGROUP, ...) \
  DIRECT(__VA_ARGS__, 8, 32)                             \
  DIRECT(__VA_ARGS__, 16, 64)                            \
  DIRECT(__VA_ARGS__, 16, 128)                           \
  DIRECT(__VA_ARGS__, 32, 32)                            \
  DIRECT(__VA_ARGS__, 32, 64)                            \
  DIRECT(__VA_ARGS__, 32, 128)                           \
  DIRECT(__VA_ARGS__, 64, 128)                           \
  THREADGROUP(__VA_ARGS__, 16, 128) THREADGROUP(__VA_ARGS__, 32, 64)
#include "regdecode.metal"
