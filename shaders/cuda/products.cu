// The product kernels of one kind of codes and one kind of activations. The build compiles this
// file once for each pair (cmake/embed_kernels.cmake): MARLIN_CODES is a kind of codes of
// ../common/arguments.h, MARLIN_ACTIVATION is f32, f16, bf16, i8 or e4m3. With MARLIN_ROUNDS, the
// kernels are those that round weights to 16 bits. Those of E4M3 activations are tiles alone.
#include "expand.cuh"
#include "gemm.cuh"
#include "gemv.cuh"
#include "hopper_gemm.cuh"
#include "ring.cuh"

typedef Fp4 Codes_fp4;
typedef U4 Codes_u4;
typedef I8 Codes_i8;
typedef Sparse<Fp4> Codes_fp4_sparse;
typedef Sparse<U4> Codes_u4_sparse;
typedef U8 Codes_u8;
typedef E4m3 Codes_e4m3;
typedef Lut4 Codes_lut4;
typedef Floats32 Codes_f32;
typedef Floats16<F16> Codes_f16;
typedef Floats16<Bf16> Codes_bf16;
typedef ActivationF32 Activation_f32;
typedef ActivationF16 Activation_f16;
typedef ActivationBf16 Activation_bf16;
typedef ActivationI8 Activation_i8;
typedef ActivationE4m3 Activation_e4m3;

#define MARLIN_PASTE_(a, b) a##b
#define MARLIN_PASTE(a, b) MARLIN_PASTE_(a, b)
#define MARLIN_NAME_(family, codes, activation, suffix) family##_##codes##_##activation##_##suffix
#define MARLIN_NAME(family, codes, activation, suffix) \
  MARLIN_NAME_(family, codes, activation, suffix)
#define MARLIN_KERNEL_OF(family, suffix, threads, blocks)       \
  extern "C" __global__ void __launch_bounds__(threads, blocks) \
      MARLIN_NAME(family, MARLIN_CODES, MARLIN_ACTIVATION,      \
                  suffix)(const __grid_constant__ CudaParameters parameters)
#define MARLIN_KERNEL(family, suffix, blocks) MARLIN_KERNEL_OF(family, suffix, 256, blocks)

typedef MARLIN_PASTE(Codes_, MARLIN_CODES) Codes;
typedef MARLIN_PASTE(Activation_, MARLIN_ACTIVATION) GivenActivation;

/// How kernels read A: float16 numbers as bfloat16 pieces, if the weights are such pieces.
template <class Codes, class Given>
struct ActivationOf {
  typedef Given Type;
};
template <class Codes>
  requires(Codes::kReal)
struct ActivationOf<Codes, ActivationF16> {
  typedef ActivationF16Pieces Type;
};
template <>
struct ActivationOf<Codes_f16, ActivationF16> {
  typedef ActivationF16 Type;
};
typedef ActivationOf<Codes, GivenActivation>::Type Activation;

__device__ inline int group_y(const CudaParameters& parameters) {
  return int(Launch{parameters}.group_y());
}

/// Rows of A, as many tiles of 8 TILES rows as it takes.
template <int ROWS, int TILES, class Form>
__device__ inline void gemv_rows(const CudaParameters& parameters) {
  UNROLL for (int row = 0; row < ROWS; row += 8 * TILES) {
    if (row > 0) __syncthreads();  // the sums of the last tile were read
    gemv<Codes, Activation, TILES, Form>(parameters, ROWS, row);
  }
}
template <int ROWS, int TILES, class Form>
__device__ inline void gemm_rows(const CudaParameters& parameters) {
#pragma unroll 1
  for (int row = 0; row < ROWS; row += 16 * TILES) {
    if (row > 0) __syncthreads();  // the activations of the last tile were read
    gemm<Codes, Activation, TILES, Form>(parameters, ROWS, row);
  }
}

/// Tiles of eight rows at once, as far as registers go with weights of any form.
constexpr bool kWide = Activation::kPieces > 1 || Codes::kWords > 1 || Codes::kReal;
[[maybe_unused]] constexpr int kMostTiles = kWide ? 2 : 4;

/// The weights that the general kernels take: those that can have zeros with any, and floats with
/// the scale 1 of a row.
template <class Codes>
struct GeneralForm {
  typedef Form<-1, Codes::kReal || !Codes::kIntegers ? int(kZeroNone) : -1, -1> Type;
};
template <class Codes>
  requires(Codes::kWords > 2)
struct GeneralForm<Codes> {
  typedef Form<kScaleF32, kZeroNone, kLongGroupShift> Type;
};
typedef GeneralForm<Codes>::Type General;

