// Memory that stays resident while it lives, where the system can be told so (macOS 15); elsewhere Metal makes resident what
// each command buffer binds.
#pragma once

#import <Metal/Metal.h>

#include <mutex>

namespace metal_marlin::metal {

/// Any thread.
class Residency {
 public:
  explicit Residency(id<MTLDevice> device);
  void add(id<MTLBuffer> buffer);
  void remove(id<MTLBuffer> buffer);
  /// Makes changes known, and has the commands find the memory resident.
  void use(id<MTLCommandBuffer> commands);

 private:
  std::mutex mutex_;
  id set_ = nil;  // id<MTLResidencySet>, or nil where there are none
  bool changed_ = false;
};

}  // namespace metal_marlin::metal
