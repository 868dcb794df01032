// Checks that the products of one call are independent of each other.
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
  /// Later calls of up to this many products do not allocate.
  void reserve(size_t products);

  /// Checks that no C overlaps another product's C or inputs, in the sense of overlap(). Each
  /// problem must have passed check_gemm(). If there are several conflicts, the error names the
  /// first product whose C has one, and the first other product that this C touches, its C before
  /// its inputs. Takes n log n steps for n products, unless the ranges of many outputs intersect
  /// although the outputs do not. Outputs side by side in the rows of one buffer take no more
  /// steps than others.
  Status check(std::span<const PlannedGemm> products);

 private:
  /// An operand that is not empty.
  struct Operand {
    uintptr_t begin, end;
    const MatrixView* matrix;
    uint32_t product;
    bool is_c;
  };
  using Operands = std::span<const Operand>;

  void collect(std::span<const PlannedGemm> products);
  bool conflict(size_t last_writer) const;
  static bool lie_in_the_same_rows(Operands operands);
  static bool first_rows_conflict(Operands operands, size_t last_writer);
  static bool pairs_conflict(Operands operands, size_t last_writer);

  std::vector<Operand> operands_;  ///< by their begin
};

}  // namespace metal_marlin
