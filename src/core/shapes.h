// Checks that the operands of a product fit each other and the weights. The checks do not read,
// allocate or compute anything.
#pragma once

#include <array>
#include <cstddef>

#include "base/status.h"
#include "core/backend.h"
#include "formats/codecs.h"

namespace metal_marlin {

/// Whether the elements will be accessed. `unread` (prepare, explain) does not check pointers.
enum class Pointers { read, unread };

/// The size of an element of floats or expert ids.
int64_t element_bytes(const MatrixView& matrix);

/// The bytes from the first to the last, inclusive; 0 for an empty matrix.
int64_t span_bytes(const MatrixView& matrix);

/// The inputs of a product with the caller's names. An absent input has no rows.
struct Input {
  const MatrixView& matrix;
  const char* name;
};
inline constexpr size_t kInputs = 4;
std::array<Input, kInputs> inputs_of(const GemmProblem& problem);

/// Checks that the elements are F32, F16 or BF16. `name` is that of the operand in messages.
Status check_floats(const MatrixView& matrix, const char* name);

/// Gives a product the epilogue of a descriptor with its numbers. A number that is 0 is none.
void set_epilogue(GemmProblem& problem, marlin_epilogue epilogue, const GateNumbers& given);

/// Checks what must hold of checked matrices before a backend may see the problem: compute and
/// epilogue are known, dtypes and shapes fit the weights and the routing, and C does not overlap
/// any input.
Status check_gemm(const GemmProblem& problem, Pointers pointers = Pointers::read);

/// The i-th of the selected rows, inside [0, n). The host must reach the ids. A listed id outside
/// this range is MARLIN_E_ARGUMENT.
Result<int64_t> selected_row(const RowSelection& rows, int64_t i, int64_t n);

/// Checks that the first `count` listed ids, if ids are listed, are inside [0, n).
Status check_rows(const RowSelection& rows, int64_t count, int64_t n);

/// True if some byte belongs to an element of both. The answer is exact if the byte strides agree
/// (columns of one buffer, side by side) or if a matrix has a single row. Otherwise the ranges from
/// first to last byte decide.
bool overlap(const MatrixView& a, const MatrixView& b);

}  // namespace metal_marlin
