// Checks that the products of one call are independent of each other.
#pragma once

#include <compare>
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
  /// its inputs. Takes n log n steps for n products. Where ranges from first to last byte meet that
  /// of a C, and the matrices are not columns of one buffer, it takes a step for each pair of them.
  Status check(std::span<const PlannedGemm> products);

 private:
  /// An operand that is not empty.
  struct Operand {
    uintptr_t begin, end;
    const MatrixView* matrix;
    uint32_t product;
    uint32_t place;  ///< 0: C; else 1 and its index among the inputs
  };
  /// The C of `writer` overlaps this operand of `other`. The least one is reported.
  struct Conflict {
    uint32_t writer = UINT32_MAX, other = 0, place = 0;
    auto operator<=>(const Conflict&) const = default;
  };

  static std::span<Operand> collect(std::span<const PlannedGemm> products,
                                    std::span<Operand> memory);
  static bool lie_side_by_side(std::span<const Operand> operands);
  static Conflict first_conflict(std::span<const Operand> operands);

  std::vector<Operand> operands_;
};

}  // namespace metal_marlin
