// Kernels that were compiled, so that each is compiled once.
#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "device/device.h"

namespace metal_marlin::device {

/// Any thread may use it. One thread compiles at a time; other threads get compiled kernels
/// meanwhile. Finding a kernel does not allocate.
template <class Key>
class CompiledKernels {
 public:
  /// The kernel of this key, or the kernel that `compile` returns (Result<KernelRef>). What
  /// `compile` uses, only one thread uses at a time.
  template <class Compile>
  Result<KernelRef> get(const Key& key, const Compile& compile) {
    if (KernelRef found = find(key); found != nullptr) return found;
    const std::lock_guard<std::mutex> compiling(compiling_);
    if (KernelRef found = find(key); found != nullptr) return found;  // by the thread before
    MARLIN_ASSIGN(KernelRef made, compile());
    const std::lock_guard<std::mutex> lock(mutex_);
    return kernels_.try_emplace(key, std::move(made)).first->second;
  }

 private:
  KernelRef find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = kernels_.find(key);
    return found == kernels_.end() ? nullptr : found->second;
  }

  std::mutex compiling_;  // held during compilation
  std::mutex mutex_;      // guards the next member; taken after compiling_, never before
  std::map<Key, KernelRef> kernels_;
};

}  // namespace metal_marlin::device
