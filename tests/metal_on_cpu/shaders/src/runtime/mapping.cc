#include "mapping.h"

#include <sys/mman.h>

namespace metal_on_cpu {

Mapping::Mapping(size_t bytes, bool reserve_only) : bytes_(to_pages(bytes)) {
  const int rights = reserve_only ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* p = mmap(nullptr, bytes_, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    bytes_ = 0;
  else
    data_ = static_cast<std::byte*>(p);
}

Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

Guarded::Guarded(size_t bytes) : all_(2 * kGuard + to_pages(bytes), true) {
  if (all_ && all_.allow(kGuard, bytes)) data_ = all_.data() + kGuard, bytes_ = bytes;
}

bool Mapping::allow(size_t offset, size_t bytes) const {
  return mprotect(data_ + offset, to_pages(bytes), PROT_READ | PROT_WRITE) == 0;
}

bool Mapping::forbid(size_t offset, size_t bytes) const { return mprotect(data_ + offset, to_pages(bytes), PROT_NONE) == 0; }

}  // namespace metal_on_cpu
