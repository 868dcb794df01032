#include "failing_new.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace failing_new {

std::atomic<int64_t> until_failure{-1};
std::atomic<int64_t> live{0};

namespace {
bool fails_now() {
  if (until_failure.load(std::memory_order_relaxed) < 0) return false;
  return until_failure.fetch_sub(1) == 1;
}
}  // namespace

void* allocate(size_t size, size_t align) {
  const size_t rounded = (std::max<size_t>(size, 1) + align - 1) / align * align;
  void* const p = fails_now() ? nullptr : std::aligned_alloc(align, rounded);
  if (p != nullptr) ++live;
  return p;
}

void release(void* p) {
  if (p != nullptr) --live;
  std::free(p);
}

}  // namespace failing_new

namespace {
using failing_new::allocate;
using failing_new::release;

void* allocate_or_throw(size_t size, size_t align) {
  if (void* const p = allocate(size, align)) return p;
  throw std::bad_alloc();
}

}  // namespace

// All of them: a sanitizer brings its own of those that are left out.
void* operator new(size_t size) { return allocate_or_throw(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, std::align_val_t align) { return allocate_or_throw(size, static_cast<size_t>(align)); }
void* operator new[](size_t size, std::align_val_t align) { return operator new(size, align); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return operator new(size, std::nothrow); }
void* operator new(size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<size_t>(align));
}
void* operator new[](size_t size, std::align_val_t align, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<size_t>(align));
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete[](void* p, size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
