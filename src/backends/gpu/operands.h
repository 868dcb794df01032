// The places of the matrices of a call on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/memory.h"
#include "backends/gpu/stream.h"
#include "core/backend.h"

namespace metal_marlin::gpu {

/// A matrix in the form that kernels need.
struct Matrix {
  DevicePointer place;
  int64_t stride = 0;  ///< in elements
  /// The place of a row, whose elements have so many bytes.
  DevicePointer row(int64_t row, uint64_t element) const {
    return place.at(static_cast<uint64_t>(row * stride) * element);
  }
};

/// The place of a marlin_buffer or native object. The memory of the view must not be the host's.
Result<DevicePointer> place_on_device(device::Device& device, const MatrixView& view);
/// The boundary has checked that objects with a length hold their views. A bare address has none,
/// but the device may know one: MARLIN_E_ARGUMENT if the view is longer. `name` is the name of the
/// operand in messages; `element` is the bytes of an element.
Status check_extent(const DevicePointer& place, const device::Stream& stream,
                    const MatrixView& view, const char* name, int64_t element);

enum class Access : uint8_t { read, write, update };

/// The operands of one call. Buffers and native objects are used directly. The host's own memory is
/// refused on a stream, whose work continues after the call has returned. Without a stream, whole
/// pages are wrapped, and the rows of other operands are copied through staging memory. Where
/// memory is not unified, the device copies them on: kernels that read the host's memory would
/// fetch each operand over the bus once for every tile.
///
/// Call add() for all operands, then stage(). place() then returns the place of each. Call fetch()
/// when the work is recorded and finish() when it is done.
class Operands {
 public:
  Operands(device::Device& device, Memory& memory, GpuStream& stream, bool host_memory)
      : device_(device), memory_(memory), stream_(stream), host_memory_(host_memory) {}

  /// Returns the argument for place(); `name` and `element` are those of check_extent().
  Result<size_t> add(const MatrixView& view, const char* name, int64_t element, Access access);
  /// Reserves staging memory, copies the inputs, and records their copy to the device.
  Status stage();
  Matrix place(size_t index) const;
  /// Records the copy of the outputs from the device.
  Status fetch() const;
  /// Copies the outputs to where the host wants them.
  void finish() const;
  /// The bytes of staging memory for such a matrix if it is in host memory.
  static uint64_t staging_bytes(const MatrixView& view, int64_t element);

 private:
  struct Entry {
    MatrixView view;
    int64_t element = 0;
    Access access = Access::read;
    bool staged = false;
    DevicePointer place;  // of staged operands: set by stage()
  };
  bool try_wrap(Entry& entry);
  void reserve(Access access);
  size_t add_staged(Entry entry);

  device::Device& device_;
  Memory& memory_;
  GpuStream& stream_;
  const bool host_memory_;
  std::vector<Entry> entries_;
  Staging staging_;
  // Inputs lie first, then what is input and output, then outputs.
  uint64_t staged_bytes_ = 0, outputs_at_ = 0;
};

}  // namespace metal_marlin::gpu
