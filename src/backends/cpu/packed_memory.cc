#include "backends/cpu/packed_memory.h"

#include <atomic>
#include <cstdint>
#include <new>

#include "base/checked.h"
#include "base/system.h"

namespace metal_marlin::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
/// Blocks of at least this size have memory of their own. The unused end of their last huge page
/// adds at most half of their size.
constexpr size_t kLarge = 2 * kHugePage;

// The sanitizers must know the end of a block.
#if defined(__SANITIZE_ADDRESS__)
#define MARLIN_SHARES_SLABS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MARLIN_SHARES_SLABS 0
#endif
#endif
#if !defined(MARLIN_SHARES_SLABS)
#define MARLIN_SHARES_SLABS 1
#endif

constexpr bool in_slab(size_t size) {
  return MARLIN_SHARES_SLABS && system::kHasHugePages && size < kLarge;
}

void* huge_pages(size_t size, size_t align) {
  const auto whole = Checked(size).round_up(align).at_most(PTRDIFF_MAX);
  if (!whole) return nullptr;
  void* const p = system::allocate(*whole, align);
  if (p != nullptr) system::prefer_huge_pages(p, *whole);
  return p;
}

/// Blocks of scratch of at least this size get huge pages.
constexpr size_t kLargeScratch = kHugePage / 4;

}  // namespace

Allocator scratch_memory() {
  return {[](void*, size_t size, size_t align) {
            return system::kHasHugePages && size >= kLargeScratch ? huge_pages(size, kHugePage)
                                                                  : system::allocate(size, align);
          },
          [](void*, void* p, size_t) { system::release(p); }, nullptr};
}

/// A slab lies at the beginning of its memory and is aligned to its size, so that the slab of a
/// block follows from the block's address.
struct PackedMemory::Slab {
  static constexpr size_t kSize = 4 * kLarge;
  std::atomic<size_t> users = 1;  // blocks, and the PackedMemory that takes from it
  size_t used = Block::kAlign;
};

void PackedMemory::drop(Slab* slab) {
  static_assert(sizeof(Slab) <= Block::kAlign);
  if (slab->users.fetch_sub(1, std::memory_order_acq_rel) == 1) system::release(slab);
}

PackedMemory::~PackedMemory() {
  if (slab_ != nullptr) drop(slab_);
}

void* PackedMemory::allocate(void* self, size_t size, size_t align) {
  if (system::kHasHugePages && size >= kLarge) return huge_pages(size, kHugePage);
  if (!in_slab(size)) return system::allocate(size, align);
  auto& memory = *static_cast<PackedMemory*>(self);
  const std::lock_guard lock(memory.mutex_);
  if (memory.slab_ == nullptr || memory.slab_->used + size > Slab::kSize) {
    void* const p = huge_pages(Slab::kSize, Slab::kSize);
    if (p == nullptr) return nullptr;
    if (memory.slab_ != nullptr) drop(memory.slab_);
    memory.slab_ = new (p) Slab;
  }
  std::byte* const p = reinterpret_cast<std::byte*>(memory.slab_) + memory.slab_->used;
  memory.slab_->used += size;  // sizes are multiples of the alignment
  memory.slab_->users.fetch_add(1, std::memory_order_relaxed);
  return p;
}

void PackedMemory::release(void*, void* p, size_t size) {
  if (!in_slab(size)) return system::release(p);
  system::discard_pages(p, size);
  drop(reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(p) / Slab::kSize * Slab::kSize));
}

}  // namespace metal_marlin::cpu
