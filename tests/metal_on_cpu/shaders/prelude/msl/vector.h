// vec<T, N> and array<T, N>.
#pragma once
#include "abi.h"
#include "scalar.h"

namespace metal {

// What one component is stored as: clang's vectors know no classes.
template <class T>
struct Stored {
  using type = T;
};
template <>
struct Stored<bfloat> {
  using type = __bf16;
};
template <class T, int N>
struct vec;

/// Components of an argument of a vector's constructor.
template <class A>
struct Components {
  static constexpr int count = 1;
  static constexpr MSL_INLINE A get(const A& a, int) { return a; }
};
template <class T, int N>
struct Components<vec<T, N>> {
  static constexpr int count = N;
  static constexpr MSL_INLINE T get(const vec<T, N>& a, int i) { return static_cast<T>(a.d[i]); }
};

/// The parts of a vector that are properties: v.xy reads, and v.xy = w writes. Single components are members.
#define MSL_SWIZZLE(name, n, first, ...)                                                                         \
  __declspec(property(get = get_##name, put = put_##name)) vec<T, n> name;                                       \
  MSL_INLINE vec<T, n> get_##name() const { return vec<T, n>::raw(__builtin_shufflevector(d, d, __VA_ARGS__)); } \
  MSL_INLINE void put_##name(vec<T, n> v) {                                                                      \
    for (int i = 0; i < n; i++) d[first + i] = v.d[i];                                                           \
  }
#define MSL_SWIZZLES_2
#define MSL_SWIZZLES_3 MSL_SWIZZLE(xy, 2, 0, 0, 1)
#define MSL_SWIZZLES_4 MSL_SWIZZLE(xy, 2, 0, 0, 1) MSL_SWIZZLE(zw, 2, 2, 2, 3) MSL_SWIZZLE(xyz, 3, 0, 0, 1, 2)

#ifdef MSL_CHECKED
#define MSL_VECTOR_INDEX(i, n) \
  if (__builtin_expect(static_cast<unsigned long>(i) >= n, 0)) msl_vector_index(i, n, __builtin_FILE(), __builtin_LINE());
#else
#define MSL_VECTOR_INDEX(i, n)
#endif

// What a * b of vectors gives, where a sum that takes it in the same expression is rounded once, as the compiler does it for
// scalars.
template <class T, int N>
struct vec_product;
template <class T, int N>
using product_of = std::conditional_t<contracted<T>, vec_product<T, N>, vec<T, N>>;

#define MSL_VEC_ARITHMETIC(op)                                                \
  friend MSL_INLINE vec operator op(vec a, vec b) { return raw(a.d op b.d); } \
  MSL_INLINE vec& operator op##=(vec b) { return *this = *this op b; }
#define MSL_MEMBERS_2 \
  struct {            \
    T x, y;           \
  };
#define MSL_MEMBERS_3 \
  struct {            \
    T x, y, z;        \
  };
#define MSL_MEMBERS_4 \
  struct {            \
    T x, y, z, w;     \
  };
#define MSL_PICK_2(e) e(0), e(1)
#define MSL_PICK_3(e) e(0), e(1), e(2)
#define MSL_PICK_4(e) e(0), e(1), e(2), e(3)
#define MSL_CONVERTED(i) static_cast<S>(static_cast<T>(static_cast<U>(o.d[i])))
#define MSL_PART(i) static_cast<S>(parts[i])
#define MSL_VEC(N)                                                                                                \
  template <class T>                                                                                              \
  struct vec<T, N> {                                                                                              \
    using S = typename Stored<T>::type;                                                                           \
    typedef S D __attribute__((ext_vector_type(N)));                                                              \
    union {                                                                                                       \
      D d;                                                                                                        \
      MSL_MEMBERS_##N                                                                                             \
    };                                                                                                            \
    vec() = default;                                                                                              \
    constexpr MSL_INLINE vec(D v, int, int) : d(v) {}                                                             \
    static constexpr MSL_INLINE vec raw(D v) { return vec(v, 0, 0); }                                             \
    template <class A, class = enable_if_t<is_scalar_v<A>>>                                                       \
    constexpr MSL_INLINE vec(A s) : d(static_cast<D>(static_cast<S>(static_cast<T>(s)))) {}                       \
    template <class U>                                                                                            \
    explicit constexpr MSL_INLINE vec(const vec<U, N>& o) : d{MSL_PICK_##N(MSL_CONVERTED)} {}                     \
    template <class A, class B, class... C, class = enable_if_t<!is_same_v<A, D>>>                                \
    constexpr MSL_INLINE vec(A a, B b, C... c) : vec(from_parts(a, b, c...)) {                                    \
      static_assert(Components<A>::count + Components<B>::count + (0 + ... + Components<C>::count) == N,          \
                    "the number of components does not match the vector");                                        \
    }                                                                                                             \
    template <class... A>                                                                                         \
    static constexpr MSL_INLINE vec from_parts(A... a) {                                                          \
      T parts[16] = {};                                                                                           \
      int at = 0;                                                                                                 \
      (append(parts, at, a), ...);                                                                                \
      return raw(D{MSL_PICK_##N(MSL_PART)});                                                                      \
    }                                                                                                             \
    template <class A>                                                                                            \
    static constexpr MSL_INLINE void append(T* parts, int& at, const A& a) {                                      \
      for (int i = 0; i < Components<A>::count; i++) parts[at++] = static_cast<T>(Components<A>::get(a, i));      \
    }                                                                                                             \
    MSL_INLINE T& operator[](long i) { MSL_VECTOR_INDEX(i, N) return reinterpret_cast<T*>(&d)[i]; }               \
    constexpr MSL_INLINE T operator[](long i) const { MSL_VECTOR_INDEX(i, N) return static_cast<T>(d[i]); }       \
    MSL_VEC_ARITHMETIC(+)                                                                                         \
    MSL_VEC_ARITHMETIC(-)                                                                                         \
    friend MSL_INLINE product_of<T, N> operator*(vec a, vec b) { return product_of<T, N>(raw(a.d * b.d), a, b); } \
    constexpr MSL_INLINE vec(vec product, vec, vec) : d(product.d) {}                                             \
    MSL_INLINE vec& operator*=(vec b) { return *this = raw(d * b.d); }                                            \
    MSL_VEC_ARITHMETIC(/)                                                                                         \
    MSL_VEC_ARITHMETIC(&)                                                                                         \
    MSL_VEC_ARITHMETIC(|)                                                                                         \
    MSL_VEC_ARITHMETIC(^)                                                                                         \
    MSL_VEC_ARITHMETIC(<<)                                                                                        \
    MSL_VEC_ARITHMETIC(>>)                                                                                        \
    MSL_INLINE vec operator-() const { return raw(-d); }                                                          \
    MSL_INLINE vec operator~() const { return raw(~d); }                                                          \
    MSL_SWIZZLES_##N                                                                                              \
  };
MSL_VEC(2)
MSL_VEC(3)
MSL_VEC(4)

MSL_INLINE half contract(half a, half b, half c);
MSL_INLINE bfloat contract(bfloat a, bfloat b, bfloat c);

/// A product and its factors. Only one that is at hand in the same expression (an rvalue) is fused; everywhere else it is the
/// vector that it is derived from.
template <class T, int N>
struct vec_product : vec<T, N> {
  using V = vec<T, N>;
  using D = typename V::D;
  V a = *this, b = V(T(1));
  vec_product() = default;
  template <class A, class B, class... C, class = decltype(V(std::declval<A>(), std::declval<B>(), std::declval<C>()...))>
  explicit MSL_INLINE vec_product(A a, B b, C... c) : V(a, b, c...) {}
  MSL_INLINE vec_product(V value) : V(value) {}
  template <class A, class = enable_if_t<is_scalar_v<A>>>
  MSL_INLINE vec_product(A s) : V(s) {}  // condition ? v * w : 0
  MSL_INLINE vec_product(V product, V x, V y) : V(product), a(x), b(y) {}
  static MSL_INLINE V fused(D x, D y, D z) {
    if constexpr (is_same_v<T, float>) {
      return V::raw(__builtin_elementwise_fma(x, y, z));
    } else {
      V r;
      for (int i = 0; i < N; i++) r[i] = contract(static_cast<T>(x[i]), static_cast<T>(y[i]), static_cast<T>(z[i]));
      return r;
    }
  }
  // Templates that deduce exactly an rvalue of this type: no scalar converts to a product here.
#define MSL_PRODUCT(P) class P, enable_if_t<is_same_v<P, vec_product>, int> = 0
  // Of two products the left one is fused, as clang does it.
  template <MSL_PRODUCT(P)>
  friend MSL_INLINE V operator+(P&& p, V c) {
    return fused(p.a.d, p.b.d, c.d);
  }
  template <MSL_PRODUCT(P)>
  friend MSL_INLINE V operator+(V c, P&& p) {
    return fused(p.a.d, p.b.d, c.d);
  }
  template <MSL_PRODUCT(P), MSL_PRODUCT(Q)>
  friend MSL_INLINE V operator+(P&& p, Q&& q) {
    return fused(p.a.d, p.b.d, q.d);
  }
  template <MSL_PRODUCT(P)>
  friend MSL_INLINE V operator-(P&& p, V c) {
    return fused(p.a.d, p.b.d, -c.d);
  }
  template <MSL_PRODUCT(P)>
  friend MSL_INLINE V operator-(V c, P&& p) {
    return fused(-p.a.d, p.b.d, c.d);
  }
  template <MSL_PRODUCT(P), MSL_PRODUCT(Q)>
  friend MSL_INLINE V operator-(P&& p, Q&& q) {
    return fused(p.a.d, p.b.d, -q.d);
  }
  template <MSL_PRODUCT(P)>
  friend MSL_INLINE V& operator+=(V& c, P&& p) {
    return c = fused(p.a.d, p.b.d, c.d);
  }
  template <MSL_PRODUCT(P)>
  friend MSL_INLINE V& operator-=(V& c, P&& p) {
    return c = fused(-p.a.d, p.b.d, c.d);
  }
#undef MSL_PRODUCT
};
template <class T, int N>
struct Components<vec_product<T, N>> : Components<vec<T, N>> {};
template <class To, class T, int N>
MSL_INLINE To as_type(vec_product<T, N> from) {
  return as_type<To>(static_cast<vec<T, N>>(from));
}

template <class T, size_t N>
struct array {
  T v[N];
  MSL_INLINE T& operator[](size_t i) { return v[i]; }
  constexpr MSL_INLINE const T& operator[](size_t i) const { return v[i]; }
  static constexpr size_t size() { return N; }
};
}  // namespace metal

namespace msl {
/// What a parameter of this type gets of an attribute's value.
template <class A>
MSL_INLINE A builtin_of(const Uint3& u) {
  if constexpr (std::is_integral_v<A>) {
    return static_cast<A>(u.x);
  } else if constexpr (metal::Components<A>::count == 2) {
    return A(u.x, u.y);
  } else {
    return A(u.x, u.y, u.z);
  }
}
}  // namespace msl

// Names of vector types need no `using namespace metal`.
#define MSL_VECTOR_NAMES(T)       \
  namespace metal {               \
  typedef vec<T, 2> T##2;         \
  typedef vec<T, 3> T##3;         \
  typedef vec<T, 4> T##4;         \
  }                               \
  using metal::T##2, metal::T##3; \
  using metal::T##4;
MSL_VECTOR_NAMES(char)
MSL_VECTOR_NAMES(uchar)
MSL_VECTOR_NAMES(short)
MSL_VECTOR_NAMES(ushort)
MSL_VECTOR_NAMES(int)
MSL_VECTOR_NAMES(uint)
MSL_VECTOR_NAMES(half)
MSL_VECTOR_NAMES(float)
MSL_VECTOR_NAMES(bfloat)
using metal::vec;
