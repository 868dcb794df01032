// The common parts of all handles. A tag in the first bytes makes NULL, another kind of handle and
// (while its memory is known to live) a destroyed handle errors instead of crashes. A count keeps a
// context alive while it has children.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace metal_marlin::api {

/// Odd, unlikely values: the first bytes of other objects (a pointer, a size or a float) do not
/// have them.
enum class HandleKind : uint32_t {
  none = 0,  ///< of a pointer to something else
  context = 0x6d6c0c11,
  stream = 0x6d6c0c23,
  buffer = 0x6d6c0c35,
  weights = 0x6d6c0c47,
  checkpoint = 0x6d6c0c59,
  destroyed = 0x6d6c0cdd,
};

/// The first base of every handle, at offset 0.
class Handle {
 public:
  explicit Handle(HandleKind kind) : kind_(kind) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { kind_.store(HandleKind::destroyed, std::memory_order_relaxed); }

  HandleKind kind() const noexcept { return kind_.load(std::memory_order_relaxed); }
  /// Marks the handle as destroyed. Returns false if it already was, or if it is of another kind.
  bool retire(HandleKind kind) noexcept {
    return kind_.compare_exchange_strong(kind, HandleKind::destroyed);
  }
  void revive(HandleKind kind) noexcept { kind_.store(kind, std::memory_order_relaxed); }

 private:
  std::atomic<HandleKind> kind_;
};

/// Checks that a handle is live and of this kind; `name` is the name of the argument.
Status check_handle(const void* handle, HandleKind kind, const char* name) noexcept;
/// For T with a static kKind.
template <class T>
Status check_handle(const T* handle, const char* name) noexcept {
  return check_handle(handle, T::kKind, name);
}
/// The handle to destroy, or null if there is none or if it is not a live T. Destroying cannot
/// report errors.
template <class T>
T* take_for_destroy(T* handle) noexcept {
  return check_handle(handle, "handle").ok() && handle->retire(T::kKind) ? handle : nullptr;
}

/// Holds one reference to a T that has add_ref() and drop_ref().
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T& object) : object_(&object) { object.add_ref(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->drop_ref();
  }
  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace metal_marlin::api
