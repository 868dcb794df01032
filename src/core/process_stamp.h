// A number that identifies the process and that a fork changes.
#pragma once

#include <atomic>
#include <cstdint>

namespace metal_marlin {

/// Distinguishes a process from its ancestors by a page that the system clears in a child. Process
/// ids are not enough: in a namespace of its own, a child may have the id of its parent. They are
/// used only if the system cannot clear pages.
///
/// A handler of pthread_atfork() would outlive a library that is unloaded, and it would have to
/// find all pools.
class ProcessStamp {
 public:
  ProcessStamp() noexcept;
  ~ProcessStamp();
  ProcessStamp(const ProcessStamp&) = delete;
  ProcessStamp& operator=(const ProcessStamp&) = delete;

  /// Never 0, and the same for all threads of a process. In a forked child, it is a number that no
  /// ancestor had.
  uint64_t get();

 private:
  std::atomic<uint64_t>* page_ =
      nullptr;  // the stamp; 0: not taken, or a fork cleared it; null: there is no page
  std::atomic<uint64_t> last_{
      0};  // the last stamp of this memory; a child continues from its parent's
};

}  // namespace metal_marlin
