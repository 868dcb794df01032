// The memory that a call of gemm() needs in addition to its operands. It is kept from call to call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/memory.h"
#include "core/backend.h"

namespace metal_marlin::cpu {

/// For one thread at a time.
class Workspace {
 public:
  /// Returns at least `bytes` of memory, aligned to 64 bytes; its earlier content is lost.
  Result<std::span<std::byte>> scratch(uint64_t bytes, const Allocator& allocator);

 private:
  Block block_;
};

/// A few workspaces for calls without a stream, for any number of threads. It has no locks, so that
/// a fork() while another thread is here cannot leave a lock in the child that is locked forever.
class WorkspaceCache {
 public:
  /// Lends a workspace to one caller; the destructor returns it.
  class Lease {
   public:
    explicit Lease(WorkspaceCache& cache) : cache_(cache), workspace_(cache.take()) {}
    ~Lease() { cache_.put(std::move(workspace_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Workspace& operator*() const { return *workspace_; }

   private:
    WorkspaceCache& cache_;
    std::unique_ptr<Workspace> workspace_;
  };

  WorkspaceCache() = default;
  ~WorkspaceCache();

 private:
  std::unique_ptr<Workspace> take();
  void put(std::unique_ptr<Workspace> workspace);

  // This many callers at once keep their memory. The memory of others is freed after each call.
  std::array<std::atomic<Workspace*>, 4> kept_{};
};

}  // namespace metal_marlin::cpu
