// What inner loops need on every processor.
//
// The loops of a tile nest deeper than three in some kernels. Those over registers (rows r, vectors
// v) are unrolled and leave none behind. The others stay in one function on purpose: in functions
// of their own, though inlined, g++ 12 gives their pointers and counters other registers, and some
// tiles become a few per cent longer.
#pragma once

#include <limits>

#define MARLIN_INLINE [[gnu::always_inline]] inline

namespace metal_marlin::cpu {

/// Not FLT_MAX: the libc++ of LLVM 21 hides all of <cfloat> once the <math.h> of macOS has been
/// read.
inline constexpr float kLargestFloat = std::numeric_limits<float>::max();

/// Keeps the compiler from moving loads over each other: both g++ and clang would hoist them until
/// accumulators spill, which costs a quarter of the speed of a large tile.
MARLIN_INLINE void fence() { __asm__ volatile("" ::: "memory"); }

}  // namespace metal_marlin::cpu
