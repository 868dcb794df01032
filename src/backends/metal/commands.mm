#include "backends/metal/commands.h"

namespace metal_marlin::metal {

Status Commands::open_compute() {
  if (compute_ != nil) return {};
  end_encoder();
  compute_ = [buffer_ computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
  if (compute_ == nil)
    return Status::error(MARLIN_E_MEMORY, "no compute encoder could be made%s", hosts_ ? ": is one of the host's open?" : "");
  compute_.label = @"metal-marlin";
  unfinished_ = true;
  return {};
}

Status Commands::open_blit() {
  if (blit_ != nil) return {};
  end_encoder();
  blit_ = [buffer_ blitCommandEncoder];
  if (blit_ == nil)
    return Status::error(MARLIN_E_MEMORY, "no blit encoder could be made%s", hosts_ ? ": is one of the host's open?" : "");
  blit_.label = @"metal-marlin copies";
  unfinished_ = true;
  return {};
}

void Commands::end_encoder() {
  if (buffer_ == nil) return;
  [compute_ endEncoding];
  [blit_ endEncoding];
  compute_ = nil;
  blit_ = nil;
}

Status Commands::finish(const std::shared_ptr<Residency>& residency) {
  if (buffer_ == nil || !unfinished_) return {};
  end_encoder();
  residency->use(buffer_);
  keep(residency);
  unfinished_ = false;
  return {};
}

}  // namespace metal_marlin::metal
