// The intrinsics, and the attributes of functions that use them.
#pragma once

// GCC 12 warns of its own headers, which spell "undefined" as a variable initialised by itself (GCC bug 105593).
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
#define MARLIN_AVX512 [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]]
#define MARLIN_AVX512_VNNI [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512vnni")]]
#define MARLIN_AVX512_BF16 [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512bf16")]]
#define MARLIN_INLINE [[gnu::always_inline]] inline

namespace metal_marlin::cpu {

/// Keeps the compiler from moving loads over each other: both g++ and clang would hoist them until accumulators spill, which
/// costs a quarter of the speed of a large tile.
MARLIN_INLINE void fence() { __asm__ volatile("" ::: "memory"); }

/// How far ahead of itself a walk over packed weights fetches: more than the latency of memory at a core's share of the
/// bandwidth.
inline constexpr long kPrefetchAhead = 12288;

/// Fetches a line of the packed weights ahead of the walk, into L2: on a Zen 4, fetches into L1 took the slots for misses from
/// the walk itself, and INT8 at M = 1 took 1.6 times as long.
MARLIN_INLINE void fetch_ahead(const void* line) { _mm_prefetch(static_cast<const char*>(line) + kPrefetchAhead, _MM_HINT_T1); }

}  // namespace metal_marlin::cpu
