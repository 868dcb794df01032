#include "backends/metal/residency.h"

namespace metal_marlin::metal {

Residency::Residency(id<MTLDevice> device) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    MTLResidencySetDescriptor* descriptor = [[MTLResidencySetDescriptor alloc] init];
    descriptor.label = @"metal-marlin";
    // Without a set, everything works as on older systems.
    set_ = [device newResidencySetWithDescriptor:descriptor error:nil];
  }
}

void Residency::add(id<MTLBuffer> buffer) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    [static_cast<id<MTLResidencySet>>(set_) addAllocation:buffer];
    changed_ = true;
  }
}

void Residency::remove(id<MTLBuffer> buffer) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    id<MTLResidencySet> set = set_;
    [set removeAllocation:buffer];
    [set commit];  // until then it holds the buffer
  }
}

void Residency::use(id<MTLCommandBuffer> commands) {
  if (@available(macOS 15.0, iOS 18.0, *)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    id<MTLResidencySet> set = set_;
    if (set == nil) return;
    if (changed_) {
      [set commit];
      [set requestResidency];
      changed_ = false;
    }
    [commands useResidencySet:set];
  }
}

}  // namespace metal_marlin::metal
