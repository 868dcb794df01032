// A stream of a GPU: the device's queue, scratch memory, and the first error, which stays.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backends/gpu/memory.h"
#include "core/backend.h"
#include "device/device.h"

namespace metal_marlin::gpu {

/// The arguments of one dispatch, by the indices of shaders/common/arguments.h. Values must live
/// until it is recorded.
class Bindings {
 public:
  Bindings& buffer(uint32_t index, const Place& place) {
    arguments_[count_++] = {index, place.buffer, place.offset, {}};
    return *this;
  }
  template <class T>
  Bindings& value(uint32_t index, const T& value) {
    arguments_[count_++] = {index, nullptr, 0, std::as_bytes(std::span(&value, 1))};
    return *this;
  }
  std::span<const device::Argument> all() const { return {arguments_.data(), count_}; }

 private:
  std::array<device::Argument, 10> arguments_;
  size_t count_ = 0;
};

/// Memory of a stream that grows when more is asked for.
class Growing {
 public:
  Growing(device::Placement placement, const char* label) : placement_(placement), label_(label) {}
  /// At least `bytes` > 0. Recorded work keeps what it uses of older memory.
  Result<Place> reserve(Memory& memory, uint64_t bytes);

 private:
  const device::Placement placement_;
  const char* const label_;
  device::BufferRef buffer_;
};

/// Everything is recorded in order; commands between two barriers may run at once. When recording
/// fails halfway the stream keeps that error like one of the device: what it holds is no longer
/// what was asked for.
class GpuStream final : public BackendStream {
 public:
  /// A host's scratch lies at `scratch`, if its buffer is not null, with this many bytes from its
  /// first kScratchAlign on.
  GpuStream(std::unique_ptr<device::Stream> queue, marlin_native kind, Place scratch,
            uint64_t scratch_bytes);

  /// The first error of the device or of recording; every call begins with it.
  Status check();
  /// Scratch for one call, aligned. MARLIN_E_MEMORY when the host's own does not hold it.
  Result<Place> scratch(Memory& memory, uint64_t bytes);
  bool has_host_scratch() const { return host_scratch_.buffer != nullptr; }
  /// Memory that host and device reach, for operands that only the host has.
  Result<Place> staging(Memory& memory, uint64_t bytes) { return staging_.reserve(memory, bytes); }

  /// What follows comes after all before it, on a host's own encoder too.
  Status begin();
  Status dispatch(const device::KernelRef& kernel, const Bindings& bindings, device::Size3 groups,
                  uint32_t threads, const char* label);
  Status barrier();
  /// Ends what begin() began: on a host's encoder, what the host records next comes after it.
  Status end();

  Status commit();
  /// Commits first. MARLIN_E_TIMEOUT leaves everything as it is.
  Status wait(uint64_t timeout_ns);
  /// By the device's clock, for what wait() last waited for; 0: unknown.
  double busy_seconds() const { return queue_->busy_seconds(); }

 private:
  Status keep(const Status& status);

  const std::unique_ptr<device::Stream> queue_;
  const marlin_native kind_;
  const Place host_scratch_;
  const uint64_t host_scratch_bytes_;
  Growing own_scratch_{device::Placement::device, "scratch"};
  Growing staging_{device::Placement::shared, "staging"};
  bool idle_;  // nothing recorded that might still run
  Status failure_;
};

/// Streams for calls without one, some of which are kept with their scratch. Any thread.
class StreamCache {
 public:
  explicit StreamCache(device::Device& device) : device_(device) {}
  /// One of the caller's own: the last that was given back, so that what was reserved on it serves
  /// the next call.
  Result<std::unique_ptr<GpuStream>> take();
  /// Gives back a healthy one whose work is done; with others it is dropped.
  void put(std::unique_ptr<GpuStream> stream);

 private:
  static constexpr size_t kKept = 4;  // as many callers at once keep their memory
  device::Device& device_;
  std::mutex mutex_;
  std::array<std::unique_ptr<GpuStream>, kKept> kept_;
};

}  // namespace metal_marlin::gpu
