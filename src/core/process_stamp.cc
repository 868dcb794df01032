#include "core/process_stamp.h"

#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/system.h"

namespace metal_marlin {

#if defined(__linux__)
ProcessStamp::ProcessStamp() noexcept {
  void* const page = mmap(nullptr, sizeof(std::atomic<uint64_t>), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, sizeof(std::atomic<uint64_t>), MADV_WIPEONFORK) != 0) {  // from Linux 4.14 on
    munmap(page, sizeof(std::atomic<uint64_t>));
    return;
  }
  page_ = new (page) std::atomic<uint64_t>(0);
}

ProcessStamp::~ProcessStamp() {
  if (page_ != nullptr) munmap(page_, sizeof *page_);
}
#else
ProcessStamp::ProcessStamp() noexcept = default;
ProcessStamp::~ProcessStamp() = default;
#endif

uint64_t ProcessStamp::get() {
  if (page_ == nullptr) return system::process_id();
  uint64_t stamp = page_->load(std::memory_order_acquire);
  if (stamp != 0) return stamp;
  // The number is counted before it is stored, so that a fork in between cannot reuse it.
  const uint64_t next = last_.fetch_add(1) + 1;
  return page_->compare_exchange_strong(stamp, next, std::memory_order_acq_rel) ? next : stamp;
}

}  // namespace metal_marlin
