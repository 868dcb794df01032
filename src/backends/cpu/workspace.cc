#include "backends/cpu/workspace.h"

#include <utility>

namespace metal_marlin::cpu {

Result<std::span<std::byte>> Workspace::scratch(uint64_t bytes, const Allocator& allocator) {
  if (block_.size() < bytes) {
    block_ = Block();  // first, so that old and new never exist together
    MARLIN_ASSIGN(block_, Block::allocate(allocator, static_cast<size_t>(bytes)));
  }
  return std::span(block_.data(), block_.size());
}

WorkspaceCache::~WorkspaceCache() {
  for (std::atomic<Workspace*>& kept : kept_) delete kept.load();
}

std::unique_ptr<Workspace> WorkspaceCache::take() {
  for (std::atomic<Workspace*>& kept : kept_)
    if (Workspace* const found = kept.exchange(nullptr, std::memory_order_acq_rel))
      return std::unique_ptr<Workspace>(found);
  return std::make_unique<Workspace>();
}

void WorkspaceCache::put(std::unique_ptr<Workspace> workspace) {
  for (std::atomic<Workspace*>& kept : kept_) {
    Workspace* empty = nullptr;
    if (kept.compare_exchange_strong(empty, workspace.get(), std::memory_order_acq_rel)) {
      static_cast<void>(workspace.release());
      return;
    }
  }
}

}  // namespace metal_marlin::cpu
