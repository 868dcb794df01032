// The caller's matrices, checked: what marlin_matrix promises, independent of what the matrix is
// for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "core/backend.h"
#include "core/shapes.h"

namespace metal_marlin::api {

/// A matrix whose memory this context can reach: sizes and stride not negative, stride >= cols,
/// every byte inside the address space and, in a marlin_buffer or a native one, inside that; data
/// naturally aligned, and not null unless it has no elements or is unread.
struct Operand : MatrixView {
  uint64_t bytes = 0;  ///< from the first byte to past the last

  /// Only the host's own memory and buffers: `name` is read here and now. MARLIN_E_UNSUPPORTED for
  /// any other.
  Status check_host_reads(const char* name) const;
};

/// Checks `matrix` for work in `context`; `name` is the operand's in messages. Unread: nothing is
/// asked of the pointer.
Result<Operand> resolve(const marlin_matrix& matrix, const char* name,
                        const marlin_context& context, Pointers pointers = Pointers::read);
/// The same for a call without a context, which reaches plain host memory only.
Result<Operand> resolve_host(const marlin_matrix& matrix, const char* name);

/// True when the ranges from first to last byte share a byte.
bool ranges_overlap(const Operand& a, const Operand& b);

}  // namespace metal_marlin::api
