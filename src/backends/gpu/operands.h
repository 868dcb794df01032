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
};

/// The place of a marlin_buffer or native object. The memory of the view must not be the host's.
Result<DevicePointer> place_on_device(device::Device& device, const MatrixView& view);

enum class Access : uint8_t { read, write, update };

/// The operands of one call. Buffers and native objects are used directly. The host's own memory is
/// refused on a stream, whose work continues after the call has returned. Without a stream, whole
/// pages are wrapped, and the rows of other operands are copied through staging memory.
///
/// Call add() for all operands, then stage(). place() then returns the place of each. Call finish()
/// when the work is done.
class Operands {
 public:
  Operands(device::Device& device, Memory& memory, GpuStream& stream, bool host_memory)
      : device_(device), memory_(memory), stream_(stream), host_memory_(host_memory) {}

  /// Returns the argument for place(). `name` is the name of the operand in messages; `element` is
  /// the bytes of an element.
  Result<size_t> add(const MatrixView& view, const char* name, int64_t element, Access access);
  /// Reserves staging memory and copies the inputs.
  Status stage();
  Matrix place(size_t index) const;
  /// Copies back the outputs.
  void finish() const;
  /// The bytes of staging memory for such a matrix if it is in host memory.
  static uint64_t staging_bytes(const MatrixView& view, int64_t element);

 private:
  struct Entry {
    MatrixView view;
    int64_t element = 0;
    Access access = Access::read;
    bool staged = false;
    DevicePointer place;  // of staged operands: set by stage(), except for the offset
  };
  bool try_wrap(Entry& entry);
  size_t add_staged(Entry entry);

  device::Device& device_;
  Memory& memory_;
  GpuStream& stream_;
  const bool host_memory_;
  std::vector<Entry> entries_;
  uint64_t staging_ = 0;
};

}  // namespace metal_marlin::gpu
