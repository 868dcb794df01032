// Bodies of the air.* functions that concern other lanes or memory: the source route's own functions, under AIR's names (dots
// become underscores), with operands and result in memory. Compiled to bitcode and linked into every converted module.
#include <msl/prelude.h>

#define AIR_BODY extern "C" __attribute__((always_inline))
#define AIR_SITE const char *file, unsigned line, unsigned column

using metal::ulong2;

// --- barriers and votes ---------------------------------------------------------------------------------------------------

AIR_BODY void air_wg_barrier(const uint* flags, const uint* /*scope*/, AIR_SITE) {
  metal::threadgroup_barrier(static_cast<metal::mem_flags>(*flags), file, line, column);
}
AIR_BODY void air_simdgroup_barrier(const uint* flags, const uint* /*scope*/, AIR_SITE) {
  metal::simdgroup_barrier(static_cast<metal::mem_flags>(*flags), file, line, column);
}
AIR_BODY void air_simd_all(bool* result, const bool* x, AIR_SITE) { *result = metal::simd_all(*x, file, line, column); }
AIR_BODY void air_simd_any(bool* result, const bool* x, AIR_SITE) { *result = metal::simd_any(*x, file, line, column); }

// --- reductions and prefixes ----------------------------------------------------------------------------------------------

#define AIR_UNARY(function, suffix, T)                                       \
  AIR_BODY void air_##function##_##suffix(T* result, const T* x, AIR_SITE) { \
    *result = metal::function(*x, file, line, column);                       \
  }
#define AIR_REDUCTIONS(suffix, T)                     \
  AIR_UNARY(simd_sum, suffix, T)                      \
  AIR_UNARY(simd_product, suffix, T)                  \
  AIR_UNARY(simd_max, suffix, T)                      \
  AIR_UNARY(simd_min, suffix, T)                      \
  AIR_UNARY(quad_sum, suffix, T)                      \
  AIR_UNARY(quad_product, suffix, T)                  \
  AIR_UNARY(quad_max, suffix, T)                      \
  AIR_UNARY(quad_min, suffix, T)                      \
  AIR_UNARY(simd_prefix_inclusive_sum, suffix, T)     \
  AIR_UNARY(simd_prefix_exclusive_sum, suffix, T)     \
  AIR_UNARY(simd_prefix_inclusive_product, suffix, T) \
  AIR_UNARY(simd_prefix_exclusive_product, suffix, T)
AIR_REDUCTIONS(f32, float)
AIR_REDUCTIONS(f16, half)
AIR_REDUCTIONS(s_i8, signed char)
AIR_REDUCTIONS(u_i8, uchar)
AIR_REDUCTIONS(s_i16, short)
AIR_REDUCTIONS(u_i16, ushort)
AIR_REDUCTIONS(s_i32, int)
AIR_REDUCTIONS(u_i32, uint)

// --- shuffles -------------------------------------------------------------------------------------------------------------

#define AIR_SHUFFLE(function, suffix, T)                                                          \
  AIR_BODY void air_##function##_##suffix(T* result, const T* x, const ushort* index, AIR_SITE) { \
    *result = metal::function(*x, *index, file, line, column);                                    \
  }
#define AIR_FILL(function, suffix, T)                                                                                         \
  AIR_BODY void air_##function##_##suffix(T* result, const T* x, const T* filling, const ushort* delta, const ushort* modulo, \
                                          AIR_SITE) {                                                                         \
    *result = metal::function(*x, *filling, *delta, *modulo, file, line, column);                                             \
  }
#define AIR_SHUFFLES(suffix, T)                    \
  AIR_SHUFFLE(simd_shuffle, suffix, T)             \
  AIR_SHUFFLE(simd_broadcast, suffix, T)           \
  AIR_SHUFFLE(simd_shuffle_xor, suffix, T)         \
  AIR_SHUFFLE(simd_shuffle_down, suffix, T)        \
  AIR_SHUFFLE(simd_shuffle_up, suffix, T)          \
  AIR_SHUFFLE(simd_shuffle_rotate_down, suffix, T) \
  AIR_SHUFFLE(simd_shuffle_rotate_up, suffix, T)   \
  AIR_SHUFFLE(quad_shuffle, suffix, T)             \
  AIR_SHUFFLE(quad_broadcast, suffix, T)           \
  AIR_SHUFFLE(quad_shuffle_xor, suffix, T)         \
  AIR_SHUFFLE(quad_shuffle_down, suffix, T)        \
  AIR_SHUFFLE(quad_shuffle_up, suffix, T)          \
  AIR_FILL(simd_shuffle_and_fill_down, suffix, T)  \
  AIR_FILL(simd_shuffle_and_fill_up, suffix, T)
