// Device memory, counted against the memory that the device may have in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/log.h"
#include "core/backend.h"
#include "device/device.h"

namespace metal_marlin::gpu {

/// A place in a buffer.
struct DevicePointer {
  device::BufferRef buffer;
  uint64_t offset = 0;
  DevicePointer at(uint64_t bytes) const { return {buffer, offset + bytes}; }
  uint64_t address() const { return buffer->address() + offset; }
};

/// The allocations of one backend on its device. Any thread may use it.
class Memory {
 public:
  /// `release` frees memory that nobody needs now, and returns false if there is none. It is called
  /// by allocate() and must not call it. `logger` gets a warning of the first allocation beyond the
  /// working set of the device.
  explicit Memory(device::Device& device, std::function<bool()> release = {}, Logger logger = {});
  /// MARLIN_E_MEMORY, with the numbers, if the size exceeds a buffer, or all sizes what the device
  /// may have in use, although `release` was called. The bytes count until the last reference is
  /// gone; recorded work holds references, too.
  Result<device::BufferRef> allocate(uint64_t bytes, device::Placement placement,
                                     const char* label);
  /// Wraps memory of the host, with the rest of the pages on which it lies, under the same account.
  /// `owner` lives as long as recorded work may read it.
  Result<DevicePointer> wrap(std::span<const std::byte> bytes,
                             const std::shared_ptr<const void>& owner);
  /// Host and device reach the same memory at full speed.
  bool unified() const { return device_.capabilities().unified_memory; }
  uint64_t used() const { return used_->load(std::memory_order_relaxed); }

 private:
  Result<device::BufferRef> allocate(uint64_t bytes, device::Placement placement, const char* label,
                                     void* host, const std::shared_ptr<const void>& owner);
  Result<device::BufferRef> try_allocate(uint64_t bytes, device::Placement placement,
                                         const char* label, void* host,
                                         std::shared_ptr<const void> owner);

  void warn(uint64_t used);

  device::Device& device_;
  const std::function<bool()> release_;
  const Logger logger_;
  std::atomic<bool> warned_{false};
  const std::shared_ptr<std::atomic<uint64_t>> used_;
};

/// The memory of a marlin_buffer.
class GpuBuffer final : public SharedMemory {
 public:
  explicit GpuBuffer(device::BufferRef buffer) : buffer_(std::move(buffer)) {}
  std::byte* host() const override { return buffer_->host(); }
  const device::BufferRef& buffer() const { return buffer_; }

 private:
  const device::BufferRef buffer_;
};

}  // namespace metal_marlin::gpu
