// Instructions of Hopper: barriers in shared memory, and bulk copies.
#pragma once
#include "numbers.cuh"

/// 0, of which the compiler knows nothing: what depends on it is computed where it is used, and
/// takes no register meanwhile.
__device__ inline int unknown_zero() {
  int zero = 0;
  asm volatile("" : "+r"(zero));
  return zero;
}

__device__ inline u32 shared_address(const void* at) { return u32(__cvta_generic_to_shared(at)); }

/// Reads of shared memory by its address, which takes one register.
__device__ inline void load_shared(u32 from, uint4& to) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "r"(from)
               : "memory");
}
__device__ inline void load_shared(u32 from, u32& to) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to) : "r"(from) : "memory");
}
__device__ inline void load_shared(u32 from, u32& low, u32& high) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(from) : "memory");
}
/// Reads four matrices of 8 x 8 numbers of 16 bits. Lane 8 i + r has the address of row r of matrix
/// i, and gets the numbers 2 (lane % 4) and the next of row lane / 4 of each.
__device__ inline void load_matrices(u32 row, u32& first, u32& second, u32& third, u32& fourth) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(first), "=r"(second), "=r"(third), "=r"(fourth)
               : "r"(row)
               : "memory");
}
/// Reads 16 bits.
__device__ inline void load_shared_half(u32 from, u32& to) {
  asm volatile("{\n.reg .u16 half;\nld.shared.u16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
               : "=r"(to)
               : "r"(from)
               : "memory");
}

__device__ inline void init_barrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Ends a barrier's life, so that its memory may be used for something else.
__device__ inline void end_barrier(u32 barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
/// Makes initialized barriers visible to copies.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Arrives, and lets the phase wait for so many copied bytes.
__device__ inline void arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void wait_for_phase(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra DONE;\nbra WAIT;\nDONE:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Copies the first `bytes` of 16 to shared memory, and 0 for the others; both addresses are
/// multiples of 16.
__device__ inline void copy_piece(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
/// Lets the phase wait for all pieces that this thread copies, beside its arrivals.
__device__ inline void await_pieces(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Copies `bytes`, a multiple of 16, to shared memory; both addresses are multiples of 16.
__device__ inline void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
__device__ inline void prefetch_tensor_map(const void* tensor) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(tensor) : "memory");
}
/// Copies a box of the tensor, whose first column and row are given.
__device__ inline void copy_box(u32 to, const void* tensor, int column, int row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(to),
      "l"(tensor), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
/// The same to the same place of each block of a cluster of two, whose barriers each get the bytes.
__device__ inline void copy_box_to_pair(u32 to, const void* tensor, int column, int row,
                                        u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(tensor), "r"(column), "r"(row), "r"(barrier), "h"(u16(3))
      : "memory");
}

/// The block's place in its cluster.
__device__ inline u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Arrives at the barrier of block `rank` of the cluster.
__device__ inline void arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
/// Waits for all threads of the cluster.
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
