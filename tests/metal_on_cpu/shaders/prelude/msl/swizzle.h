// Swizzles of two to four components as properties: v.zyx reads, v.xz = ... writes. Single components are members.
// MSL_SWIZZLES_<n> declares all of them inside vec<T, n>; the names are built letter by letter.
#pragma once

#define MSL_SWIZZLE_2(name, a, b)                                                                         \
  __declspec(property(get = get_##name, put = put_##name)) vec<T, 2> name;                                \
  MSL_INLINE vec<T, 2> get_##name() const { return vec<T, 2>::raw(__builtin_shufflevector(d, d, a, b)); } \
  MSL_INLINE void put_##name(vec<T, 2> v) {                                                               \
    static_assert(a != b, "a component is assigned twice");                                               \
    d[a] = v.d[0], d[b] = v.d[1];                                                                         \
  }
#define MSL_SWIZZLE_3(name, a, b, c)                                                                         \
  __declspec(property(get = get_##name, put = put_##name)) vec<T, 3> name;                                   \
  MSL_INLINE vec<T, 3> get_##name() const { return vec<T, 3>::raw(__builtin_shufflevector(d, d, a, b, c)); } \
  MSL_INLINE void put_##name(vec<T, 3> v) {                                                                  \
    static_assert(a != b && a != c && b != c, "a component is assigned twice");                              \
    d[a] = v.d[0], d[b] = v.d[1], d[c] = v.d[2];                                                             \
  }
#define MSL_SWIZZLE_4(name, a, b, c, e)                                                                         \
  __declspec(property(get = get_##name, put = put_##name)) vec<T, 4> name;                                      \
  MSL_INLINE vec<T, 4> get_##name() const { return vec<T, 4>::raw(__builtin_shufflevector(d, d, a, b, c, e)); } \
  MSL_INLINE void put_##name(vec<T, 4> v) {                                                                     \
    static_assert(((1 << a) | (1 << b) | (1 << c) | (1 << e)) == 15, "a component is assigned twice");          \
    d[a] = v.d[0], d[b] = v.d[1], d[c] = v.d[2], d[e] = v.d[3];                                                 \
  }

// MSL_S<length><components>: every name that starts with n, whose indices so far are i...
#define MSL_S22(n, i) MSL_SWIZZLE_2(n##x, i, 0) MSL_SWIZZLE_2(n##y, i, 1)
#define MSL_S23(n, i) MSL_S22(n, i) MSL_SWIZZLE_2(n##z, i, 2)
#define MSL_S24(n, i) MSL_S23(n, i) MSL_SWIZZLE_2(n##w, i, 3)
#define MSL_T32(n, i, j) MSL_SWIZZLE_3(n##x, i, j, 0) MSL_SWIZZLE_3(n##y, i, j, 1)
#define MSL_T33(n, i, j) MSL_T32(n, i, j) MSL_SWIZZLE_3(n##z, i, j, 2)
#define MSL_T34(n, i, j) MSL_T33(n, i, j) MSL_SWIZZLE_3(n##w, i, j, 3)
#define MSL_S32(n, i) MSL_T32(n##x, i, 0) MSL_T32(n##y, i, 1)
#define MSL_S33(n, i) MSL_T33(n##x, i, 0) MSL_T33(n##y, i, 1) MSL_T33(n##z, i, 2)
#define MSL_S34(n, i) MSL_T34(n##x, i, 0) MSL_T34(n##y, i, 1) MSL_T34(n##z, i, 2) MSL_T34(n##w, i, 3)
#define MSL_U42(n, i, j, k) MSL_SWIZZLE_4(n##x, i, j, k, 0) MSL_SWIZZLE_4(n##y, i, j, k, 1)
#define MSL_U43(n, i, j, k) MSL_U42(n, i, j, k) MSL_SWIZZLE_4(n##z, i, j, k, 2)
#define MSL_U44(n, i, j, k) MSL_U43(n, i, j, k) MSL_SWIZZLE_4(n##w, i, j, k, 3)
#define MSL_T42(n, i, j) MSL_U42(n##x, i, j, 0) MSL_U42(n##y, i, j, 1)
#define MSL_T43(n, i, j) MSL_U43(n##x, i, j, 0) MSL_U43(n##y, i, j, 1) MSL_U43(n##z, i, j, 2)
#define MSL_T44(n, i, j) MSL_U44(n##x, i, j, 0) MSL_U44(n##y, i, j, 1) MSL_U44(n##z, i, j, 2) MSL_U44(n##w, i, j, 3)
#define MSL_S42(n, i) MSL_T42(n##x, i, 0) MSL_T42(n##y, i, 1)
#define MSL_S43(n, i) MSL_T43(n##x, i, 0) MSL_T43(n##y, i, 1) MSL_T43(n##z, i, 2)
#define MSL_S44(n, i) MSL_T44(n##x, i, 0) MSL_T44(n##y, i, 1) MSL_T44(n##z, i, 2) MSL_T44(n##w, i, 3)

#define MSL_SWIZZLES_2 MSL_S22(x, 0) MSL_S22(y, 1) MSL_S32(x, 0) MSL_S32(y, 1) MSL_S42(x, 0) MSL_S42(y, 1)
#define MSL_SWIZZLES_3 \
  MSL_S23(x, 0) MSL_S23(y, 1) MSL_S23(z, 2) MSL_S33(x, 0) MSL_S33(y, 1) MSL_S33(z, 2) MSL_S43(x, 0) MSL_S43(y, 1) MSL_S43(z, 2)
#define MSL_SWIZZLES_4                                                                                            \
  MSL_S24(x, 0)                                                                                                   \
  MSL_S24(y, 1)                                                                                                   \
  MSL_S24(z, 2)                                                                                                   \
  MSL_S24(w, 3) MSL_S34(x, 0) MSL_S34(y, 1) MSL_S34(z, 2) MSL_S34(w, 3) MSL_S44(x, 0) MSL_S44(y, 1) MSL_S44(z, 2) \
      MSL_S44(w, 3)
