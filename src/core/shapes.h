// Do the operands of a product fit each other and the weights? Pure checks: nothing is read,
// allocated or computed.
#pragma once

#include <array>
#include <cstddef>

#include "base/status.h"
#include "core/backend.h"
#include "formats/codecs.h"

namespace metal_marlin {

/// Whether the elements will be touched. `unread` (prepare, explain) asks nothing of pointers.
enum class Pointers { read, unread };

/// Of floats or of expert ids.
int64_t element_bytes(const MatrixView& matrix);

/// From the first byte to past the last; 0 for an empty matrix. Valid once check_matrix() has
/// passed.
int64_t span_bytes(const MatrixView& matrix);

/// What a product reads, as the caller calls it; what is absent has no rows.
struct Input {
  const MatrixView& matrix;
  const char* name;
};
inline constexpr size_t kInputs = 4;
std::array<Input, kInputs> inputs_of(const GemmProblem& problem);

/// rows x cols elements of F32, F16 or BF16 in host memory: sizes not negative, stride >= cols,
/// bytes that fit the address space, naturally aligned, present unless it has no rows. `name` is
/// the operand's in messages ("a", "out").
Status check_matrix(const MatrixView& matrix, const char* name, Pointers pointers = Pointers::read);

/// Everything that must hold before a backend may see the problem: known compute and epilogue,
/// dtypes, shapes against the weights and the routing, and C apart from all inputs.
Status check_gemm(const GemmProblem& problem, Pointers pointers = Pointers::read);

/// The i-th of the selected rows, inside [0, n); ids are read where they lie, which the host must
/// reach. MARLIN_E_ARGUMENT for a listed id outside.
Result<int64_t> selected_row(const RowSelection& rows, int64_t i, int64_t n);

/// That the first `count` listed ids, if ids are listed, are inside [0, n).
Status check_rows(const RowSelection& rows, int64_t count, int64_t n);

/// True when some byte belongs to an element of both. Exact when the byte strides agree (columns of
/// one buffer, side by side) or a matrix has a single row; otherwise the ranges from first to last
/// byte decide.
bool overlap(const MatrixView& a, const MatrixView& b);

}  // namespace metal_marlin
