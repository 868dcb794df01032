// Atomic functions, relaxed order only, as in MSL. The runtime hears of each access: atomics race with plain accesses only.
#pragma once
#include "matrix.h"

namespace metal {
enum memory_order { memory_order_relaxed };
template <class T>
struct atomic {
  T v;
};
typedef atomic<int> atomic_int;
typedef atomic<uint> atomic_uint;
typedef atomic<float> atomic_float;
typedef atomic<bool> atomic_bool;
typedef atomic<long> atomic_long;
typedef atomic<ulong> atomic_ulong;

template <class T>
MSL_RUNTIME T atomic_read(const volatile atomic<T>* p, const char* file, unsigned line) {
#ifdef MSL_CHECKED
  msl_atomic_access(p, sizeof(T), false, file, line);
#endif
  (void)file, (void)line;
  T value;
  __atomic_load(const_cast<T*>(&p->v), &value, __ATOMIC_RELAXED);
  return value;
}
// Replaces the value x by f(x, b) and returns x.
template <class T, class F>
MSL_RUNTIME T atomic_modify(volatile atomic<T>* p, T b, F f, const char* file, unsigned line) {
#ifdef MSL_CHECKED
  msl_atomic_access(p, sizeof(T), false, file, line);
  msl_atomic_access(p, sizeof(T), true, file, line);
#endif
  (void)file, (void)line;
  T* at = const_cast<T*>(&p->v);
  T old;
  __atomic_load(at, &old, __ATOMIC_RELAXED);
  for (;;) {
    T next = f(old, b);
    if (__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}
template <class T>
MSL_INLINE T atomic_load_explicit(const volatile atomic<T>* p, memory_order, MSL_SITE) {
  (void)column;
  return atomic_read(p, file, line);
}
template <class T, class U>
MSL_INLINE void atomic_store_explicit(volatile atomic<T>* p, U value, memory_order, MSL_SITE) {
  (void)column;
  const T b = static_cast<T>(value);
#ifdef MSL_CHECKED
  msl_atomic_access(p, sizeof(T), true, file, line);
#endif
  (void)file, (void)line;
  __atomic_store(const_cast<T*>(&p->v), const_cast<T*>(&b), __ATOMIC_RELAXED);
}
#define MSL_ATOMIC(name, expression)                                                                                   \
  template <class T, class U>                                                                                          \
  MSL_INLINE T atomic_##name##_explicit(volatile atomic<T>* p, U operand, memory_order, MSL_SITE) {                    \
    (void)column;                                                                                                      \
    return atomic_modify(p, static_cast<T>(operand), [](T a, T b) { return static_cast<T>(expression); }, file, line); \
  }
MSL_ATOMIC(fetch_add, a + b)
MSL_ATOMIC(fetch_sub, a - b)
MSL_ATOMIC(fetch_max, a < b ? b : a)
MSL_ATOMIC(fetch_min, b < a ? b : a)
MSL_ATOMIC(fetch_or, a | b)
MSL_ATOMIC(fetch_and, a& b)
MSL_ATOMIC(fetch_xor, a ^ b)
MSL_ATOMIC(exchange, ((void)a, b))
template <class T, class U>
MSL_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* p, T* expected, U desired, memory_order, memory_order,
                                                      MSL_SITE) {
  (void)column;
  const T want = *expected, next = static_cast<T>(desired);
  const T old = atomic_modify(p, next, [want](T a, T b) { return a == want ? b : a; }, file, line);
  *expected = old;
  return old == want;
}
}  // namespace metal
using metal::memory_order_relaxed;
