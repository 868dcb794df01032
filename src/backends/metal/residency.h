// Keeps memory resident while it lives, on systems that have residency sets (macOS 15). On other
// systems, Metal makes the bound memory of each command buffer resident.
#pragma once

#import <Metal/Metal.h>

#include <mutex>

namespace metal_marlin::metal {

/// Any thread may use it.
class Residency {
 public:
  explicit Residency(id<MTLDevice> device);
  void add(id<MTLBuffer> buffer);
  /// Releases the buffer at once. No command that uses it may be running.
  void remove(id<MTLBuffer> buffer);
  /// Commits additions, and makes the memory resident for the commands.
  void use(id<MTLCommandBuffer> commands);

 private:
  std::mutex mutex_;
  id set_ = nil;          // id<MTLResidencySet>, or nil where there are none
  bool changed_ = false;  // by additions
};

}  // namespace metal_marlin::metal
