// simdgroup_matrix: 8 x 8 elements, two a lane. Lane l holds row (l / 4 & 4) + (l / 2) % 4 and the columns that start at
// (l / 4 & 2) * 2 + (l % 2) * 2: what every Apple GPU so far does, observed with thread_elements().
#pragma once
#include "simd.h"

namespace metal {
constexpr MSL_INLINE int matrix_row(uint lane) { return ((lane / 4) & 4) + ((lane / 2) % 4); }
constexpr MSL_INLINE int matrix_column(uint lane) { return ((lane / 4) & 2) * 2 + (lane % 2) * 2; }

/// What thread_elements() gives: to Metal it has all elements, and a lane has the first two.
template <class T>
struct vec<T, 64> {
  vec<T, 2> own;
  MSL_INLINE T& operator[](long i) { return own[i]; }
  MSL_INLINE T operator[](long i) const { return own[i]; }
};

template <class T, int C, int R = C>
struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "simdgroup_matrix is 8 x 8");
  vec<T, 64> elements;
  MSL_INLINE vec<T, 64>& thread_elements() { return elements; }
  MSL_INLINE vec<T, 64> thread_elements() const { return elements; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

template <class T, int C, int R = C>
MSL_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.elements.own = vec<T, 2>(value);
  return m;
}

struct MatrixOperands {
  void* d;
  const void *a, *b, *c;
};
template <class T>
MSL_INLINE void gather_matrix(float (&m)[8][8], const void* elements, int lane) {
  const int row = matrix_row(lane), column = matrix_column(lane);
  m[row][column] = static_cast<float>(static_cast<const T*>(elements)[0]);
  m[row][column + 1] = static_cast<float>(static_cast<const T*>(elements)[1]);
}
// Sums in float, k ascending, one fused multiply-add a step; rounded to D once at the end.
template <class D, class A, class B, class C>
MSL_RUNTIME void resolve_multiply(void** lanes, uint32_t active) {
  float a[8][8], b[8][8], c[8][8];
  if (active != 0xffffffffu) {  // reported by the runtime; the absent lanes' elements are taken as zero
    __builtin_memset(a, 0, sizeof a), __builtin_memset(b, 0, sizeof b), __builtin_memset(c, 0, sizeof c);
  }
  for (int lane = 0; lane < 32; lane++) {
    if (!(active >> lane & 1)) continue;
    const auto* x = static_cast<MatrixOperands*>(lanes[lane]);
    gather_matrix<A>(a, x->a, lane);
    gather_matrix<B>(b, x->b, lane);
    gather_matrix<C>(c, x->c, lane);
  }
  for (int i = 0; i < 8; i++)
    for (int k = 0; k < 8; k++)
      for (int j = 0; j < 8; j++) c[i][j] = __builtin_fmaf(a[i][k], b[k][j], c[i][j]);
  for (int lane = 0; lane < 32; lane++) {
    if (!(active >> lane & 1)) continue;
    auto* d = static_cast<D*>(static_cast<MatrixOperands*>(lanes[lane])->d);
    const int row = matrix_row(lane), column = matrix_column(lane);
    d[0] = static_cast<D>(c[row][column]), d[1] = static_cast<D>(c[row][column + 1]);
  }
}
// Operands by value: the shader's own matrices stay in registers.
template <class D, class A, class B, class C>
MSL_RUNTIME typename vec<D, 2>::D multiply(typename vec<A, 2>::D a, typename vec<B, 2>::D b, typename vec<C, 2>::D c,
                                           const char* file, unsigned line, unsigned column) {
#ifdef MSL_GPU
  return msl::multiply_fragments<typename vec<D, 2>::D>(a, b, c);
#endif
  vec<D, 2> d;
  MatrixOperands x{&d, &a, &b, &c};
  msl_collective(msl::kMatrixMultiply, &x, &resolve_multiply<D, A, B, C>, file, line, column);
  return d.d;
}
template <class D, class A, class B, class C>
MSL_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                              const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                              MSL_SITE) {
  d.elements.own.d = multiply<D, A, B, C>(a.elements.own.d, b.elements.own.d, c.elements.own.d, file, line, column);
}
}  // namespace metal
using metal::simdgroup_float8x8;
