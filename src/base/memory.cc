#include "base/memory.h"

#include "base/checked.h"
#include "base/system.h"

namespace metal_marlin {

Allocator Allocator::system() {
  return {[](void*, size_t size, size_t align) { return system::allocate(size, align); },
          [](void*, void* p, size_t) { system::release(p); }, nullptr};
}

Result<Block> Block::allocate(const Allocator& allocator, size_t size, size_t align) {
  Block b;
  if (size == 0) return b;
  const size_t rounded = Checked(size).round_up(align).at_most(PTRDIFF_MAX).value_or(0);
  void* p = rounded != 0 ? allocator.alloc(allocator.user, rounded, align) : nullptr;
  if (p == nullptr) return Status::error(MARLIN_E_MEMORY, "could not allocate %zu bytes", size);
  if (reinterpret_cast<uintptr_t>(p) % align != 0) {
    allocator.release(allocator.user, p, rounded);
    return Status::error(MARLIN_E_ARGUMENT,
                         "the host's alloc returned %p, expected a multiple of %zu", p, align);
  }
  b.data_ = p;
  b.size_ = rounded;
  b.allocator_ = allocator;
  return b;
}

Block Block::borrow(std::shared_ptr<const void> owner, const std::byte* data, size_t size) {
  using Owner = std::shared_ptr<const void>;
  Block b;
  b.allocator_ = {nullptr, [](void* user, void*, size_t) { delete static_cast<Owner*>(user); },
                  new Owner(std::move(owner))};
  b.data_ = const_cast<std::byte*>(data);
  b.size_ = size;
  return b;
}

Block::~Block() {
  if (data_ != nullptr) allocator_.release(allocator_.user, data_, size_);
}

}  // namespace metal_marlin