#if !defined(MARLIN_ROUNDS) && !defined(MARLIN_TILES_ALONE)
MARLIN_KERNEL(gemv, m8, 1) { gemv_rows<8, 1, General>(parameters); }
MARLIN_KERNEL(gemv, m16, 1) { gemv_rows<16, kWide ? 1 : 2, General>(parameters); }
MARLIN_KERNEL(gemm, m32_n128, 1) { gemm_rows<32, 2, General>(parameters); }
MARLIN_KERNEL(gemm, m64_n128, 1) { gemm_rows<64, kMostTiles, General>(parameters); }

// Weights as floats of 16 bits, unless they are such floats already.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Codes, class Given, class Form>
__device__ inline void expand_for(const CudaParameters& parameters) {
  if constexpr (sizeof(typename Given::Stored) == sizeof(u16) && !Codes::kSparse) {
    constexpr bool kSame = [] {
      if constexpr (Codes::kWords == 4) return Codes::template kPieces<typename Given::Number> == 1;
      return false;
    }();
    if constexpr (!kSame) expand<Codes, Activation, typename Given::Number, Form>(parameters);
  }
}
/// Blocks of a multiprocessor, whose registers they share.
constexpr int kExpandBlocks = Codes::kWords == 1 ? 3 : (Codes::kWords == 8 ? 1 : 2);
MARLIN_KERNEL(expand, n32, kExpandBlocks) {
  expand_for<Codes, GivenActivation, General>(parameters);
}
#endif
#endif

/// Blocks of a multiprocessor, whose registers they share. Code for other processors than Hopper
/// takes a few more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MARLIN_GEMM_BLOCKS 2
#else
#define MARLIN_GEMM_BLOCKS 1
#endif

/// The same with weights of a form.
[[maybe_unused]] constexpr int kMostTilesOfForm = Codes::kWords > 1 || Codes::kReal ? 2 : 4;

// The kernels of a form (../common/cuda_parameters.h).
#define MARLIN_FORM(scale, zero, shift, tiles)                                    \
  MARLIN_KERNEL(gemv, m8_s##scale##z##zero##g##shift, 2) {                        \
    gemv_rows<8, 1, Form<scale, zero, shift>>(parameters);                        \
  }                                                                               \
  MARLIN_KERNEL(gemv, m16_s##scale##z##zero##g##shift, 1) {                       \
    gemv_rows<16, 2, Form<scale, zero, shift>>(parameters);                       \
  }                                                                               \
  MARLIN_KERNEL(gemm, m32_n128_s##scale##z##zero##g##shift, 2) {                  \
    gemm_rows<32, 2, Form<scale, zero, shift>>(parameters);                       \
  }                                                                               \
  MARLIN_KERNEL(gemm, m64_n128_s##scale##z##zero##g##shift, MARLIN_GEMM_BLOCKS) { \
    gemm_rows<64, kMostTilesOfForm, Form<scale, zero, shift>>(parameters);        \
  }

#ifdef MARLIN_HAS_FORMS
#define MARLIN_FORMS MARLIN_PASTE(MARLIN_FORMS_, MARLIN_CODES)
#ifndef MARLIN_ROUNDS
MARLIN_FORMS(MARLIN_FORM)
#endif

// The kernels of a form for Hopper alone. Their shared memory is what the launch gives. They read A
// as it is: they have no weights that are pieces.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MARLIN_RING_KERNEL(family, scale, zero, shift)                           \
  MARLIN_KERNEL_OF(family, m8_s##scale##z##zero##g##shift, 32 * kRingWarps, 1) { \
    ring<Codes, GivenActivation, Form<scale, zero, shift>, false>(               \
        parameters, group_y(parameters) * kRingRows, kRingSharedBytes);          \
  }
#define MARLIN_RING_KERNELS(scale, zero, shift)                                                    \
  MARLIN_RING_KERNEL(ring, scale, zero, shift)                                                     \
  MARLIN_KERNEL_OF(ring, m8_s##scale##z##zero##g##shift##e, 32 * kRingWarps, 1) {                  \
    ring<Codes, GivenActivation, Form<scale, zero, shift>, true>(parameters, 0, kRingSharedBytes); \
  }
