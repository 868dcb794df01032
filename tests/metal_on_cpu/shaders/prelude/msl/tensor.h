// Tensors of two dimensions over memory that the kernel points at, and matmul2d of Metal Performance Primitives. What Apple
// leaves open depends on the seed of the dispatch: which thread holds which element, which of its slots hold none, and the
// order of sums, all in float.
#pragma once
#include "matrix.h"

namespace metal {
constexpr size_t dynamic_extent = ~size_t(0);
template <class I, size_t... SIZES>
struct extents {
  I sizes[sizeof...(SIZES)];
  template <class... A>
  constexpr MSL_INLINE extents(A... a) : sizes{static_cast<I>(a)...} {
    static_assert(sizeof...(A) == sizeof...(SIZES), "one size a dimension");
  }
  constexpr MSL_INLINE I extent(size_t i) const { return sizes[i]; }
};
template <class I, size_t RANK>
using dextents = std::enable_if_t<RANK == 2, extents<I, dynamic_extent, dynamic_extent>>;

struct tensor_inline {};

/// Element (x, y) is data[x + y * stride].
template <class T, class Extents, class Tag = tensor_inline>
struct tensor {
  static_assert(is_same_v<Tag, tensor_inline>, "only tensors over a pointer (tensor_inline) exist in this test-bed");
  static_assert(!std::is_const_v<T>, "matmul2d has no overloads for tensors of const elements");
  using element_type = T;
  T* data;
  Extents sizes;
  long stride;

  MSL_INLINE tensor(T* p, const Extents& e) : tensor(p, e, e.extent(0)) {}
  MSL_INLINE tensor(T* p, const Extents& e, long row) : data(p), sizes(e), stride(row) {}

  /// W x H elements from (x, y) on, for the whole of which there must be elements.
  template <size_t W, size_t H>
  MSL_INLINE auto slice(long x, long y, MSL_SITE) const {
    const long at[] = {x, y}, size[] = {W, H};
#ifdef MSL_CHECKED
    for (int i = 0; i < 2; i++) {
      const long there = sizes.extent(i);
      if (at[i] < 0 || size[i] > there - at[i]) msl_out_of_slice(i, at[i], size[i], there, file, line, column);
    }
#endif
    (void)file, (void)line, (void)column;
    using Sliced = extents<decltype(sizes.extent(0)), W, H>;
    return tensor<T, Sliced>(data + at[0] + at[1] * stride, Sliced(size[0], size[1]), stride);
  }
};

template <size_t COUNT>
struct execution_simdgroups {
  static constexpr uint32_t count = COUNT;
};
using execution_simdgroup = execution_simdgroups<1>;

/// M x N elements among the threads of some simdgroups. Every slot of every thread has a number; a permutation of the numbers
/// by the seed says whose element it holds, and what is past the last element holds none. But where fragments are published, a
/// simdgroup holds 16 x 16 elements after the others, row by row, eight a lane: four neighbors of a row, and of the row 8
/// below.
template <class T, int M, int N, uint32_t SIMDGROUPS>
struct cooperative_tensor {
  static constexpr long kThreads = 32 * SIMDGROUPS, kLeast = (M * N + kThreads - 1) / kThreads, kSpare = 2;
  static constexpr bool kFragments = SIMDGROUPS == 1 && M % 16 == 0 && N % 16 == 0;
  using element_type = T;
  T elements[kLeast + kSpare];  // NaN until set
  msl::Participant me;

#ifdef MSL_GPU
  MSL_INLINE cooperative_tensor() : me{msl_lane(), 0, false} {}
#else
  MSL_INLINE cooperative_tensor() : me(msl_participant(SIMDGROUPS)) {
    for (T& e : elements) e = T(__builtin_nanf(""));
  }
#endif
  MSL_INLINE bool published() const { return kFragments && !me.hidden; }
  MSL_INLINE uint16_t get_capacity() const {
    return static_cast<uint16_t>(published() ? kLeast : kLeast + (me.seed + 1) % (kSpare + 1));
  }
  MSL_INLINE bool is_valid_element(uint16_t i) const { return number(i) < M * N; }
  MSL_INLINE T& operator[](uint16_t i) { return check(i), elements[i]; }
  MSL_INLINE const T& operator[](uint16_t i) const { return check(i), elements[i]; }
  /// Column, row.
  MSL_INLINE array<int, 2> get_multidimensional_index(uint16_t i) const {
    check(i);
    return array<int, 2>{static_cast<int>(number(i) % N), static_cast<int>(number(i) / N)};
  }

