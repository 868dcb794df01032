// Checks the caller's matrices against the rules of marlin_matrix, whatever the matrix is used for.
// No other place does: the views that the backends get are made here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "core/backend.h"
#include "core/shapes.h"

namespace metal_marlin::api {

/// A matrix whose memory this context can reach. Sizes are not negative, stride >= cols, and rows
/// times stride fit the address space; the stride of a single row is cols. Every byte is inside the
/// address space and inside the marlin_buffer or native buffer, if there is one. The data are
/// naturally aligned, and not null unless the matrix has no elements or is unread.
struct Operand : MatrixView {
  uint64_t bytes = 0;  ///< from the first byte to the last, inclusive

  /// Checks that the host can read `name` at once: it must be in the host's own memory or in a
  /// buffer, else MARLIN_E_UNSUPPORTED.
  Status check_host_reads(const char* name) const;
};

/// Checks `matrix` for work in `context`; `name` is the name of the operand in messages. The
/// pointer of an unread matrix is not checked.
Result<Operand> resolve(const marlin_matrix& matrix, const char* name,
                        const marlin_context& context, Pointers pointers = Pointers::read);
/// The same for a call without a context, which reaches only plain host memory.
Result<Operand> resolve_host(const marlin_matrix& matrix, const char* name);

/// Whether every offset inside `rows` rows of this dtype and stride fits the address space.
bool rows_fit(const MatrixView& matrix, int64_t rows);

/// True if the ranges from first to last byte share a byte.
bool ranges_overlap(const Operand& a, const Operand& b);

}  // namespace metal_marlin::api
