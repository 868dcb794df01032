// 2:4 weights of 32 slots as the sparse operand A of mma.sp.m16n8k32, and the slots that are not
// kept. ../common/layout.h has the layout.
#pragma once
#include "operand.cuh"

/// The product of the kept numbers of 16 rows of W and 32 slots: {a[0], a[1]} are those of the
/// first 16 slots and of the rows g and g + 8, {a[2], a[3]} those of the others. Their positions
/// are in the lanes 4 g + 2 UNIT and 4 g + 2 UNIT + 1.
#define MARLIN_MMA_SPARSE_UNIT(type, unit, d, a, b, positions)                                  \
  asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32." type "." type               \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;"            \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), \
        "r"(positions), "n"(unit))
template <int UNIT>
__device__ inline void mma_sparse_unit(F16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[4],
                                       u32 positions) {
  MARLIN_MMA_SPARSE_UNIT("f16", UNIT, d, a, b, positions);
}
template <int UNIT>
__device__ inline void mma_sparse_unit(Bf16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[4],
                                       u32 positions) {
  MARLIN_MMA_SPARSE_UNIT("bf16", UNIT, d, a, b, positions);
}
/// The same with unit 0 or 1 of a chunk of 64 slots.
template <class Number>
__device__ inline void mma_sparse(float (&d)[4], const u32 (&a)[4], const u32 (&b)[4],
                                  u32 positions, int unit) {
  if (unit == 0)
    mma_sparse_unit<0>(Number(), d, a, b, positions);
  else
    mma_sparse_unit<1>(Number(), d, a, b, positions);
}

/// Adds 0 times the slots of a chunk that are not kept, which is a NaN where A is infinite or a
/// NaN.
template <class Number>
__device__ inline void add_dropped_slots(float (&sum)[4], const u32 (&b)[2][4], u32 positions) {
  const u32 zeros[4] = {0, 0, 0, 0}, others = other_positions(positions);
  UNROLL for (int unit = 0; unit < 2; unit++) mma_sparse<Number>(sum, zeros, b[unit], others, unit);
}

/// Whether any of the numbers seen is infinite or a NaN.
template <class Number>
class FiniteCheck {
 public:
  __device__ void see(const uint4& x) {
    carries_ |= carries_of_ones<Number>(x.x) | carries_of_ones<Number>(x.y);
    carries_ |= carries_of_ones<Number>(x.z) | carries_of_ones<Number>(x.w);
  }
  __device__ bool fails() const { return (carries_ & 0x8000u * kHalves) != 0; }

 private:
  u32 carries_ = 0;
};
