// Which process is this? A number that a fork changes.
#pragma once

#include <atomic>
#include <cstdint>

namespace metal_marlin {

/// Tells a process from those that it was forked from, by a page that the system clears in a child.
/// Process ids do not tell: in a namespace of its own a child may have its parent's. Where the
/// system clears no pages, they must do.
///
/// A handler of pthread_atfork() would outlive a library that is unloaded, and it would have to
/// find all pools.
class ProcessStamp {
 public:
  ProcessStamp() noexcept;
  ~ProcessStamp();
  ProcessStamp(const ProcessStamp&) = delete;
  ProcessStamp& operator=(const ProcessStamp&) = delete;

  /// Never 0; the same for all threads, until this memory is in a forked child: there it is one
  /// that never was.
  uint64_t get();

 private:
  std::atomic<uint64_t>* page_ =
      nullptr;  // the stamp; 0: not taken, or a fork cleared it; null: there is no page
  std::atomic<uint64_t> last_{
      0};  // of all stamps of this memory; a child goes on from its parent's
};

}  // namespace metal_marlin
