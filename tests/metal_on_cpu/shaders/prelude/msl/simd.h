// Barriers, and what the lanes of a simdgroup or quadgroup compute together. A lane hands its operand to the runtime and waits;
// the last lane to arrive computes the results of all.
#pragma once
#include "integer.h"

namespace metal {
enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
constexpr MSL_INLINE mem_flags operator|(mem_flags a, mem_flags b) {
  return static_cast<mem_flags>(static_cast<uint>(a) | static_cast<uint>(b));
}
MSL_INLINE void threadgroup_barrier(mem_flags flags, MSL_SITE) {
  msl_threadgroup_barrier(static_cast<uint>(flags), file, line, column);
}
MSL_INLINE void simdgroup_barrier(mem_flags flags, MSL_SITE) {
  msl_simdgroup_barrier(static_cast<uint>(flags), file, line, column);
}

constexpr int kFromSelf = -1;   // keep the lane's own value
constexpr int kFromFill = -64;  // kFromFill + n: the filling data of lane n
template <class T>
struct Shuffled {
  T value, result;
  int index;
  T filling;
  int modulo;
  uint8_t* shadows;  // null: all is known

  MSL_RUNTIME void take(const Shuffled& from, bool fill) {
    result = fill ? from.filling : from.value;
    for (size_t i = 0; shadows && i < msl::kShuffleShadow; i++)
      shadows[2 * msl::kShuffleShadow + i] = from.shadows ? from.shadows[(fill ? msl::kShuffleShadow : 0) + i] : 0;
  }
};
template <class Source, class T>
MSL_RUNTIME void resolve_shuffle(void** lanes, uint32_t active) {
  for (int lane = 0; lane < 32; lane++) {
    if (!(active >> lane & 1)) continue;
    auto* mine = static_cast<Shuffled<T>*>(lanes[lane]);
    const int from = Source::from(lane, mine->index, mine->modulo, active);
    const int other = (from < -1 ? from - kFromFill : from) & 31;
    if (from == kFromSelf) {
      mine->take(*mine, false);
    } else if (from > 31 || !(active >> other & 1)) {
      mine->take(*mine, false);
      msl_inactive_lane(lane, from);
    } else {
      mine->take(*static_cast<Shuffled<T>*>(lanes[other]), from < 0);
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
// knows its name and its parameters, and hands over the shadows of `of` and `fill` in front.
template <class Source, class T>
MSL_RUNTIME T shuffle(AsClass<T> of, int index, AsClass<T> fill, int modulo, const char* file, unsigned line, unsigned column) {
  Shuffled<T> x{of.value, of.value, index, fill.value, modulo, msl_take_shadow()};
  msl_collective(Source::kKind, &x, &resolve_shuffle<Source, T>, file, line, column);
  return x.result;
}
struct Shuffling {
  static constexpr uint32_t kKind = msl::kShuffle;
};
#define MSL_SHUFFLE(name, source)                                                  \
  struct From_##name : Shuffling {                                                 \
    static MSL_RUNTIME int from(int lane, int i, int, uint32_t) { return source; } \
  };                                                                               \
  template <class T>                                                               \
  MSL_INLINE plain<T> name(T value, ushort index, MSL_SITE) {                      \
    const AsClass<plain<T>> x{value};                                              \
    return shuffle<From_##name, plain<T>>(x, index, x, 32, file, line, column);    \
  }
MSL_SHUFFLE(simd_shuffle, i)
MSL_SHUFFLE(simd_broadcast, i)
MSL_SHUFFLE(simd_shuffle_xor, lane ^ i)
MSL_SHUFFLE(simd_shuffle_down, lane + i < 32 ? lane + i : kFromSelf)
MSL_SHUFFLE(simd_shuffle_up, lane - i >= 0 ? lane - i : kFromSelf)
MSL_SHUFFLE(simd_shuffle_rotate_down, (lane + i) & 31)
MSL_SHUFFLE(simd_shuffle_rotate_up, (lane - i) & 31)
MSL_SHUFFLE(quad_shuffle, (lane & ~3) | (i & 3))
MSL_SHUFFLE(quad_broadcast, (lane & ~3) | (i & 3))
MSL_SHUFFLE(quad_shuffle_xor, lane ^ (i & 3))
MSL_SHUFFLE(quad_shuffle_down, (lane & 3) + i < 4 ? lane + i : kFromSelf)
MSL_SHUFFLE(quad_shuffle_up, (lane & 3) - i >= 0 ? lane - i : kFromSelf)
MSL_SHUFFLE(quad_shuffle_rotate_down, (lane & ~3) | ((lane + i) & 3))
MSL_SHUFFLE(quad_shuffle_rotate_up, (lane & ~3) | ((lane - i) & 3))
struct FromDownOrFill : Shuffling {
  static MSL_RUNTIME int from(int lane, int i, int modulo, uint32_t) {
    const int base = lane & ~(modulo - 1), at = (lane & (modulo - 1)) + i;
    return at < modulo ? base + at : kFromFill + base + at - modulo;
  }
};
struct FromUpOrFill : Shuffling {
  static MSL_RUNTIME int from(int lane, int i, int modulo, uint32_t) {
    const int base = lane & ~(modulo - 1), at = (lane & (modulo - 1)) - i;
    return at >= 0 ? base + at : kFromFill + base + modulo + at;
  }
};
template <class T>
MSL_INLINE T simd_shuffle_and_fill_down(T value, T filling, ushort delta, ushort modulo = 32, MSL_SITE) {
  return shuffle<FromDownOrFill, T>({value}, delta, {filling}, modulo, file, line, column);
}
template <class T>
MSL_INLINE T simd_shuffle_and_fill_up(T value, T filling, ushort delta, ushort modulo = 32, MSL_SITE) {
  return shuffle<FromUpOrFill, T>({value}, delta, {filling}, modulo, file, line, column);
}

#define MSL_OPERATION(name, expression)   \
  struct name {                           \
    template <class T>                    \
    static MSL_INLINE T apply(T a, T b) { \
      return static_cast<T>(expression);  \
    }                                     \
  };
MSL_OPERATION(OpSum, a + b)
MSL_OPERATION(OpProduct, a* b)
MSL_OPERATION(OpMax, max(a, b))
MSL_OPERATION(OpMin, min(a, b))
MSL_OPERATION(OpAnd, a& b)
MSL_OPERATION(OpOr, a | b)
MSL_OPERATION(OpXor, a ^ b)

// Butterfly over the active lanes of each group of `Width`: distance 1, 2, 4, ... The order that the hardware takes is not
// documented; this one is fixed.
template <class Op, class T, int Width>
MSL_RUNTIME void resolve_reduction(void** lanes, uint32_t active) {
  T values[32];
  uint32_t has = active;
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) values[i] = *static_cast<T*>(lanes[i]);
  for (int step = 1; step < Width; step *= 2)
    for (int i = 0; i < 32; i += 2 * step) {
      if (!(has >> (i + step) & 1)) continue;
      values[i] = has >> i & 1 ? Op::apply(values[i], values[i + step]) : values[i + step];
      has |= 1u << i;
    }
  for (int i = 0; i < 32; i++)
    if (active >> i & 1) *static_cast<T*>(lanes[i]) = values[i & ~(Width - 1)];
}
template <class Op, class T, int Width, bool Inclusive>
MSL_RUNTIME void resolve_prefix(void** lanes, uint32_t active) {
  const T start = is_same_v<Op, OpProduct> ? T(1) : T(0);
  T sum = start;
  for (int i = 0; i < 32; i++) {
    if (i % Width == 0) sum = start;
    if (!(active >> i & 1)) continue;
    T& mine = *static_cast<T*>(lanes[i]);
    const T next = Op::apply(sum, mine);
    mine = Inclusive ? next : sum;
    sum = next;
  }
}
template <class T>
MSL_RUNTIME T collect(uint32_t kind, typename AsNumber<T>::type of, msl::Resolve resolver, const char* file, unsigned line,
                      unsigned column) {
  T value = AsNumber<T>::of(of);
  msl_collective(kind, &value, resolver, file, line, column);
  return value;
}
#define MSL_REDUCTION(name, Resolver)                                                                        \
  template <class T>                                                                                         \
  MSL_INLINE plain<T> name(T value, MSL_SITE) {                                                              \
    return collect<plain<T>>(msl::kReduction, AsNumber<plain<T>>::of(value), &Resolver, file, line, column); \
  }
#define MSL_REDUCTIONS(name, Op)                                    \
  MSL_REDUCTION(simd_##name, (resolve_reduction<Op, plain<T>, 32>)) \
  MSL_REDUCTION(quad_##name, (resolve_reduction<Op, plain<T>, 4>))
#define MSL_PREFIXES(name, Op)                                                           \
  MSL_REDUCTION(simd_prefix_inclusive_##name, (resolve_prefix<Op, plain<T>, 32, true>))  \
  MSL_REDUCTION(simd_prefix_exclusive_##name, (resolve_prefix<Op, plain<T>, 32, false>)) \
  MSL_REDUCTION(quad_prefix_inclusive_##name, (resolve_prefix<Op, plain<T>, 4, true>))   \
  MSL_REDUCTION(quad_prefix_exclusive_##name, (resolve_prefix<Op, plain<T>, 4, false>))
MSL_REDUCTIONS(sum, OpSum)
MSL_REDUCTIONS(product, OpProduct)
MSL_REDUCTIONS(max, OpMax)
MSL_REDUCTIONS(min, OpMin)
MSL_REDUCTIONS(and, OpAnd)
MSL_REDUCTIONS(or, OpOr)
MSL_REDUCTIONS(xor, OpXor)
MSL_PREFIXES(sum, OpSum)
MSL_PREFIXES(product, OpProduct)

struct Vote {
  bool mine;
  uint32_t yes, active;
};
inline MSL_RUNTIME void resolve_vote(void** lanes, uint32_t active) {
  uint32_t yes = 0;
  for (int i = 0; i < 32; i++)
    if ((active >> i & 1) && static_cast<Vote*>(lanes[i])->mine) yes |= 1u << i;
  for (int i = 0; i < 32; i++) {
    if (!(active >> i & 1)) continue;
    auto* vote = static_cast<Vote*>(lanes[i]);
    vote->yes = yes, vote->active = active;
  }
}
inline MSL_RUNTIME Vote msl_vote(bool mine, const char* file, unsigned line, unsigned column) {
  Vote x{mine, 0, 0};
  msl_collective(msl::kVote, &x, &resolve_vote, file, line, column);
  return x;
}
struct simd_vote {
  using vote_t = ulong;
  ulong bits;
  simd_vote() = default;
  explicit constexpr MSL_INLINE simd_vote(ulong b) : bits(b) {}
  explicit constexpr MSL_INLINE operator ulong() const { return bits; }
  constexpr MSL_INLINE bool all() const { return bits == 0xffffffff; }
  constexpr MSL_INLINE bool any() const { return bits != 0; }
};
MSL_INLINE bool simd_all(bool b, MSL_SITE) {
  const Vote v = msl_vote(b, file, line, column);
  return v.yes == v.active;
}
MSL_INLINE bool simd_any(bool b, MSL_SITE) { return msl_vote(b, file, line, column).yes != 0; }
MSL_INLINE simd_vote simd_ballot(bool b, MSL_SITE) { return simd_vote(msl_vote(b, file, line, column).yes); }
MSL_INLINE simd_vote simd_active_threads_mask(MSL_SITE) { return simd_vote(msl_vote(true, file, line, column).yes); }
MSL_INLINE bool simd_is_first(MSL_SITE) {
  return static_cast<uint32_t>(__builtin_ctz(msl_vote(true, file, line, column).active)) == msl_lane();
}
MSL_INLINE bool quad_all(bool b, MSL_SITE) {
  const Vote v = msl_vote(b, file, line, column);
  const int quad = msl_lane() & ~3;
  return (v.yes >> quad & 15) == (v.active >> quad & 15);
}
MSL_INLINE bool quad_any(bool b, MSL_SITE) { return (msl_vote(b, file, line, column).yes >> (msl_lane() & ~3) & 15) != 0; }
struct FromFirst {
  static constexpr uint32_t kKind = msl::kVote;
  static MSL_RUNTIME int from(int, int, int, uint32_t active) { return __builtin_ctz(active); }
};
template <class T>
MSL_INLINE plain<T> simd_broadcast_first(T value, MSL_SITE) {
  const AsClass<plain<T>> x{value};
  return shuffle<FromFirst, plain<T>>(x, 0, x, 32, file, line, column);
}
}  // namespace metal
