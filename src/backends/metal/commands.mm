#include "backends/metal/commands.h"

#include <algorithm>

namespace metal_marlin::metal {

Status check_uncommitted(id<MTLCommandBuffer> buffer) {
  if (buffer.status < MTLCommandBufferStatusCommitted) return {};
  return Status::error(
      MARLIN_E_ARGUMENT,
      "the host's command buffer is committed (status %d), expected one that takes commands",
      static_cast<int>(buffer.status));
}

Status Commands::check_open() const { return hosts_ ? check_uncommitted(buffer_) : Status(); }

Status Commands::open_compute() {
  if (compute_ != nil) return {};
  MARLIN_RETURN_IF_ERROR(check_open());
  end_encoder();
  compute_ = [buffer_ computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  if (compute_ == nil)
    return Status::error(MARLIN_E_MEMORY, "no compute encoder could be made%s",
                         hosts_ ? ": is one of the host's open?" : "");
  compute_.label = @"metal-marlin";
  for (id<MTLFence> fence : fences_.waits) [compute_ waitForFence:fence];
  unfinished_ = true;
  return {};
}

Status Commands::open_blit() {
  if (blit_ != nil) return {};
  MARLIN_RETURN_IF_ERROR(check_open());
  end_encoder();
  blit_ = [buffer_ blitCommandEncoder];
  if (blit_ == nil)
    return Status::error(MARLIN_E_MEMORY, "no blit encoder could be made%s",
                         hosts_ ? ": is one of the host's open?" : "");
  blit_.label = @"metal-marlin copies";
  for (id<MTLFence> fence : fences_.waits) [blit_ waitForFence:fence];
  unfinished_ = true;
  return {};
}

void Commands::end_encoder() {
  if (buffer_ == nil || (compute_ == nil && blit_ == nil)) return;
  for (id<MTLFence> fence : fences_.updates) {
    [compute_ updateFence:fence];
    [blit_ updateFence:fence];
  }
  [compute_ endEncoding];
  [blit_ endEncoding];
  compute_ = nil;
  blit_ = nil;
  for (id<MTLFence> fence : fences_.updates) wait_for(fence);
}

void Commands::wait_for(id<MTLFence> fence) {
  auto& waits = fences_.waits;
  if (std::find(waits.begin(), waits.end(), fence) != waits.end()) return;
  waits.push_back(fence);
  [compute_ waitForFence:fence];
  [blit_ waitForFence:fence];
}

void Commands::order(id<MTLFence> wait, id<MTLFence> update) {
  if (wait != nil) wait_for(wait);
  auto& updates = fences_.updates;
  if (update != nil && std::find(updates.begin(), updates.end(), update) == updates.end())
    updates.push_back(update);
}

Status Commands::finish(const std::shared_ptr<Residency>& residency) {
  if (buffer_ == nil) residency->use(nil);
  if (buffer_ == nil || !unfinished_) return {};
  end_encoder();
  MARLIN_RETURN_IF_ERROR(check_open());
  residency->use(buffer_);
  keep(residency);
  unfinished_ = false;
  return {};
}

std::shared_ptr<Commands> HostCommands::of(id<MTLCommandBuffer> buffer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Commands>& known = all_[(__bridge const void*)buffer];
  std::shared_ptr<Commands> commands = known.lock();
  if (commands == nullptr) known = commands = std::make_shared<Commands>(buffer, true);
  return commands;
}

}  // namespace metal_marlin::metal
