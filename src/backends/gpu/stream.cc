#include "backends/gpu/stream.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <ranges>
#include <utility>

#include "backends/gpu/plan.h"

namespace metal_marlin::gpu {
namespace {

/// Half of the pinned memory through which weights go to the device.
constexpr uint64_t kUploadBytes = 8 << 20;

bool is_hosts(marlin_native kind) {
  return kind == MARLIN_NATIVE_METAL_COMMAND_BUFFER || kind == MARLIN_NATIVE_METAL_ENCODER;
}

}  // namespace

Result<DevicePointer> Growing::reserve(Memory& memory, uint64_t bytes) {
  if (!holds(bytes)) {
    buffer_ = nullptr;  // first, so that the two need not fit side by side
    MARLIN_ASSIGN(buffer_, memory.allocate(bytes, placement_, label_));
  }
  return DevicePointer{buffer_, 0};
}

GpuStream::GpuStream(std::unique_ptr<device::Stream> queue, marlin_native kind,
                     double submission_seconds, DevicePointer scratch, uint64_t scratch_bytes)
    : queue_(std::move(queue)),
      kind_(kind),
      submission_seconds_(submission_seconds),
      host_scratch_(std::move(scratch)),
      host_scratch_bytes_(scratch_bytes),
      idle_(kind == MARLIN_NATIVE_NONE) {}

Status GpuStream::keep(const Status& status) {
  if (!status.ok() && failure_.ok()) failure_ = status;
  return status;
}

Status GpuStream::check() {
  if (failure_.ok()) failure_ = queue_->failure();
  return failure_;
}

Result<DevicePointer> GpuStream::scratch(Memory& memory, uint64_t bytes) {
  if (!has_host_scratch()) return own_scratch_.reserve(memory, bytes);
  if (bytes <= host_scratch_bytes_) return host_scratch_;
  return Status::error(MARLIN_E_NOT_PREPARED,
                       "the stream's scratch holds %" PRIu64
                       " bytes from its first multiple of %" PRIu64
                       " on, these products need %" PRIu64,
                       host_scratch_bytes_, kScratchAlign, bytes);
}

Result<DevicePointer> GpuStream::flags(Memory& memory) {
  if (flags_ == nullptr) {
    MARLIN_ASSIGN(device::BufferRef made,
                  memory.allocate(kFlagBytes, device::Placement::device, "flags"));
    MARLIN_RETURN_IF_ERROR(queue_->fill(made, 0, kFlagBytes, 0));
    MARLIN_RETURN_IF_ERROR(queue_->barrier());
    flags_ = std::move(made);
  }
  return DevicePointer{flags_, 0};
}

Result<Staging> GpuStream::staging(Memory& memory, uint64_t bytes) {
  MARLIN_ASSIGN(const DevicePointer host, staging_.reserve(memory, bytes));
  if (memory.unified()) return Staging{host.buffer, host.buffer};
  const bool grows = !device_staging_.holds(bytes);
  MARLIN_ASSIGN(const DevicePointer device, device_staging_.reserve(memory, bytes));
  if (grows) {  // gaps between the rows of outputs are copied, too, and nothing else writes them
    MARLIN_RETURN_IF_ERROR(keep(queue_->fill(device.buffer, 0, device.buffer->bytes(), 0)));
    MARLIN_RETURN_IF_ERROR(barrier());
  }
  return Staging{host.buffer, device.buffer};
}

Status GpuStream::begin() { return std::exchange(idle_, false) ? Status() : barrier(); }

Status GpuStream::dispatch(const device::KernelRef& kernel, const Bindings& bindings,
                           device::Size3 groups, uint32_t threads, const TracedStep& what) {
  return keep(queue_->dispatch({kernel, bindings.all(), groups, {threads, 1, 1}, what}));
}

Status GpuStream::copy(const device::BufferRef& from, const device::BufferRef& to, uint64_t at,
                       uint64_t bytes) {
  return keep(queue_->copy(from, at, to, at, bytes));
}

Status GpuStream::upload(Memory& memory, std::span<const std::byte> from,
                         const device::BufferRef& to) {
  const uint64_t half = std::min<uint64_t>(kUploadBytes, from.size());
  MARLIN_ASSIGN(const DevicePointer staging, staging_.reserve(memory, 2 * half));
  uint64_t side = 0;  // of the staging memory: one is filled while the other is on its way
  for (uint64_t at = 0; at < from.size(); at += half, side = half - side) {
    const uint64_t bytes = std::min<uint64_t>(half, from.size() - at);
    std::memcpy(staging.buffer->host() + side, from.data() + at, bytes);
    if (at != 0) MARLIN_RETURN_IF_ERROR(wait(UINT64_MAX));
    idle_ = false;
    MARLIN_RETURN_IF_ERROR(keep(queue_->copy(staging.buffer, side, to, at, bytes)));
    MARLIN_RETURN_IF_ERROR(commit());
  }
  return wait(UINT64_MAX);
}

Status GpuStream::barrier() { return keep(queue_->barrier()); }

Status GpuStream::make_room(double seconds) {
  if (submission_seconds_ == 0 || is_hosts(kind_)) return {};
  const double before = recorded_seconds_;
  recorded_seconds_ += seconds;
  if (before == 0 || recorded_seconds_ <= submission_seconds_) return {};
  recorded_seconds_ = seconds;
  return keep(queue_->split());
}

Status GpuStream::end() { return kind_ == MARLIN_NATIVE_METAL_ENCODER ? barrier() : Status(); }

Status GpuStream::commit() {
  recorded_seconds_ = 0;
  return keep(queue_->commit());
}

Status GpuStream::check_waitable() const {
  if (!is_hosts(kind_)) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "stream kind is %d: the host commits its command buffer and waits for it",
                       kind_);
}

