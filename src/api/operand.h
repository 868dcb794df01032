// The caller's matrices, checked: what marlin_matrix promises, independent of what the matrix is for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "core/backend.h"
#include "core/shapes.h"

namespace metal_marlin::api {

/// A matrix whose memory this context can reach: sizes and stride not negative, stride >= cols, every byte inside the address
/// space and, in a marlin_buffer, inside the buffer; data naturally aligned, and not null unless it has no elements or is
/// unread.
struct Operand {
  std::byte* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;
  marlin_dtype dtype = 0;
  uint64_t bytes = 0;  ///< from the first byte to past the last

  MatrixView view() const { return {data, rows, cols, stride, dtype}; }
};

/// Checks `matrix` for work in `context`; `name` is the operand's in messages. Unread: nothing is asked of the pointer.
Result<Operand> resolve(const marlin_matrix& matrix, const char* name, const marlin_context& context,
                        Pointers pointers = Pointers::read);

/// True when the byte ranges share a byte.
bool ranges_overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes);

}  // namespace metal_marlin::api
