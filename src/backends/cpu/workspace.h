// What a call of gemm() needs besides its operands, kept from call to call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/gemm.h"
#include "base/memory.h"
#include "core/backend.h"

namespace metal_marlin::cpu {

/// One thread at a time.
class Workspace {
 public:
  /// At least `bytes` of 64-byte aligned memory; what was there before is lost.
  Result<std::span<std::byte>> scratch(uint64_t bytes, const Allocator& allocator);

  std::vector<GemmProblem> problems;
  std::vector<GemmPlan> plans;

 private:
  Block block_;
};

/// A few workspaces for calls without a stream; any number of threads. Without locks, so that a
/// fork() while another thread is here cannot leave the child one that is locked for ever.
class WorkspaceCache {
 public:
  /// A workspace of the caller's own until it is destroyed, which puts it back.
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

  // As many callers at once keep their memory; more is returned to the allocator after each call.
  std::array<std::atomic<Workspace*>, 4> kept_{};
};

}  // namespace metal_marlin::cpu
