// Keeps memory resident while it lives, on systems that have residency sets (macOS 15, iOS 18) and
// GPUs of Apple 6 and later. Elsewhere Metal makes the bound memory of each command buffer
// resident.
#pragma once

#import <Metal/Metal.h>

#include <memory>
#include <mutex>

namespace metal_marlin::metal {

/// Any thread may use it.
class Residency : public std::enable_shared_from_this<Residency> {
 public:
  explicit Residency(id<MTLDevice> device);
  void add(id<MTLBuffer> buffer);
  /// Releases the buffer at once. No command that uses it may be running.
  void remove(id<MTLBuffer> buffer);
  /// Commits additions, and makes the memory resident for the commands and for three minutes more.
  /// An encoder of the host has nil for its commands.
  void use(id<MTLCommandBuffer> commands);

 private:
  void request_later();
  void request_again();

  std::mutex mutex_;
  id set_ = nil;          // id<MTLResidencySet>, or nil where there are none
  bool changed_ = false;  // by additions
  int beats_left_ = 0;    // requests until the memory is left to the system
};

}  // namespace metal_marlin::metal
