// The declarations that the Objective-C++ files of this folder share: the parts of a device, and
// its buffers.
#pragma once

#import <Metal/Metal.h>
#include <TargetConditionals.h>

#include <memory>

#include "backends/metal/commands.h"
#include "backends/metal/pipelines.h"
#include "backends/metal/residency.h"

namespace metal_marlin::metal {

/// The objects that a device and its streams share. The last of them releases the objects.
struct Shared {
  Shared(id<MTLDevice> the_device, device::Capabilities its_capabilities,
         const DeviceOptions& options)
      : device(the_device),
        capabilities(std::move(its_capabilities)),
        residency(std::make_shared<Residency>(the_device)),
        pipelines(the_device, options) {}

  id<MTLDevice> device;
  device::Capabilities capabilities;
  const std::shared_ptr<Residency>
      residency;  // buffers hold it too: the GPU may use them when all else is gone
  Pipelines pipelines;
  HostCommands host_commands;
};

class MetalBuffer final : public device::Buffer {
 public:
  /// `resident` keeps the buffer resident until this object is destroyed; null: Metal decides.
  MetalBuffer(id<MTLBuffer> buffer, std::shared_ptr<Residency> resident)
      : buffer_(buffer), resident_(std::move(resident)) {
    if (resident_) resident_->add(buffer_);
  }
  ~MetalBuffer() override {
    @autoreleasepool {
      if (resident_) resident_->remove(buffer_);
      buffer_ = nil;
    }
  }
  uint64_t bytes() const override { return buffer_.length; }
  std::byte* host() const override {
    return buffer_.storageMode == MTLStorageModePrivate ? nullptr
                                                        : static_cast<std::byte*>(buffer_.contents);
  }
  uint64_t address() const override { return buffer_.gpuAddress; }
  id<MTLBuffer> buffer() const { return buffer_; }

 private:
  id<MTLBuffer> buffer_;
  const std::shared_ptr<Residency> resident_;
};

/// Whether a device object stands for this device; two objects may stand for one device.
inline bool is_of(id<MTLDevice> device, const Shared& shared) {
#if TARGET_OS_IPHONE
  return device != nil && shared.device != nil;  // there is one GPU
#else
  return device.registryID == shared.device.registryID;
#endif
}

/// Checks the host's object, and makes a stream over it or over a queue of its own.
Result<std::unique_ptr<device::Stream>> create_stream(std::shared_ptr<Shared> shared,
                                                      const device::StreamSource& source);

}  // namespace metal_marlin::metal
