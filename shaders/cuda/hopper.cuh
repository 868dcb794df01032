// Instructions of Hopper: barriers in shared memory, bulk copies, and launches that overlap.
#pragma once
#include "numbers.cuh"

__device__ inline u32 shared_address(const void* at) { return u32(__cvta_generic_to_shared(at)); }

__device__ inline void init_barrier(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
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

/// Lets the stream's next kernel start. It waits itself before it touches what this one writes.
__device__ inline void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
/// Waits until the kernels before have ended. Only weights may be read sooner.
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