  MSL_INLINE long number(uint16_t i) const {
    if (published()) {
      const uint32_t l = me.thread, fragment = i / 8, across = N / 16;
      const uint32_t row = fragment / across * 16 + i % 8 / 4 * 8 + ((l / 4 & 4) | (l / 2 & 3));
      return row * N + fragment % across * 16 + 4 * ((l / 4 & 2) | (l & 1)) + i % 4;
    }
    const long slots = get_capacity() * kThreads, slot = i * kThreads + me.thread;
    const long prime = slots % 7919 != 0 ? 7919 : 104729;  // no divisor of the number of slots
    return static_cast<long>((slot * prime + static_cast<long>(me.seed % 1024)) % slots);
  }
  MSL_INLINE void check(uint16_t i) const {
#ifdef MSL_CHECKED
    if (i >= get_capacity() || !is_valid_element(i)) msl_invalid_element(i);
#endif
    (void)i;
  }
};  // namespace metal

/// An operand as rows of K elements: of A, or columns of B.
template <class T>
struct TensorRows {
  T* data;
  long rows, k, stride;
};
template <class T, class Extents>
MSL_INLINE TensorRows<T> rows_of(const tensor<T, Extents>& t) {
  return {t.data, t.sizes.extent(1), t.sizes.extent(0), t.stride};
}
template <class L, class R>
struct TensorMultiply {
  TensorRows<L> left;
  TensorRows<R> right;
  long m, n, k;
};

// Every simdgroup may read all of both operands. Row r is lane r + 1's, or another's by the seed: seldom who has written it.
template <class T>
MSL_RUNTIME void read_operand(const TensorRows<T>& t, long most, long k, uint64_t seed, const char* file, unsigned line) {
  const long rows = t.rows < most ? t.rows : most;
  for (long r = (msl_lane() + 1 + seed % 31) % 32; r < rows; r += 32)
    msl_read(t.data + r * t.stride, k * sizeof(T), file, line);
}

// From some k on, up or down, in one sum, two or four. Elements that are not there count as 0, so they are left out.
template <class L, class R>
MSL_RUNTIME float tensor_dot(const TensorMultiply<L, R>& x, long m, long n, float sum, uint64_t seed) {
  if (m >= x.left.rows || n >= x.right.rows) return sum;
  float parts[4] = {sum, 0, 0, 0};
  const L* const a = x.left.data + m * x.left.stride;
  const R* const b = x.right.data + n * x.right.stride;
  const long first = x.k > 0 ? static_cast<long>(seed % static_cast<uint64_t>(x.k)) : 0;
  const uint64_t split = (1u << seed % 3) - 1;
  for (long i = 0; i < x.k; i++) {
    const long at = (first + i) % x.k, k = seed & 1 ? x.k - 1 - at : at;
    float& part = parts[static_cast<uint64_t>(i) & split];
    part = __builtin_fmaf(static_cast<float>(a[k]), static_cast<float>(b[k]), part);
  }
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}
template <bool ACCUMULATE, class L, class R, class C>
MSL_RUNTIME void tensor_multiply(const TensorMultiply<L, R>& x, C& c, const char* file, unsigned line) {
#ifdef MSL_CHECKED
  read_operand(x.left, x.m, x.k, c.me.seed, file, line);
  read_operand(x.right, x.n, x.k, c.me.seed, file, line);
#endif
  (void)file, (void)line;
  for (uint16_t i = 0; i < c.get_capacity(); i++) {
    if (!c.is_valid_element(i)) continue;
    c.elements[i] = tensor_dot(x, c.number(i) / x.n, c.number(i) % x.n, ACCUMULATE ? c.elements[i] : 0.0f, c.me.seed);
  }
}
/// What a lane holds of operands in registers, and of their product.
template <class L, class R, class C>
struct FragmentOperands {
  const L* left;   // M x K
  const R* right;  // N x K
  C* to;           // M x N
};
template <class Tensor, class F>
MSL_RUNTIME void for_elements(const Tensor& t, F f) {
  for (uint16_t i = 0; i < t.get_capacity(); i++)
    if (t.is_valid_element(i)) f(i, t.number(i));
}
template <bool ACCUMULATE, int M, int N, int K, class L, class R, class C>
MSL_RUNTIME void resolve_fragments(void** lanes, uint32_t active) {
  float a[M * K] = {}, b[N * K] = {};
  for (int lane = 0; lane < 32; lane++) {
    if (!(active >> lane & 1)) continue;
    const auto* x = static_cast<FragmentOperands<L, R, C>*>(lanes[lane]);
    for_elements(*x->left, [&](uint16_t i, long n) { a[n] = static_cast<float>(x->left->elements[i]); });
    for_elements(*x->right, [&](uint16_t i, long n) { b[n] = static_cast<float>(x->right->elements[i]); });
  }
  const TensorMultiply<float, float> all{{a, M, K, K}, {b, N, K, K}, M, N, K};
  for (int lane = 0; lane < 32; lane++) {
    if (!(active >> lane & 1)) continue;
    C& c = *static_cast<FragmentOperands<L, R, C>*>(lanes[lane])->to;
    for_elements(c, [&](uint16_t i, long n) {
      c.elements[i] = tensor_dot(all, n / N, n % N, ACCUMULATE ? c.elements[i] : 0.0f, c.me.seed);
    });
  }
}
template <class T>
using remove_addrspace_t = T;
}  // namespace metal

