// Where a call's matrices lie on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/gpu/memory.h"
#include "backends/gpu/stream.h"
#include "core/backend.h"

namespace metal_marlin::gpu {

/// A matrix as kernels get it.
struct Matrix {
  Place place;
  int64_t stride = 0;  ///< in elements
};

/// Where a marlin_buffer or native object lies; the view's memory is not the host's.
Result<Place> place_on_device(device::Device& device, const MatrixView& view);

enum class Access : uint8_t { read, write, update };

/// The operands of one call. Buffers and native objects are taken as they are. The host's own
/// memory is refused on a stream, whose work goes on when the call has returned. Without a stream
/// it is wrapped where whole pages allow it, else its rows are copied through staging memory.
///
/// add() all, then stage(); place() then tells where each is; finish() once the work is done.
class Operands {
 public:
  Operands(device::Device& device, Memory& memory, GpuStream& stream, bool host_memory)
      : device_(device), memory_(memory), stream_(stream), host_memory_(host_memory) {}

  /// Returns what place() wants. `name` is the operand's in messages; `element` is the bytes of
  /// one.
  Result<size_t> add(const MatrixView& view, const char* name, int64_t element, Access access);
  /// Reserves staging memory and copies what is read.
  Status stage();
  Matrix place(size_t index) const;
  /// Copies back what was written.
  void finish() const;
  /// Bytes of staging memory for such a matrix, when it is the host's.
  static uint64_t staging_bytes(const MatrixView& view, int64_t element);

 private:
  struct Entry {
    MatrixView view;
    int64_t element = 0;
    Access access = Access::read;
    bool staged = false;
    Place place;  // of staged ones: set by stage(), but for the offset
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
