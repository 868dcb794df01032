// Parameters of a launch, and conversions between numbers. Inline PTX stands in for cuda_fp16.h, so
// that the compiler's own headers are all that a build needs.
#pragma once
#include "../common/cuda_parameters.h"

#define UNROLL _Pragma("unroll")

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/// The launch as kernels see it. Every constant is uniform over a grid.
struct Launch {
  const CudaParameters& p;

  template <class T>
  __device__ T* buffer(int index) const {
    return reinterpret_cast<T*>(p.buffers[index]);
  }
  __device__ u32 constant(int index) const { return p.constants[index]; }
  template <class T>
  __device__ const T& arguments() const {
    return *reinterpret_cast<const T*>(p.arguments);
  }
  __device__ u32 group_y() const { return blockIdx.y + p.first_row_of_groups; }
};

// Launches overlap from Hopper on: a kernel starts when all blocks of the one before have started
// and said so. (A host sees whether a kernel was compiled for it, and launches others in turn.)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define MARLIN_OVERLAPS(instruction) asm volatile(instruction ::: "memory")
#else
#define MARLIN_OVERLAPS(instruction)
#endif
/// Lets the stream's next kernel start. It waits itself before it touches what this one writes.
__device__ inline void let_next_start() { MARLIN_OVERLAPS("griddepcontrol.launch_dependents;"); }
/// Waits until the kernels before have ended. Only weights may be read sooner.
__device__ inline void wait_for_previous() { MARLIN_OVERLAPS("griddepcontrol.wait;"); }

/// A number that is uniform over a grid: FIXED, for which a kernel is compiled, or, if that is -1,
/// one that the launch gives.
template <int FIXED>
struct Uniform {
  u32 given;
  __device__ operator u32() const { return FIXED >= 0 ? u32(FIXED) : given; }
};

/// The weights that a kernel is compiled for: the constants of these names, or -1 for any. A
/// codebook means that there are no zeros.
template <int SCALE, int ZERO, int SHIFT>
struct Form {
  static constexpr int kScale = SCALE, kShift = SHIFT;
  static constexpr int kZero = ZERO == kZeroCodebook ? int(kZeroNone) : ZERO;
};
typedef Form<-1, -1, -1> AnyForm;

/// A number as a type.
template <int N>
struct Constant {
  static constexpr int value = N;
};

__device__ inline float f16_to_float(u16 bits) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
  return f;
}
__device__ inline float bf16_to_float(u16 bits) { return __uint_as_float(u32(bits) << 16); }
__device__ inline u16 float_to_f16(float f) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
}
__device__ inline u16 float_to_bf16(float f) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(f));
  return bits;
}

/// A number whose magnitude is at most 448, rounded to E4M3, to nearest even.
__device__ inline float e4m3_value(float x) {
  // Numbers below 2^-6 are multiples of 2^-9, others have four bits.
  constexpr u32 kExponent = 0x7F800000u, kLeast = (127 - 6) << 23, kBits = 3 << 23;
  const u32 unit = max(__float_as_uint(x) & kExponent, kLeast) - kBits;
  return rintf(x * __uint_as_float((254u << 23) - unit)) * __uint_as_float(unit);
}

/// Element `at` of memory of type MarlinFloat.
__device__ inline float read_float(const void* from, long long at, u32 type) {
  if (type == kFloat32) return static_cast<const float*>(from)[at];
  const u16 bits = static_cast<const u16*>(from)[at];
  return type == kFloat16 ? f16_to_float(bits) : bf16_to_float(bits);
}
__device__ inline void write_float(void* to, long long at, u32 type, float v) {
  if (type == kFloat32) {
    static_cast<float*>(to)[at] = v;
  } else {
    static_cast<u16*>(to)[at] = type == kFloat16 ? float_to_f16(v) : float_to_bf16(v);
  }
}

/// A float32 as the sum of two TF32 numbers, which have 11 bits; what is missing is at most one
/// unit in its last place. An infinity or NaN is the first of them alone.
struct Tf32Pair {
  float high, low;

  __device__ explicit Tf32Pair(float x) {
    const u32 bits = __float_as_uint(x);
    const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
    constexpr u32 kRest = 0x1FFF;
    const float rounded = __uint_as_float((bits + (kRest + 1) / 2) & ~kRest);
    high = finite ? rounded : x + x;  // of a NaN, one that has bits above the last 13
    low = finite ? x - rounded : 0.0f;
  }
};

/// 2^14 of the scale that the low byte stands for, less the row's factor. It is computed through
/// the exponent of a float, of which the byte is 112 more.
__device__ inline float e8m0_factor(u32 byte) {
  constexpr float kSmall = 1.0f / float(1ull << (kMmaExponent - kFp4Exponent) / 2);
  return __uint_as_float((byte << 23) & 0x7F800000u) * (kSmall * kSmall);
}
/// The value of an E5M3 byte (../common/layout.h). 0xFF, which stands for NaN, becomes finite; the
/// row factor contains the NaN.
__device__ inline float e5m3_value(u32 byte) {
  return __uint_as_float((byte << 20) + ((127 - kE5m3Zero) << 23));
}

