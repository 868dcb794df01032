// Reads activations, four or eight neighboring columns at a time.
#pragma once
#include "constants.h"

/// Reads four columns from k on. With `check`, columns from K on are 0 and are not read.
template <typename T>
static inline vec<T, 4> load4(const device T* row, int k, int K, bool check) {
  if (check) {
    vec<T, 4> v = vec<T, 4>(T(0));
    UNROLL for (ushort i = 0; i < 4; i++) if (k + i < K) v[i] = row[k + i];
    return v;
  }
  if (a_aligned) return *(const device vec<T, 4>*)(row + k);
  return vec<T, 4>(row[k], row[k + 1], row[k + 2], row[k + 3]);
}

/// The eight columns of a unit: 0..3 and 4..7.
template <typename T>
struct Eight {
  vec<T, 4> lo, hi;
};

/// Reads eight columns with one load for each 16 bytes.
static inline Eight<float> load_eight(const device float* row) {
  return Eight<float>{*(const device float4*)row, *(const device float4*)(row + 4)};
}
static inline Eight<half> load_eight(const device half* row) {
  const uint4 v = *(const device uint4*)row;
  return Eight<half>{as_type<half4>(v.xy), as_type<half4>(v.zw)};
}
static inline Eight<bfloat> load_eight(const device bfloat* row) {
  const uint4 v = *(const device uint4*)row;
  return Eight<bfloat>{as_type<bfloat4>(v.xy), as_type<bfloat4>(v.zw)};
}
static inline Eight<char> load_eight(const device char* row) {
  const uint2 v = *(const device uint2*)row;
  return Eight<char>{as_type<char4>(v.x), as_type<char4>(v.y)};
}

template <typename T>
static inline Eight<T> load8(const device T* row, int k, int K, bool check) {
  if (a_aligned && !check) return load_eight(row + k);
  return Eight<T>{load4(row, k, K, check), load4(row, k + 4, K, check)};
}

/// The properties of a type of activations.
template <typename T>
struct Activation {
  typedef uint4 Words;  // of four numbers
  static constexpr constant bool kQuantized = false;
  /// Whether sums of codes times activations stay far from the limits of float32, so that the scale
  /// may be applied to the sum.
  static constexpr constant bool kNarrow = false;
};
template <>
struct Activation<bfloat> {
  typedef uint2 Words;
  static constexpr constant bool kQuantized = false, kNarrow = false;
};
template <>
struct Activation<half> {
  typedef uint2 Words;
  static constexpr constant bool kQuantized = false, kNarrow = true;
};
template <>
struct Activation<char> {
  typedef uint Words;
  static constexpr constant bool kQuantized = true, kNarrow = true;
};