#define MARLIN_TILE_KERNEL(family, rows, columns, wgmma, rounds, scale, zero, shift)             \
  extern "C" __global__ void __cluster_dims__(tile_cluster_of(rows), 1, 1) __launch_bounds__(    \
      tile_threads_of(rows), 1) MARLIN_NAME(family, MARLIN_CODES, MARLIN_ACTIVATION,             \
                                            m##rows##_n##columns##_s##scale##z##zero##g##shift)( \
      const __grid_constant__ CudaParameters parameters) {                                       \
    hopper_gemm<Codes, GivenActivation, Form<scale, zero, shift>, rows, wgmma, rounds>(          \
        parameters);                                                                             \
  }
#define MARLIN_MMA_TILES(family, rounds, scale, zero, shift)             \
  MARLIN_TILE_KERNEL(family, 16, 128, false, rounds, scale, zero, shift) \
  MARLIN_TILE_KERNEL(family, 32, 128, false, rounds, scale, zero, shift)
#define MARLIN_WGMMA_TILES(family, rounds, scale, zero, shift)           \
  MARLIN_TILE_KERNEL(family, 64, 256, true, rounds, scale, zero, shift)  \
  MARLIN_TILE_KERNEL(family, 96, 256, true, rounds, scale, zero, shift)  \
  MARLIN_TILE_KERNEL(family, 128, 256, true, rounds, scale, zero, shift) \
  MARLIN_TILE_KERNEL(family, 192, 256, true, rounds, scale, zero, shift) \
  MARLIN_TILE_KERNEL(family, 256, 256, true, rounds, scale, zero, shift)
#define MARLIN_TILES_none(...) MARLIN_RING_KERNELS(__VA_ARGS__)
#define MARLIN_TILES_mma(...) \
  MARLIN_TILES_none(__VA_ARGS__) MARLIN_MMA_TILES(mma, false, __VA_ARGS__)
#define MARLIN_TILES_wgmma(...) \
  MARLIN_TILES_mma(__VA_ARGS__) MARLIN_WGMMA_TILES(wgmma, false, __VA_ARGS__)
#define MARLIN_TILES_rounded(...)
#ifdef MARLIN_ROUNDS
#define MARLIN_ROUNDING_RING_none(...)
#define MARLIN_ROUNDING_RING_mma(...)
#define MARLIN_ROUNDING_RING_wgmma(...)
#define MARLIN_ROUNDING_RING_rounded(...) MARLIN_RING_KERNEL(ring_w16, __VA_ARGS__)
#define MARLIN_HOPPER_FORM(scale, zero, shift, tiles)                \
  MARLIN_ROUNDING_RING_##tiles(scale, zero, shift) MARLIN_MMA_TILES( \
      mma_w16, true, scale, zero, shift) MARLIN_WGMMA_TILES(wgmma_w16, true, scale, zero, shift)
#else
#define MARLIN_HOPPER_FORM(scale, zero, shift, tiles)                         \
  MARLIN_KERNEL(expand, n32_s##scale##z##zero##g##shift, kExpandBlocks) {     \
    expand_for<Codes, GivenActivation, Form<scale, zero, shift>>(parameters); \
  }                                                                           \
  MARLIN_TILES_##tiles(scale, zero, shift)
#endif
MARLIN_FORMS(MARLIN_HOPPER_FORM)
#endif
#endif

#if defined(MARLIN_HAS_BYTE_TILES) && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define MARLIN_BYTE_TILE(rows, scale, zero, shift)                                             \
  extern "C" __global__ void __cluster_dims__(tile_cluster_of(rows), 1, 1)                     \
      __launch_bounds__(tile_threads_of(rows), 1) MARLIN_NAME(                                 \
          wgmma, MARLIN_CODES, MARLIN_ACTIVATION, m##rows##_n256_s##scale##z##zero##g##shift)( \
          const __grid_constant__ CudaParameters parameters) {                                 \
    hopper_bytes<Codes, GivenActivation, Form<scale, zero, shift>, rows>(parameters);          \
  }
// Sums of groups leave E4M3 no registers for 256 rows.
#ifdef MARLIN_TILES_ALONE
#define MARLIN_MOST_BYTE_ROWS(...)
#else
#define MARLIN_MOST_BYTE_ROWS(...) MARLIN_BYTE_TILE(256, __VA_ARGS__)
#endif
#define MARLIN_BYTE_TILES(scale, zero, shift, tiles) \
  MARLIN_BYTE_TILE(64, scale, zero, shift)           \
  MARLIN_BYTE_TILE(128, scale, zero, shift)          \
  MARLIN_MOST_BYTE_ROWS(scale, zero, shift)
MARLIN_PASTE(MARLIN_BYTE_FORMS_, MARLIN_CODES)(MARLIN_BYTE_TILES)
#endif
