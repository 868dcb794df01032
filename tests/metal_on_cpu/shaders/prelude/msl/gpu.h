// With MSL_GPU, a shader is compiled for a GPU with 32 lanes, so that its registers can be counted; nobody runs it. What other
// lanes compute comes from instructions that have the same operands and do nothing.
#pragma once
#include "vector.h"
#ifdef MSL_GPU
#define MSL_SPACE(n) __attribute__((address_space(n)))

namespace msl {
/// What comes from other lanes.
template <class T>
MSL_INLINE T from_others(T value, int index) {
  uint words[(sizeof(T) + 3) / 4] = {};
  __builtin_memcpy(words, &value, sizeof(T));
  for (uint& word : words) __asm__("; %0 %1" : "+v"(word) : "v"(index));
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

/// C + A B of two elements a lane. The sums may stay where they are.
template <class D, class A, class B, class C>
MSL_INLINE D multiply_fragments(A a, B b, C c) {
  static_assert(sizeof(C) == 8 && sizeof(D) == 8, "sums are float");
  if constexpr (sizeof(A) == 8) {
    __asm__("; %0 %1 %2 %3 %4 %5" : "+v"(c[0]), "+v"(c[1]) : "v"(a[0]), "v"(a[1]), "v"(b[0]), "v"(b[1]));
  } else {
    __asm__("; %0 %1 %2 %3" : "+v"(c[0]), "+v"(c[1]) : "v"(__builtin_bit_cast(uint, a)), "v"(__builtin_bit_cast(uint, b)));
  }
  return c;
}

/// A sum of products of fragments, of which it takes two neighbors of each.
template <class A, class B>
MSL_INLINE float from_fragments(float sum, const A* a, const B* b) {
  static_assert(sizeof(A) == 2 && sizeof(B) == 2, "fragments are half or bfloat");
  uint pair_a, pair_b;
  __builtin_memcpy(&pair_a, a, 4), __builtin_memcpy(&pair_b, b, 4);
  __asm__("; %0 %1 %2" : "+v"(sum) : "v"(pair_a), "v"(pair_b));
  return sum;
}

struct Buffers {
  void* of[31];
};
template <class A>
struct OnGpuArgument {
  static MSL_INLINE A get(Builtin b, void*) {
    const uint group[] = {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
                          __builtin_amdgcn_workgroup_id_z()};
    const uint thread = __builtin_amdgcn_workitem_id_x();
    uint all[3] = {group[0], group[1], group[2]};
    if (b == kThreadPositionInGrid) all[0] = group[0] * 256 + thread;
    if (b == kThreadPositionInThreadgroup || b == kThreadIndexInThreadgroup) all[0] = thread, all[1] = all[2] = 0;
    if (b == kThreadIndexInSimdgroup) all[0] = __builtin_amdgcn_mbcnt_lo(~0u, 0);
    if (b == kSimdgroupIndexInThreadgroup) all[0] = __builtin_amdgcn_readfirstlane(thread / 32);
    return builtin_of<A>({all[0], all[1], all[2]});
  }
};
template <class T>
struct OnGpuArgument<T*> {  // device memory
  static MSL_INLINE T* get(Builtin, void* p) { return (T*)(MSL_SPACE(1) T*)p; }
};
template <class T>
struct OnGpuArgument<T&> {  // constant memory
  static MSL_INLINE T& get(Builtin, void* p) { return *(T*)(MSL_SPACE(4) T*)p; }
};
}  // namespace msl

extern "C" MSL_INLINE void msl_threadgroup_barrier(uint32_t, const char*, uint32_t, uint32_t) { __builtin_amdgcn_s_barrier(); }
extern "C" MSL_INLINE void msl_simdgroup_barrier(uint32_t, const char*, uint32_t, uint32_t) {
  __asm__ volatile("" ::: "memory");
}
extern "C" MSL_INLINE uint32_t msl_lane() { return __builtin_amdgcn_mbcnt_lo(~0u, 0); }
#endif