AIR_SHUFFLES(f32, float)
AIR_SHUFFLES(f16, half)
AIR_SHUFFLES(s_i8, signed char)
AIR_SHUFFLES(u_i8, uchar)
AIR_SHUFFLES(s_i16, short)
AIR_SHUFFLES(u_i16, ushort)
AIR_SHUFFLES(s_i32, int)
AIR_SHUFFLES(u_i32, uint)
AIR_SHUFFLES(u_v2i32, ulong)  // two words, moved as one

// --- simdgroup matrices ---------------------------------------------------------------------------------------------------

#define AIR_MULTIPLY(d, D, a, A, b, B, c, C)                                                                                 \
  AIR_BODY void air_simdgroup_matrix_8x8_multiply_accumulate_v64##d##_v64##a##_v64##b##_v64##c(                              \
      metal::simdgroup_matrix<D, 8>* result, const metal::simdgroup_matrix<A, 8>* x, const metal::simdgroup_matrix<B, 8>* y, \
      const metal::simdgroup_matrix<C, 8>* z, AIR_SITE) {                                                                    \
    metal::simdgroup_multiply_accumulate(*result, *x, *y, *z, file, line, column);                                           \
  }
AIR_MULTIPLY(f32, float, f32, float, f32, float, f32, float)
AIR_MULTIPLY(f32, float, f16, half, f16, half, f32, float)
AIR_MULTIPLY(f32, float, bf16, bfloat, bf16, bfloat, f32, float)
AIR_MULTIPLY(f32, float, f32, float, f16, half, f32, float)
AIR_MULTIPLY(f32, float, f32, float, bf16, bfloat, f32, float)

#define AIR_MATRIX(space, suffix, T)                                                                                           \
  AIR_BODY void air_simdgroup_matrix_8x8_load_v64##suffix##_p##space##suffix(                                                  \
      metal::simdgroup_matrix<T, 8>* result, T* const* from, const ulong* stride, const ulong* origin, const bool* transposed, \
      AIR_SITE) {                                                                                                              \
    metal::simdgroup_load(*result, *from, *stride, ulong2(origin[0], origin[1]), *transposed, file, line, column);             \
  }                                                                                                                            \
  AIR_BODY void air_simdgroup_matrix_8x8_store_v64##suffix##_p##space##suffix(                                                 \
      const metal::simdgroup_matrix<T, 8>* x, T* const* to, const ulong* stride, const ulong* origin, const bool* transposed,  \
      AIR_SITE) {                                                                                                              \
    metal::simdgroup_store(*x, *to, *stride, ulong2(origin[0], origin[1]), *transposed, file, line, column);                   \
  }
#define AIR_MATRICES(suffix, T)                                                                                                \
  AIR_MATRIX(1, suffix, T)                                                                                                     \
  AIR_MATRIX(3, suffix, T)                                                                                                     \
  AIR_BODY void air_simdgroup_matrix_8x8_init_filled_v64##suffix##_##suffix(metal::simdgroup_matrix<T, 8>* result, const T* x, \
                                                                            AIR_SITE) {                                        \
    (void)file, (void)line, (void)column;                                                                                      \
    *result = metal::make_filled_simdgroup_matrix<T, 8, 8>(*x);                                                                \
  }
AIR_MATRICES(f32, float)
AIR_MATRICES(f16, half)

// --- atomics --------------------------------------------------------------------------------------------------------------

// order, scope and whether the access is volatile: always relaxed, the device's, true.
AIR_BODY void air_atomic_global_add_f32(float* result, metal::atomic<float>* const* at, const float* x, const uint*,
                                        const uint*, const bool*, AIR_SITE) {
  *result = metal::atomic_fetch_add_explicit(*at, *x, metal::memory_order_relaxed, file, line, column);
}

// --- fused multiply-add of types that the host has no instruction for -------------------------------------------------------

AIR_BODY void air_fma_f16(half* result, const half* x, const half* y, const half* z) { *result = metal::fma(*x, *y, *z); }
AIR_BODY void air_fma_bf16(bfloat* result, const bfloat* x, const bfloat* y, const bfloat* z) {
  *result = metal::fma(*x, *y, *z);
}
