// What inner loops need on every processor.
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
