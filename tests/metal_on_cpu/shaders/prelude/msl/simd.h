// Barriers, and what the lanes of a simdgroup compute together. A lane hands its operand to the runtime and waits;
// the last lane to arrive computes the results of all.
#pragma once
#include "gpu.h"
#include "math.h"

namespace metal {
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr MSL_INLINE mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<uint>(a) | static_cast<uint>(b));
}
MSL_INLINE void threadgroup_barrier(mem_flags flags, MSL_SITE) {
  msl_threadgroup_barrier(static_cast<uint>(flags), file, line, column);
}
MSL_INLINE void simdgroup_barrier(mem_flags flags, MSL_SITE) {
  msl_simdgroup_barrier(static_cast<uint>(flags), file, line, column);
}

template <class T>
struct Shuffled {
  T value, result;
  int index;
  uint8_t* shadows;  // null: all is known

  MSL_RUNTIME void take(const Shuffled& from) {
    result = from.value;
    for (size_t i = 0; shadows && i < msl::kShuffleShadow; i++)
      shadows[msl::kShuffleShadow + i] = from.shadows ? from.shadows[i] : 0;
  }
};
template <class Source, class T>
MSL_RUNTIME void resolve_shuffle(void** lanes, uint32_t active) {
  for (int lane = 0; lane < 32; lane++) {
    if (!(active >> lane & 1)) continue;
    auto* mine = static_cast<Shuffled<T>*>(lanes[lane]);
    const int from = Source::from(lane, mine->index);
    if (from > 31 || !(active >> from & 1)) {
      mine->take(*mine);
      msl_inactive_lane(lane, from);
    } else {
      mine->take(*static_cast<Shuffled<T>*>(lanes[from]));
    }
  }
}
// A value as an argument. The pass of checked mode takes numbers and vectors that a function of the runtime gets as used, so
// that they need to have been set; what is in a class may be passed on without.
template <class T>
struct AsNumber {
  using type = T;
  static MSL_INLINE T of(T v) { return v; }
};
template <class T, int N>
struct AsNumber<vec<T, N>> {
  using type = typename vec<T, N>::D;
  static MSL_INLINE type of(vec<T, N> v) { return v.d; }
  static MSL_INLINE vec<T, N> of(type v) { return vec<T, N>::raw(v); }
};
template <class T>
struct AsClass {
  T value;
};
// A product is a vector to all functions of simdgroups.
template <class T>
struct Plain {
  using type = T;
};
template <class T, int N>
struct Plain<vec_product<T, N>> {
  using type = vec<T, N>;
};
template <class T>
using plain = typename Plain<T>::type;

// Called, so that what the runtime gets the address of is no variable of the shader's own function. The pass of checked mode
// knows its name and its parameters, and hands over the shadow of `of` in front.
template <class Source, class T>
MSL_RUNTIME T shuffle(AsClass<T> of, int index, const char* file, unsigned line, unsigned column) {
#ifdef MSL_GPU
  return msl::from_others(of.value, index);
#endif
  Shuffled<T> x{of.value, of.value, index, msl_take_shadow()};
  msl_collective(msl::kShuffle, &x, &resolve_shuffle<Source, T>, file, line, column);
  return x.result;
}
#define MSL_SHUFFLE(name, source)                                        \
  struct From_##name {                                                   \
    static MSL_RUNTIME int from(int lane, int i) {                       \
      (void)lane;                                                        \
      return source;                                                     \
    }                                                                    \
  };                                                                     \
  template <class T>                                                     \
  MSL_INLINE plain<T> name(T value, ushort index, MSL_SITE) {            \
    const AsClass<plain<T>> x{value};                                    \
    return shuffle<From_##name, plain<T>>(x, index, file, line, column); \
  }
MSL_SHUFFLE(simd_shuffle, i)
MSL_SHUFFLE(simd_shuffle_xor, lane ^ i)

// Butterfly over the active lanes: distance 1, 2, 4, ... The order that the hardware takes is not documented; this one is
// fixed.
template <class T>
MSL_RUNTIME void resolve_sum(void** lanes, uint32_t active) {
  T values[32];
  uint32_t has = active;
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) values[i] = *static_cast<T*>(lanes[i]);
  for (int step = 1; step < 32; step *= 2)
    for (int i = 0; i < 32; i += 2 * step) {
      if (!(has >> (i + step) & 1)) continue;
      values[i] = has >> i & 1 ? static_cast<T>(values[i] + values[i + step]) : values[i + step];
      has |= 1u << i;
    }
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) *static_cast<T*>(lanes[i]) = values[0];
}
template <class T>
MSL_RUNTIME void resolve_prefix(void** lanes, uint32_t active) {
  T sum = T(0);
  for (int i = 0; i < 32; i++) {
    if (!(active >> i & 1)) continue;
    T& mine = *static_cast<T*>(lanes[i]);
    const T next = static_cast<T>(sum + mine);
    mine = sum;
    sum = next;
  }
}
template <class T>
MSL_RUNTIME T collect(uint32_t kind, typename AsNumber<T>::type of, msl::Resolve resolver, const char* file, unsigned line,
                      unsigned column) {
  T value = AsNumber<T>::of(of);
#ifdef MSL_GPU
  return msl::from_others(value, 0);
#endif
  msl_collective(kind, &value, resolver, file, line, column);
  return value;
}
#define MSL_REDUCTION(name, Resolver)                                                                        \
  template <class T>                                                                                         \
  MSL_INLINE plain<T> name(T value, MSL_SITE) {                                                              \
    return collect<plain<T>>(msl::kReduction, AsNumber<plain<T>>::of(value), &Resolver, file, line, column); \
  }
MSL_REDUCTION(simd_sum, resolve_sum<plain<T>>)
MSL_REDUCTION(simd_prefix_exclusive_sum, resolve_prefix<plain<T>>)
}  // namespace metal
