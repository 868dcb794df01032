// The intrinsics, and the attributes of functions that use them.
#pragma once

#include "backends/cpu/hot_loops.h"

// GCC 12 warns of its own headers, which spell "undefined" as a variable initialized by itself (GCC
// bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

// Per function, never per file: whatever is inlined from headers elsewhere must stay baseline code.
#define MARLIN_AVX2 [[gnu::target("avx2,fma,f16c")]]
#define MARLIN_AVX512 [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#define MARLIN_AVX512_VNNI \
  [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]]
#define MARLIN_AVX512_BF16 \
  [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]]
