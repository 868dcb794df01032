#include "backends/metal/metal_device.h"

#import <TargetConditionals.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>

#include "backends/metal/errors.h"
#include "backends/metal/objects.h"

namespace metal_marlin::metal {
namespace {

using device::BufferRef;
using device::Capabilities;

// The system ends a command buffer after some seconds, and draws no window while one runs.
// Estimates are five times what an M1 takes, and more.
constexpr double kSubmissionSeconds = 1;

// The newest generation of the device, as n of MTLGPUFamilyApple<n>; 0: not a GPU of Apple. The
// code uses numbers, because future generations have no names yet. A device belongs to its own
// generation and to all earlier ones.
int apple_family(id<MTLDevice> device) {
  int family = 0;
  while ([device supportsFamily:static_cast<MTLGPUFamily>(MTLGPUFamilyApple1 + family)]) ++family;
  return family;
}

// GPUs older than Apple 10 (M5) emulate tensor operations with the units that the other kernels
// use.
bool has_tensors(id<MTLDevice> device, int family) {
  constexpr auto kMetal4 = static_cast<MTLGPUFamily>(
      5002);  // MTLGPUFamilyMetal4, which SDKs before macOS 26 do not name
  if (@available(macOS 26.0, iOS 26.0, *)) return family >= 10 && [device supportsFamily:kMetal4];
  return false;
}

// A Mac pages beyond its working set, which is slow but works. iOS ends the program.
uint64_t most_bytes(uint64_t memory, uint64_t working_set) {
  if (TARGET_OS_IPHONE) return working_set;
  return std::max(working_set, std::min(working_set / 2 * 3, memory / 20 * 19));
}

// The family refuses nothing: the device of a virtual machine says Apple 5, and runs the kernels
// of the GPU below it. A kernel serves once its probe has agreed.
Result<Capabilities> capabilities_of(id<MTLDevice> device) {
  if (TARGET_OS_SIMULATOR)
    return Status::error(MARLIN_E_NO_DEVICE,
                         "%s: the compiler of a simulator takes minutes for these kernels, so that "
                         "the CPU serves there",
                         device.name.UTF8String);
  const int family = apple_family(device);
  if (family == 0 || !device.hasUnifiedMemory) {
    return Status::error(
        MARLIN_E_NO_DEVICE, "%s: expected a GPU of Apple with unified memory, found %s",
        device.name.UTF8String, family == 0 ? "one of another family" : "memory of its own");
  }
  Capabilities c;
  c.name = device.name.UTF8String;
  c.architecture = "apple" + std::to_string(family);
  c.memory_bytes = [NSProcessInfo processInfo].physicalMemory;
  c.working_set_bytes = device.recommendedMaxWorkingSetSize;
  c.most_bytes = most_bytes(c.memory_bytes, c.working_set_bytes);
  c.max_buffer_bytes = device.maxBufferLength;
  c.max_threads = static_cast<uint32_t>(device.maxThreadsPerThreadgroup.width);
  c.threadgroup_bytes = static_cast<uint32_t>(device.maxThreadgroupMemoryLength);
  c.page_bytes = static_cast<uint32_t>(sysconf(_SC_PAGESIZE));
  c.unified_memory = true;
  c.matrix = true;
  c.bfloat = true;
  c.tensor = has_tensors(device, family);
  c.submission_seconds = kSubmissionSeconds;
  return c;
}

// iOS 17 has no list, and a session without a window server may have an empty one.
NSArray<id<MTLDevice>>* all_devices() {
#if !TARGET_OS_IPHONE
  NSArray<id<MTLDevice>>* listed = MTLCopyAllDevices();
  if (listed.count != 0) return listed;
#endif
  id<MTLDevice> only = MTLCreateSystemDefaultDevice();
  return only == nil ? [NSArray array] : @[ only ];
}

id<MTLDevice> device_at(uint32_t index) {
  NSArray<id<MTLDevice>>* all = all_devices();
  return index < all.count ? all[index] : nil;
}

Status no_such_device(uint32_t index) {
  return Status::error(MARLIN_E_NO_DEVICE, "Metal: there is no device %u", index);
}

// Apple 7 (M1) is the first family with simdgroup matrices, as Apple documents it.
bool has_matrices(id<MTLDevice> device) { return [device supportsFamily:MTLGPUFamilyApple7]; }

// Once for each device, because what follows from it may be a kernel that is slow or missing.
void report_family(const Capabilities& device, bool has_matrices, const Logger& logger) {
  if (has_matrices) return;
  const Status said = Status::error(
      MARLIN_E_UNSUPPORTED,
      "%s: family %s, expected Apple 7 (M1) or later; kernels serve that compile here and agree "
      "with the CPU",
      device.name.c_str(), device.architecture.c_str());
  logger(LogLevel::warning, said.message());
}

class MetalDevice final : public device::Device {
 public:
  explicit MetalDevice(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const Capabilities& capabilities() const override { return shared_->capabilities; }

  Result<BufferRef> allocate(uint64_t bytes, device::Placement placement,
                             const char* label) override {
    @autoreleasepool {
      if (bytes == 0) return Status::error(MARLIN_E_ARGUMENT, "a buffer of 0 bytes");
      id<MTLBuffer> buffer = nil;
      // Memory is unified, so shared storage is as fast as any other. Metal tracks the dependencies
      // between commands by buffer.
      if (bytes <= shared_->capabilities.max_buffer_bytes)
        buffer = [shared_->device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
      if (buffer == nil) {
        return Status::error(MARLIN_E_MEMORY,
                             "no buffer of %" PRIu64 " bytes; the device makes up to %" PRIu64,
                             bytes, shared_->capabilities.max_buffer_bytes);
      }
      if (label != nullptr) buffer.label = to_string(label);
      return keep(buffer, placement);
    }
  }

  Result<BufferRef> wrap(void* host, uint64_t bytes, device::Placement placement) override {
    @autoreleasepool {
      const uint64_t page = shared_->capabilities.page_bytes;
      if (host == nullptr || bytes == 0 || reinterpret_cast<uintptr_t>(host) % page != 0 ||
          bytes % page != 0) {
        return Status::error(MARLIN_E_ARGUMENT,
                             "memory at %p, %" PRIu64
                             " bytes: both must be multiples of a page (%" PRIu64 ")",
                             host, bytes, page);
      }
      id<MTLBuffer> buffer = nil;
      if (bytes <= shared_->capabilities.max_buffer_bytes) {
        buffer = [shared_->device newBufferWithBytesNoCopy:host
                                                    length:bytes
                                                   options:MTLResourceStorageModeShared
                                               deallocator:nil];
      }
      if (buffer == nil)
        return Status::error(MARLIN_E_MEMORY,
                             "%" PRIu64 " bytes of the host's memory cannot be wrapped", bytes);
      return keep(buffer, placement);
    }
  }

  Result<BufferRef> wrap_native(void* native) override {
    @autoreleasepool {
      id object = (__bridge id)native;
      if (![object conformsToProtocol:@protocol(MTLBuffer)] || !is_of([object device], *shared_))
        return Status::error(MARLIN_E_ARGUMENT, "native memory is no MTLBuffer of %s",
                             shared_->capabilities.name.c_str());
      return BufferRef(std::make_shared<MetalBuffer>(static_cast<id<MTLBuffer>>(object), nullptr));
    }
  }

  Result<device::KernelRef> kernel(std::string_view name,
                                   std::span<const device::Constant> constants) override {
    return shared_->pipelines.kernel(name, constants);
  }
  void expect(std::string_view name, std::span<const device::Constant> constants) override {
    shared_->pipelines.expect(name, constants);
  }

  Result<std::unique_ptr<device::Stream>> stream(const device::StreamSource& source) override {
    @autoreleasepool {
      return create_stream(shared_, source);
    }
  }

 private:
  BufferRef keep(id<MTLBuffer> buffer, device::Placement placement) const {
    return std::make_shared<MetalBuffer>(
        buffer, placement == device::Placement::device ? shared_->residency : nullptr);
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

uint32_t count_devices() {
  @autoreleasepool {
    return static_cast<uint32_t>(all_devices().count);
  }
}

Result<Capabilities> describe(uint32_t index) {
  @autoreleasepool {
    id<MTLDevice> device = device_at(index);
    if (device == nil) return no_such_device(index);
    return capabilities_of(device);
  }
}

Result<std::unique_ptr<device::Device>> create_device(const DeviceOptions& options) {
  @autoreleasepool {
    id native = (__bridge id)options.native;
    if (native != nil && ![native conformsToProtocol:@protocol(MTLDevice)])
      return Status::error(MARLIN_E_ARGUMENT, "native_device is no MTLDevice");
    id<MTLDevice> device = native != nil ? native : device_at(options.index);
    if (device == nil) return no_such_device(options.index);
    MARLIN_ASSIGN(Capabilities capabilities, capabilities_of(device));
    report_family(capabilities, has_matrices(device), options.logger);
    auto shared = std::make_shared<Shared>(device, std::move(capabilities), options);
    return std::unique_ptr<device::Device>(std::make_unique<MetalDevice>(std::move(shared)));
  }
}

}  // namespace metal_marlin::metal
