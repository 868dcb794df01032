#include "backends/gpu/operands.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "base/bits.h"

namespace metal_marlin::gpu {
namespace {

/// Staged rows begin at multiples of the bytes that a kernel loads at once.
constexpr int64_t kStagedRowAlign = 16;
constexpr uint64_t kStagedAlign = 256;

int64_t staged_stride(const MatrixView& view, int64_t element) {
  return round_up(view.cols * element, kStagedRowAlign) / element;
}

/// Copies rows between matrices of equal shape.
void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
               const MatrixView& shape, int64_t element) {
  for (int64_t row = 0; row < shape.rows; ++row)
    std::memcpy(to + row * to_stride * element, from + row * from_stride * element,
                static_cast<size_t>(shape.cols * element));
}

/// The bytes from the first to the last, inclusive.
uint64_t extent_of(const MatrixView& view, int64_t element) {
  return static_cast<uint64_t>(((view.rows - 1) * view.stride + view.cols) * element);
}

}  // namespace

Result<DevicePointer> place_on_device(device::Device& device, const MatrixView& view) {
  if (view.memory == MARLIN_MEM_BUFFER)
    return DevicePointer{static_cast<const GpuBuffer*>(view.buffer)->buffer(), view.offset};
  if (view.memory == MARLIN_MEM_CUDA) {  // the address itself, with its offset
    MARLIN_ASSIGN(device::BufferRef buffer, device.wrap_native(view.data));
    return DevicePointer{std::move(buffer), 0};
  }
  MARLIN_ASSIGN(device::BufferRef buffer, device.wrap_native(view.native));
  return DevicePointer{std::move(buffer), view.offset};
}

Status check_extent(const DevicePointer& place, const device::Stream& stream,
                    const MatrixView& view, const char* name, int64_t element) {
  if (view.memory != MARLIN_MEM_CUDA) return {};
  const uint64_t needed = extent_of(view, element), found = place.buffer->bytes();
  if (needed <= found) return {};
  if (found != 0)
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s needs %" PRIu64 " bytes at %p, its allocation holds %" PRIu64
                         " from there on",
                         name, needed, view.data, found);
  // What a graph allocates itself is no memory before the graph runs.
  if (stream.captured()) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "%s is at %p, where the device knows of no memory; expected %" PRIu64
                       " bytes of device, managed or pinned memory",
                       name, view.data, needed);
}

uint64_t Operands::staging_bytes(const MatrixView& view, int64_t element) {
  if (view.memory != MARLIN_MEM_HOST) return 0;
  return static_cast<uint64_t>(
      round_up(view.rows * staged_stride(view, element) * element, int64_t{kStagedAlign}));
}

/// Wraps only memory of whole pages, because other data on a page may belong to anyone.
bool Operands::try_wrap(Entry& entry) {
  const MatrixView& view = entry.view;
  const uint64_t page = device_.capabilities().page_bytes;
  const uint64_t bytes = extent_of(view, entry.element);
  if (!device_.capabilities().unified_memory ||
      reinterpret_cast<uintptr_t>(view.data) % page != 0 || bytes % page != 0)
    return false;
  auto wrapped = device_.wrap(view.data, bytes, device::Placement::shared);
  if (!wrapped.ok())
    return false;  // copied instead: a mapping may be of a kind that the device does not take
  entry.place.buffer = wrapped.take();
  return true;
}

/// Copies an input that several products share only once.
size_t Operands::add_staged(Entry entry) {
  const MatrixView& v = entry.view;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const MatrixView& w = entries_[i].view;
    if (entry.access == Access::read && entries_[i].access == Access::read &&
        w.memory == MARLIN_MEM_HOST && w.data == v.data && w.rows == v.rows && w.cols == v.cols &&
        w.stride == v.stride && entries_[i].element == entry.element)
      return i;
  }
  if (!try_wrap(entry)) {
    entry.staged = true;
  }
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

Result<size_t> Operands::add(const MatrixView& view, const char* name, int64_t element,
                             Access access) {
  Entry entry{view, element, access, false, {}};
  if (view.memory == MARLIN_MEM_HOST) {
    if (host_memory_) return add_staged(std::move(entry));
    return Status::error(MARLIN_E_ARGUMENT,
                         "%s.memory is 0 (host), expected a buffer or the device's own memory: "
                         "work on a stream goes on when the "
                         "call has returned",
                         name);
  }
  MARLIN_ASSIGN(entry.place, place_on_device(device_, view));
  MARLIN_RETURN_IF_ERROR(check_extent(entry.place, stream_.queue(), view, name, element));
  entries_.push_back(std::move(entry));
  return entries_.size() - 1;
}

/// Gives the staged operands of this kind their places, one after another.
void Operands::reserve(Access access) {
  for (Entry& entry : entries_) {
    if (!entry.staged || entry.access != access) continue;
    entry.place.offset = staged_bytes_;
    staged_bytes_ += staging_bytes(entry.view, entry.element);
  }
}

Status Operands::stage() {
  reserve(Access::read);
  outputs_at_ = staged_bytes_;
  reserve(Access::update);
  const uint64_t inputs = staged_bytes_;
  reserve(Access::write);
  if (staged_bytes_ == 0) return {};
  MARLIN_ASSIGN(staging_, stream_.staging(memory_, staged_bytes_));
  for (Entry& entry : entries_) {
    if (!entry.staged) continue;
    entry.place.buffer = staging_.device;
    if (entry.access == Access::write) continue;
    copy_rows(static_cast<const std::byte*>(entry.view.data), entry.view.stride,
              staging_.host->host() + entry.place.offset, staged_stride(entry.view, entry.element),
              entry.view, entry.element);
  }
  if (inputs == 0 || !staging_.apart()) return {};
  MARLIN_RETURN_IF_ERROR(stream_.begin());
  return stream_.copy(staging_.host, staging_.device, 0, inputs);
}

Status Operands::fetch() const {
  if (outputs_at_ == staged_bytes_ || !staging_.apart()) return {};
  MARLIN_RETURN_IF_ERROR(stream_.begin());
  return stream_.copy(staging_.device, staging_.host, outputs_at_, staged_bytes_ - outputs_at_);
}

Matrix Operands::place(size_t index) const {
  const Entry& entry = entries_[index];
  return {entry.place, entry.staged ? staged_stride(entry.view, entry.element) : entry.view.stride};
}

void Operands::finish() const {
  for (const Entry& entry : entries_)
    if (entry.staged && entry.access != Access::read)
      copy_rows(staging_.host->host() + entry.place.offset,
                staged_stride(entry.view, entry.element), static_cast<std::byte*>(entry.view.data),
                entry.view.stride, entry.view, entry.element);
}

}  // namespace metal_marlin::gpu
