// Anonymous memory from the kernel, zero and only real once touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace metal_on_cpu {

constexpr size_t kPage = 4096;
constexpr size_t to_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

class Mapping {
 public:
  Mapping() = default;
  /// `reserve_only`: addresses without access rights.
  explicit Mapping(size_t bytes, bool reserve_only = false);
  Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  /// Makes pages of a reservation usable, or guards.
  bool allow(size_t offset, size_t bytes) const;
  bool forbid(size_t offset, size_t bytes) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Memory between two stretches of addresses without rights. They are so long that an index of 32 bits that runs away from here
/// faults, and touches nothing of the host.
class Guarded {
 public:
  Guarded() = default;
  explicit Guarded(size_t bytes);

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  /// Whether the address is here or in the stretches around.
  bool reaches(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(all_.data()) < all_.size(); }
  bool forbid(size_t offset, size_t bytes) const { return all_.forbid(kGuard + offset, bytes); }

 private:
  static constexpr size_t kGuard = size_t{1} << 35;
  Mapping all_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace metal_on_cpu