namespace mpp {
namespace tensor_ops {
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
  constexpr matmul2d_descriptor(int the_m, int the_n, int the_k, bool left = false, bool right = false, bool relaxed = false,
                                mode the_mode = mode::multiply)
      : m(the_m),
        n(the_n),
        k(the_k),
        transpose_left(left),
        transpose_right(right),
        relaxed_precision(relaxed),
        matmul_mode(the_mode) {}
  // Metal has classes as arguments of templates; the C++ that this becomes has numbers.
  constexpr operator unsigned long() const {
    return static_cast<unsigned long>(m) | static_cast<unsigned long>(n) << 16 |
           static_cast<unsigned long>(k & 0xFFFFFF) << 32 | static_cast<unsigned long>(transpose_left) << 56 |
           static_cast<unsigned long>(transpose_right) << 57 | static_cast<unsigned long>(relaxed_precision) << 58 |
           static_cast<unsigned long>(matmul_mode == mode::multiply_accumulate) << 59;
  }
};

template <unsigned long DESCRIPTOR, class Scope>
class matmul2d {
  static constexpr int kM = DESCRIPTOR & 0xFFFF, kN = DESCRIPTOR >> 16 & 0xFFFF, kK = DESCRIPTOR >> 32 & 0xFFFFFF;
  static constexpr bool kAccumulate = DESCRIPTOR >> 59 & 1;
  static_assert((DESCRIPTOR >> 56 & 3) == 2, "A as it is and B transposed, in this test-bed");
  static_assert((DESCRIPTOR >> 58 & 1) == 0, "relaxed precision: what it computes is not documented");
  template <class T>
  static constexpr bool kFloats = metal::is_same_v<T, float> || metal::is_same_v<T, half> || metal::is_same_v<T, bfloat>;

 public:
  template <class Left, class Right, class T>
  MSL_INLINE auto get_destination_cooperative_tensor() const {
    static_assert(metal::is_same_v<T, float>, "the result is float in this test-bed");
    return metal::cooperative_tensor<T, kM, kN, Scope::count>();
  }
  /// Operands in the registers of a simdgroup.
  template <class L, class R, class T>
  MSL_INLINE auto get_left_input_cooperative_tensor() const {
    static_assert(Scope::count == 1, "operands in registers: of one simdgroup, in this test-bed");
    return metal::cooperative_tensor<L, kM, kK, 1>();
  }
  template <class L, class R, class T>
  MSL_INLINE auto get_right_input_cooperative_tensor() const {
    static_assert(Scope::count == 1, "operands in registers: of one simdgroup, in this test-bed");
    return metal::cooperative_tensor<R, kN, kK, 1>();
  }
  template <class L, class R>
  MSL_INLINE void run(metal::cooperative_tensor<L, kM, kK, 1>& left, metal::cooperative_tensor<R, kN, kK, 1>& right,
                      metal::cooperative_tensor<float, kM, kN, 1>& to, MSL_SITE) const {
#ifdef MSL_GPU
    (void)file, (void)line, (void)column;
    _Pragma("clang loop unroll(full)") for (int i = 0; i < to.kLeast; i++) to.elements[i] =
        msl::from_fragments(to.elements[i], left.elements + 2 * i % left.kLeast, right.elements + 2 * i % right.kLeast);
#else
    using Lanes = metal::FragmentOperands<metal::cooperative_tensor<L, kM, kK, 1>, metal::cooperative_tensor<R, kN, kK, 1>,
                                          metal::cooperative_tensor<float, kM, kN, 1>>;
    Lanes mine{&left, &right, &to};
    const msl::TensorOperation what{{}, {}, static_cast<uint64_t>(kM) * kN * kK};
    msl_tensor_operation(
        1, &what, &mine,
        &metal::resolve_fragments<kAccumulate, kM, kN, kK, std::remove_reference_t<decltype(left)>,
                                  std::remove_reference_t<decltype(right)>, std::remove_reference_t<decltype(to)>>,
        file, line, column);
#endif
  }
  template <class Left, class Right>
  MSL_INLINE void run(Left& left, Right& right, metal::cooperative_tensor<float, kM, kN, Scope::count>& to, MSL_SITE) const {
    using L = typename Left::element_type;
    using R = typename Right::element_type;
    static_assert(kFloats<L> && kFloats<R>, "operands are float, half or bfloat in this test-bed");
    metal::TensorMultiply<L, R> x{metal::rows_of(left), metal::rows_of(right), kM, kN, kK};
    for (const long there : {x.left.k, x.right.k}) x.k = there < x.k ? there : x.k;
    const msl::TensorOperation what{{x.left.data, x.right.data},
                                    {x.left.rows, x.left.stride, x.right.rows, x.right.stride, x.k},
                                    static_cast<uint64_t>(kM) * kN * static_cast<uint64_t>(x.k)};
    msl_tensor_operation(Scope::count, &what, nullptr, nullptr, file, line, column);
    metal::tensor_multiply<kAccumulate>(x, to, file, line);
  }
};
}  // namespace tensor_ops
}  // namespace mpp
