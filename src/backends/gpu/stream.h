// A stream of a GPU: a queue of the device, scratch memory, and the first error, which stays.
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

/// The arguments of one dispatch, with the indices of shaders/common/arguments.h. Values must live
/// until the dispatch is recorded.
class Bindings {
 public:
  Bindings& buffer(uint32_t index, const DevicePointer& place) {
    arguments_[count_++] = {index, place.buffer, place.offset, {}};
    return *this;
  }
  /// The value must live until the dispatch.
  template <class T>
  Bindings& value(uint32_t index, const T&& value) = delete;
  template <class T>
  Bindings& value(uint32_t index, const T& value) {
    arguments_[count_++] = {index, nullptr, 0, std::as_bytes(std::span(&value, 1))};
    return *this;
  }
  std::span<const device::Argument> all() const { return {arguments_.data(), count_}; }

 private:
  std::array<device::Argument, 16> arguments_;
  size_t count_ = 0;
};

/// Memory of a stream, which grows if a call needs more.
class Growing {
 public:
  Growing(device::Placement placement, const char* label) : placement_(placement), label_(label) {}
  /// Returns at least `bytes` > 0. Recorded work keeps the older memory that it uses.
  Result<DevicePointer> reserve(Memory& memory, uint64_t bytes);
  bool holds(uint64_t bytes) const { return buffer_ != nullptr && buffer_->bytes() >= bytes; }

 private:
  const device::Placement placement_;
  const char* const label_;
  device::BufferRef buffer_;
};

/// Memory for operands that are in host memory, of which kernels use `device`. Where memory is
/// unified, both are the same.
struct Staging {
  device::BufferRef host, device;
  bool apart() const { return host != device; }
};

/// Everything is recorded in order; commands between two barriers may run at once. If recording
/// fails halfway, the stream keeps the error like an error of the device, because it holds only a
/// part of the call.
class GpuStream final : public BackendStream {
 public:
  /// If the buffer of `scratch` is not null, it is the host's scratch memory, with this many bytes
  /// from its first multiple of kScratchAlign on. Submissions hold up to `submission_seconds` of
  /// work, by estimate; 0: any.
  GpuStream(std::unique_ptr<device::Stream> queue, marlin_native kind, double submission_seconds,
            DevicePointer scratch, uint64_t scratch_bytes);

  /// The first error of the device or of recording. Every call checks it first.
  Status check();
  /// Aligned scratch memory for one call. MARLIN_E_MEMORY if the host's scratch is too small.
  Result<DevicePointer> scratch(Memory& memory, uint64_t bytes);
  /// kFlagBytes of device memory that are 0, and that every kernel leaves 0.
  Result<DevicePointer> flags(Memory& memory);
  const device::Stream& queue() const { return *queue_; }
  bool has_host_scratch() const { return host_scratch_.buffer != nullptr; }
  Result<Staging> staging(Memory& memory, uint64_t bytes);

  /// Orders the following work after all work before it, also on a host's own encoder.
  Status begin();
  Status dispatch(const device::KernelRef& kernel, const Bindings& bindings, device::Size3 groups,
                  uint32_t threads, const TracedStep& what);
  /// Copies these bytes to the same place in another buffer.
  Status copy(const device::BufferRef& from, const device::BufferRef& to, uint64_t at,
              uint64_t bytes);
  /// Copies from the host to the begin of a buffer that the host does not reach, and waits.
  Status upload(Memory& memory, std::span<const std::byte> from, const device::BufferRef& to);
  Status barrier();
  /// Submits what is recorded if work of so many seconds would make the submission too long. The
  /// host's own command buffers and encoders are not divided.
  Status make_room(double seconds);
  /// Ends what begin() began: on a host's encoder, the host's next work comes after ours.
  Status end();

  Status commit();
  /// Commits first. MARLIN_E_TIMEOUT changes nothing.
  Status wait(uint64_t timeout_ns);
  /// Commits first.
  Status notify(void (*done)(void* user, marlin_status status), void* user);
  /// The busy time by the device's clock for the work of the last wait(); 0: unknown.
  double busy_seconds() const { return queue_->busy_seconds(); }

 private:
  Status keep(const Status& status);
  Status check_waitable() const;

  const std::unique_ptr<device::Stream> queue_;
  const marlin_native kind_;
  const double submission_seconds_;
  double recorded_seconds_ = 0;  // since the last submission, by estimate
  const DevicePointer host_scratch_;
  const uint64_t host_scratch_bytes_;
  Growing own_scratch_{device::Placement::device, "scratch"};
  Growing staging_{device::Placement::shared, "staging"};
  Growing device_staging_{device::Placement::device, "device staging"};
  device::BufferRef flags_;
  bool idle_;  // nothing recorded that might still run
  Status failure_;
};

/// Streams for calls without one. Some of them are kept with their scratch memory. Any thread may
/// use it.
class StreamCache {
 public:
  StreamCache(device::Device& device, std::shared_ptr<Tracer> tracer)
      : device_(device), tracer_(std::move(tracer)) {}
  /// Gives the caller a stream of its own: the last one that was returned, so that its reserved
  /// memory serves the next call.
  Result<std::unique_ptr<GpuStream>> take();
  /// Returns a stream. It is kept if it is healthy and its work is done; otherwise it is dropped.
  void put(std::unique_ptr<GpuStream> stream);
  /// Destroys the streams that are kept, with their memory. False if there are none.
  bool clear();

 private:
  static constexpr size_t kKept = 4;  // as many callers at once keep their memory
  device::Device& device_;
  const std::shared_ptr<Tracer> tracer_;
  std::mutex mutex_;
  std::array<std::unique_ptr<GpuStream>, kKept> kept_;
};

}  // namespace metal_marlin::gpu
