// Memory that stays resident while it lives, where the system can be told so (macOS 15); elsewhere
// Metal makes resident what each command buffer binds.
#pragma once

#import <Metal/Metal.h>

#include <mutex>

namespace metal_marlin::metal {

/// Any thread.
class Residency {
 public:
  explicit Residency(id<MTLDevice> device);
  void add(id<MTLBuffer> buffer);
  /// The buffer is let go at once. No command that uses it may be under way.
  void remove(id<MTLBuffer> buffer);
  /// Makes additions known, and has the commands find the memory resident.
  void use(id<MTLCommandBuffer> commands);

 private:
  std::mutex mutex_;
  id set_ = nil;          // id<MTLResidencySet>, or nil where there are none
  bool changed_ = false;  // by additions
};

}  // namespace metal_marlin::metal
