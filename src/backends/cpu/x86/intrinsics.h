// The intrinsics, and the attributes of functions that use them.
#pragma once

#include "backends/cpu/hot_loops.h"

// GCC 12 warns about its own headers, which write "undefined" as a variable that is initialized by
// itself (GCC bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// The attributes belong to functions, never to files, because functions that are inlined from
// headers must stay baseline code.
#define MARLIN_AVX2 [[gnu::target("avx2,fma,f16c")]]
#define MARLIN_AVX512 [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#define MARLIN_AVX512_VNNI \
  [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]]
#define MARLIN_AVX512_BF16 \
  [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]]
#define MARLIN_AMX                                                            \
  [[gnu::target(                                                              \
      "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,amx-tile," \
      "amx-int8,amx-bf16")]]
