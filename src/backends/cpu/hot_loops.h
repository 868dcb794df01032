// Helpers for inner loops on every processor.
//
// The loops of a tile nest deeper than three in some kernels. The loops over registers (rows r,
// vectors v) are unrolled completely. The other loops stay in one function on purpose: if they are
// in inlined functions of their own, g++ 12 gives their pointers and counters other registers, and
// some tiles take a few percent more instructions.
#pragma once

#include <limits>

#define MARLIN_INLINE [[gnu::always_inline]] inline
/// A loop over registers, for i = 0 .. n - 1, and two of them, one in the other.
#define MARLIN_UNROLLED(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); ++i)
#define MARLIN_UNROLLED_2(i, n, j, m) \
  MARLIN_UNROLLED(i, n)               \
    MARLIN_UNROLLED(j, m)

namespace metal_marlin::cpu {

/// This is not FLT_MAX, because the libc++ of LLVM 21 hides all of <cfloat> after the <math.h> of
/// macOS.
inline constexpr float kLargestFloat = std::numeric_limits<float>::max();

/// Prevents the compiler from moving loads across it. Both g++ and clang would hoist loads until
/// accumulators spill, which costs a quarter of the speed of a large tile.
MARLIN_INLINE void fence() { __asm__ volatile("" ::: "memory"); }

}  // namespace metal_marlin::cpu
