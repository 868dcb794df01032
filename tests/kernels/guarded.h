// Memory whose neighbors cannot be touched: each operand lies against an inaccessible page.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace guarded {

enum class Edge { end, begin };  ///< which end of the operand touches the inaccessible page

/// Bytes between two inaccessible pages.
class Memory {
 public:
  Memory() = default;
  Memory(size_t bytes, Edge edge) : bytes_(bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    base_ = static_cast<std::byte*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || (inside != 0 && mprotect(base_ + page, inside, PROT_READ | PROT_WRITE) != 0)) std::abort();
    data_ = base_ + page + (edge == Edge::end ? inside - bytes : 0);
    std::memset(base_ + page, 0xff, inside);
  }
  ~Memory() {
    if (base_ != nullptr) munmap(base_, mapped_);
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
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (mapped_ > 2 * page) mprotect(base_ + page, mapped_ - 2 * page, PROT_READ);
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
