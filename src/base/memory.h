// Memory from the host's allocator, or from the system if the host gave none.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"

namespace metal_marlin {

/// Plain functions, copied by value; the functions outlive every Block made from them.
struct Allocator {
  void* (*alloc)(void* user, size_t size, size_t align);
  void (*release)(void* user, void* p, size_t size);
  void* user;
  /// The system's own memory.
  static Allocator system();
};

/// Owns one aligned allocation and releases it through the allocator that made it, or shares memory
/// that another object owns. Movable.
class Block {
 public:
  static constexpr size_t kAlign = 64;
  Block() = default;
  /// Uninitialized memory of at least `size` bytes (rounded up to a multiple of 64). Size 0 gives
  /// an empty Block.
  static Result<Block> allocate(const Allocator& allocator, size_t size, size_t align = kAlign);
  /// Memory of `owner`, which lives as long as the Block. The Block only reads it.
  static Block borrow(std::shared_ptr<const void> owner, const std::byte* data, size_t size);
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    Block tmp(std::move(other));
    swap(tmp);
    return *this;
  }
  ~Block();
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

 private:
  void swap(Block& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    std::swap(allocator_, o.allocator_);
  }
  void* data_ = nullptr;
  size_t size_ = 0;
  Allocator allocator_{};
};

}  // namespace metal_marlin
