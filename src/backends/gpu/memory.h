// Device memory, counted against what the device may have in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/backend.h"
#include "device/device.h"

namespace metal_marlin::gpu {

/// A place in a buffer.
struct Place {
  device::BufferRef buffer;
  uint64_t offset = 0;
  Place at(uint64_t bytes) const { return {buffer, offset + bytes}; }
  uint64_t address() const { return buffer->address() + offset; }
};

/// What one backend allocates on its device. Any thread.
class Memory {
 public:
  explicit Memory(device::Device& device);
  /// MARLIN_E_MEMORY, with the numbers, when it exceeds a buffer or the budget, which is the
  /// device's working set. The bytes count until the last reference is gone, that of recorded work
  /// included.
  Result<device::BufferRef> allocate(uint64_t bytes, device::Placement placement,
                                     const char* label);
  uint64_t used() const { return used_->load(std::memory_order_relaxed); }

 private:
  device::Device& device_;
  const std::shared_ptr<std::atomic<uint64_t>> used_;
};

/// What a marlin_buffer holds.
class GpuBuffer final : public SharedMemory {
 public:
  explicit GpuBuffer(device::BufferRef buffer) : buffer_(std::move(buffer)) {}
  std::byte* host() const override { return buffer_->host(); }
  const device::BufferRef& buffer() const { return buffer_; }

 private:
  const device::BufferRef buffer_;
};

}  // namespace metal_marlin::gpu
