// Memory whose neighbors cannot be touched: each operand lies against an inaccessible page.
#pragma once

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace guarded {

enum class Edge { end, begin };  ///< which end of the operand touches the inaccessible page

#if defined(_WIN32)
constexpr size_t kPage = 4096;
inline void* map_nothing(size_t bytes) { return VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_NOACCESS); }
inline bool protect(void* p, size_t bytes, bool writable) {
  DWORD before = 0;
  return VirtualProtect(p, bytes, writable ? PAGE_READWRITE : PAGE_READONLY, &before);
}
inline void unmap(void* p, size_t) { VirtualFree(p, 0, MEM_RELEASE); }
#else
inline const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
inline void* map_nothing(size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p != MAP_FAILED ? p : nullptr;
}
inline bool protect(void* p, size_t bytes, bool writable) {
  return mprotect(p, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}
inline void unmap(void* p, size_t bytes) { munmap(p, bytes); }
#endif

/// Bytes between two inaccessible pages.
class Memory {
 public:
  Memory() = default;
  Memory(size_t bytes, Edge edge) : bytes_(bytes) {
    const size_t page = kPage;
    const size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    base_ = static_cast<std::byte*>(map_nothing(mapped_));
    if (base_ == nullptr || (inside != 0 && !protect(base_ + page, inside, true))) std::abort();
    data_ = base_ + page + (edge == Edge::end ? inside - bytes : 0);
    std::memset(base_ + page, 0xff, inside);
  }
  ~Memory() {
    if (base_ != nullptr) unmap(base_, mapped_);
  }
  Memory(Memory&& o) noexcept { swap(o); }
  Memory& operator=(Memory&& o) noexcept {
    Memory m(std::move(o));
    swap(m);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  /// From now on nobody may write it: for inputs.
  void make_read_only() const {
    if (mapped_ > 2 * kPage) protect(base_ + kPage, mapped_ - 2 * kPage, false);
  }

 private:
  void swap(Memory& o) noexcept {
    std::swap(base_, o.base_);
    std::swap(data_, o.data_);
    std::swap(mapped_, o.mapped_);
    std::swap(bytes_, o.bytes_);
  }
  std::byte *base_ = nullptr, *data_ = nullptr;
  size_t mapped_ = 0, bytes_ = 0;
};

}  // namespace guarded
