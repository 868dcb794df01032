#include "counting_new.h"

#include <cstdlib>
#include <new>

#if defined(__APPLE__)
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif

namespace counting_new {
std::atomic<int64_t> calls{0};
std::atomic<size_t> live{0}, peak{0};
}  // namespace counting_new

// Sanitizers bring an operator new of their own; under them nothing is counted and what tests say of counts holds trivially.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define MARLIN_NO_COUNTING
#endif
#endif
#if !defined(MARLIN_NO_COUNTING) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

namespace {
size_t size_of(void* p) {
#if defined(__APPLE__)
  return malloc_size(p);
#else
  return malloc_usable_size(p);
#endif
}
}  // namespace

void* operator new(size_t size) {
  void* const p = std::malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  ++counting_new::calls;
  const size_t bytes = size_of(p), now = counting_new::live.fetch_add(bytes) + bytes;
  for (size_t seen = counting_new::peak; now > seen && !counting_new::peak.compare_exchange_weak(seen, now);) {
  }
  return p;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) counting_new::live -= size_of(p);
  std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }

#endif
