// Code that the AVX2 kernels share.
#pragma once

#include "backends/cpu/chunks.h"
#include "backends/cpu/x86/vec/avx2.h"

namespace metal_marlin::cpu {

/// A dword, or a float, in all lanes. (As integers, because g++ 12 moves loads of floats.)
MARLIN_AVX2 MARLIN_INLINE __m256i broadcast(const uint32_t* x) {
  return _mm256_set1_epi32(static_cast<int>(*x));
}
MARLIN_AVX2 MARLIN_INLINE __m256 broadcast_float(const uint32_t* x) {
  return _mm256_castsi256_ps(broadcast(x));
}

}  // namespace metal_marlin::cpu
