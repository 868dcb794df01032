// The intrinsics, and the attributes of functions that use them.
#pragma once

#include <cstdint>

#include "base/bits.h"

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
#define MARLIN_AVX512 [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]]
#define MARLIN_AVX512_VNNI [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")]]
#define MARLIN_AVX512_BF16 [[gnu::target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512bf16")]]
#define MARLIN_INLINE [[gnu::always_inline]] inline

namespace metal_marlin::cpu {

/// Keeps the compiler from moving loads over each other: both g++ and clang would hoist them until accumulators spill, which
/// costs a quarter of the speed of a large tile.
MARLIN_INLINE void fence() { __asm__ volatile("" ::: "memory"); }

/// How far ahead of itself a walk over packed weights fetches: more than the latency of memory at a core's share of the
/// bandwidth, in whole superblocks: scales lie behind the codes but are needed before them, and only so do their lines come as
/// early as the others.
constexpr int64_t fetch_distance(int64_t super_bytes) { return round_up(16384, super_bytes); }

/// Into L2: the few misses that L1 can have outstanding (24 on Zen 4, that is 15 GB/s at 100 ns) do not fill the memory's
/// bandwidth.
MARLIN_INLINE void fetch_line(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
MARLIN_INLINE void fetch_lines(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) fetch_line(p + i);
}

}  // namespace metal_marlin::cpu
