// Are the products of one call independent of each other?
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/backend.h"

namespace metal_marlin {

/// Checks calls one after another and keeps its memory from call to call.
class Independence {
 public:
  /// Later calls of up to so many products will not allocate.
  void reserve(size_t products);

  /// That no C overlaps another problem's C or inputs, as overlap() has it. Each problem has passed
  /// check_gemm(). Of several conflicts the error names that of the first product whose C is in
  /// one, with the first other product that it touches, and there C before the inputs. Takes n log
  /// n steps for n products, unless the ranges of many outputs intersect though the outputs do not;
  /// those that lie side by side in the rows of one buffer take no more steps than others.
  Status check(std::span<const GemmProblem> problems);

 private:
  /// An operand that has bytes.
  struct Operand {
    uintptr_t begin, end;
    const MatrixView* matrix;
    uint32_t product;
    bool is_c;
  };
  using Operands = std::span<const Operand>;

  void collect(std::span<const GemmProblem> problems);
  bool conflict(size_t last_writer) const;
  static bool lie_in_the_same_rows(Operands operands);
  static bool first_rows_conflict(Operands operands, size_t last_writer);
  static bool pairs_conflict(Operands operands, size_t last_writer);

  std::vector<Operand> operands_;  ///< by their begin
};

}  // namespace metal_marlin