Status GpuStream::notify(void (*done)(void* user, marlin_status status), void* user) {
  MARLIN_RETURN_IF_ERROR(check_waitable());
  MARLIN_RETURN_IF_ERROR(commit());
  return queue_->notify(done, user);
}

Status GpuStream::wait(uint64_t timeout_ns) {
  MARLIN_RETURN_IF_ERROR(check_waitable());
  // Work that was committed before continues even if this commit fails, and a host may reuse
  // operands once this function has returned.
  const Status committed = commit(), waited = queue_->wait(timeout_ns);
  // Too early, or in the middle of a capture: nothing has failed.
  if (waited.code() == MARLIN_E_TIMEOUT || waited.code() == MARLIN_E_ARGUMENT) return waited;
  idle_ = committed.ok() && waited.ok() && kind_ == MARLIN_NATIVE_NONE;
  MARLIN_RETURN_IF_ERROR(committed);
  return keep(waited);
}

Result<std::unique_ptr<GpuStream>> StreamCache::take() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& kept : std::views::reverse(kept_))
      if (kept != nullptr) return std::exchange(kept, nullptr);
  }
  MARLIN_ASSIGN(auto queue, device_.stream({.timed = true, .trace = {tracer_, nullptr}}));
  return std::make_unique<GpuStream>(std::move(queue), MARLIN_NATIVE_NONE,
                                     device_.capabilities().submission_seconds, DevicePointer(), 0);
}

bool StreamCache::clear() {
  std::array<std::unique_ptr<GpuStream>, kKept> kept;
  const std::lock_guard lock(mutex_);
  kept.swap(kept_);
  return std::any_of(kept.begin(), kept.end(), [](const auto& each) { return each != nullptr; });
}

void StreamCache::put(std::unique_ptr<GpuStream> stream) {
  if (!stream->check().ok()) return;
  const std::lock_guard lock(mutex_);
  for (auto& kept : kept_)
    if (kept == nullptr) {
      kept = std::move(stream);
      return;
    }
}

}  // namespace metal_marlin::gpu
