// Memory of packed weights.
#pragma once

#include <mutex>

#include "base/memory.h"

namespace metal_marlin::cpu {

/// Huge pages for weights, which every product reads from end to end: they spare most misses of the
/// address translation, at which even prefetches wait. A model of small layers needs them as much
/// as one of large ones (docs/decisions/0001), so small blocks share slabs of them. Pages are real
/// only once written: the first small block costs 2 MiB, and the pages of a block that is freed go
/// back, though its slab stays until all of its blocks are.
class PackedMemory {
 public:
  PackedMemory() = default;
  PackedMemory(const PackedMemory&) = delete;
  PackedMemory& operator=(const PackedMemory&) = delete;
  ~PackedMemory();

  /// For any thread, as long as this lives; blocks may outlive it.
  Allocator allocator() { return {allocate, release, this}; }

 private:
  struct Slab;
  static void* allocate(void* self, size_t size, size_t align);
  static void release(void* self, void* p, size_t size);
  static void drop(Slab* slab);

  std::mutex mutex_;
  Slab* slab_ = nullptr;  // where small blocks come from at present
};

}  // namespace metal_marlin::cpu