/// Both halves of a register.
constexpr u32 kHalves = 0x00010001u;

/// What F16 and Bf16 take alike from the instructions of one type: a multiply_add of two pairs, the
/// rounding of two floats, and sums of products of an operand A and an operand B. mma_product adds
/// to nothing. The two registers of a sparse operand A (../common/layout.h) are the kept numbers of
/// the rows g and g + 8, and lane 4 g + STEP has the positions of each row.
#define MARLIN_INSTRUCTIONS_OF(type)                                                     \
  __device__ static u32 multiply_add(u32 a, u32 b, u32 c) {                              \
    u32 d;                                                                               \
    asm("fma.rn." type "x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));         \
    return d;                                                                            \
  }                                                                                      \
  __device__ static u32 round(float low, float high) {                                   \
    u32 d;                                                                               \
    asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));            \
    return d;                                                                            \
  }                                                                                      \
  __device__ static void mma(float(&d)[4], const u32(&a)[4], const u32(&b)[2]) {         \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                           \
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                     \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));             \
  }                                                                                      \
  __device__ static void mma_product(float(&d)[4], const u32(&a)[4], const u32(&b)[2]) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                           \
        ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"                 \
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                 \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));  \
  }                                                                                      \
  template <int STEP>                                                                    \
  __device__ static void mma_sparse(float(&d)[4], const u32(&a)[2], const u32(&b)[2],    \
                                    u32 positions) {                                     \
    asm("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32." type "." type      \
        ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, {%0,%1,%2,%3}, %8, %9;"                   \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                 \
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(positions), "n"(STEP));        \
  }

/// Two 16-bit numbers in a register: the arithmetic that decoding needs, all of it exact.
struct F16 {
  /// A number whose last bits are a code c: 2^10 + c.
  static constexpr u32 kMagic = 0x64006400u;
  static constexpr u32 kOne = 0x3C003C00u;
  MARLIN_INSTRUCTIONS_OF("f16")
  __device__ static u32 subtract(u32 a, u32 b) {
    u32 d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  __device__ static u32 multiply(u32 a, u32 b) {
    u32 d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
  __device__ static float low(u32 both) { return f16_to_float(u16(both)); }
  __device__ static float high(u32 both) { return f16_to_float(u16(both >> 16)); }
};
struct Bf16 {
  /// 2^-14 (2^7 + c). Sums of codes times activations as large as bfloat16 has must not overflow
  /// before the scale, so that all codes are decoded as 2^-14 of their value.
  static constexpr u32 kMagic = 0x3C003C00u;
  static constexpr u32 kOne = 0x38803880u;  // 2^-14
  MARLIN_INSTRUCTIONS_OF("bf16")
  __device__ static u32 subtract(u32 a, u32 b) {
    return multiply_add(a, 0x3F803F80u, b ^ 0x80008000u);
  }
  __device__ static u32 multiply(u32 a, u32 b) { return multiply_add(a, b, 0x80008000u); }
  __device__ static float low(u32 both) { return __uint_as_float(both << 16); }
  __device__ static float high(u32 both) { return __uint_as_float(both & 0xFFFF0000u); }
};

/// A float32 as the sum of three bfloat16, exactly: each takes the eight leading bits of what is
/// left. An infinity or NaN is the first of them alone. (Subnormal remainders lose bits that lie
/// below 2^-133.)
struct Bf16Pieces {
  static constexpr int kCount = 3;
  u32 piece[kCount];

  __device__ explicit Bf16Pieces(float x) {
    const u32 bits = __float_as_uint(x);
    const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
    piece[0] = finite || (bits & 0x007FFFFFu) == 0 ? bits >> 16 : 0x7FC0u;
    const float second = finite ? x - __uint_as_float(bits & 0xFFFF0000u) : 0.0f;
    piece[1] = __float_as_uint(second) >> 16;
    const float third = second - __uint_as_float(__float_as_uint(second) & 0xFFFF0000u);
    piece[2] = __float_as_uint(third) >> 16;
  }
};

/// An exponent field of ones carries to the bit above, where the sign was.
template <class Number>
__device__ inline u32 carries_of_ones(u32 both) {
  constexpr u32 kLowest = (Number::kMagic == Bf16::kMagic ? 0x0080u : 0x0400u) * kHalves;
  return (both & (0x8000u * kHalves - kLowest)) + kLowest;
}

/// Two bfloat16 numbers. Infinities and NaN become 0.
__device__ inline u32 finite_halves(u32 both) {
  return both & ~((carries_of_ones<Bf16>(both) >> 15 & kHalves) * 0xFFFFu);
}
