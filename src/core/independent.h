// Checks that the products of one call are independent of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/backend.h"
#include "core/row_sweep.h"

namespace metal_marlin {

/// Checks calls one after another and keeps its memory from call to call.
class Independence {
 public:
  /// Later calls of up to this many products do not allocate.
  void reserve(size_t products);

  /// Checks that no C overlaps another product's C or inputs, in the sense of overlap(). Each
  /// problem must have passed check_gemm(). If there are several conflicts, the error names the
  /// first product whose C has one, and the first other product that this C touches, its C before
  /// its inputs. Takes n log n steps for n products, and more only where single rows that are
  /// written lie in the ranges of matrices of many row strides; log n times as many to find which
  /// products conflict.
  Status check(std::span<const PlannedGemm> products);
  /// Comparisons and visits of operands, of all checks of more than a few products so far.
  uint64_t steps() const { return steps_ + sweep_.steps(); }

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
  bool conflict(size_t last_writer);
  bool lie_in_the_same_rows(Operands operands);
  bool first_rows_conflict(Operands operands, size_t last_writer);
  bool strides_conflict(Operands operands, size_t last_writer);
  bool rows_conflict(Operands operands, size_t last_writer);
  void add_rows(const Operand& operand, uint64_t offset, uint64_t stride, bool written);

  std::vector<Operand> operands_;  ///< by their begin
  /// Of a cluster, ascending: the row strides; where matrices of several rows begin and end, by
  /// their strides; the same of all strides.
  std::vector<uint64_t> strides_;
  std::vector<std::pair<uint64_t, uint64_t>> begins_, ends_;
  std::vector<uint64_t> all_begins_, all_ends_;
  std::vector<Operand> singles_, several_;  ///< of a cluster: single rows, and the others
  RowSweep sweep_;
  uint64_t steps_ = 0;
};

}  // namespace metal_marlin
