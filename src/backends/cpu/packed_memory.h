// Memory of packed weights and of scratch.
#pragma once

#include <mutex>

#include "base/memory.h"

namespace metal_marlin::cpu {

/// Memory for prepared activations, which a product of many rows reads once for each panel: huge
/// pages if it is large. With pages of 4 KB, a product of 192 rows by AMX takes 1.6 times as long
/// on a virtual machine.
Allocator scratch_memory();

/// Huge pages for weights, which every product reads from end to end. They avoid most misses of the
/// address translation, for which even prefetches wait. A model of small layers needs them as much
/// as a model of large layers (docs/cpu.md), so small blocks share slabs of huge pages.
/// Pages take memory only when they are written: the first small block costs 2 MiB. The pages of a
/// freed block are returned, but its slab stays until all of its blocks are freed.
class PackedMemory {
 public:
  PackedMemory() = default;
  PackedMemory(const PackedMemory&) = delete;
  PackedMemory& operator=(const PackedMemory&) = delete;
  ~PackedMemory();

  /// Any thread may use the allocator as long as this object lives; blocks may outlive it.
  Allocator allocator() { return {allocate, release, this}; }

 private:
  struct Slab;
  static void* allocate(void* self, size_t size, size_t align);
  static void release(void* self, void* p, size_t size);
  static void drop(Slab* slab);

  std::mutex mutex_;
  Slab* slab_ = nullptr;  // the current source of small blocks
};

}  // namespace metal_marlin::cpu
