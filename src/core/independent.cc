#include "core/independent.h"

#include <algorithm>

#include "core/shapes.h"

namespace metal_marlin {
namespace {

/// Up to this many products are compared pairwise, which takes less time than sorting and no
/// memory.
constexpr size_t kFew = 8;

/// The caller's name of the operand of `other` that the C of `writer` overlaps, or null. The two C
/// are compared if `other` is the later product.
const char* overlapped(const GemmProblem& writer, const GemmProblem& other, bool later) {
  if (later && overlap(writer.c, other.c)) return "c";
  for (const Input& input : inputs_of(other))
    if (overlap(writer.c, input.matrix)) return input.name;
  return nullptr;
}

Status check_writer(std::span<const PlannedGemm> products, size_t writer) {
  const GemmProblem& own = products[writer].problem;
  for (size_t other = 0; other < products.size(); ++other) {
    if (other == writer) continue;
    if (const char* const name = overlapped(own, products[other].problem, other > writer))
      return Status::error(
          MARLIN_E_ARGUMENT,
          "c of product %zu overlaps %s of product %zu; products must be independent", writer, name,
          other);
  }
  return {};
}

int64_t row_bytes(const MatrixView& m) { return m.cols * element_bytes(m); }

}  // namespace

void Independence::reserve(size_t products) {
  if (products > kFew) operands_.reserve(products * (1 + kInputs));
}

void Independence::collect(std::span<const PlannedGemm> products) {
  operands_.clear();
  for (size_t i = 0; i < products.size(); ++i) {
    const GemmProblem& problem = products[i].problem;
    const auto add = [&](const MatrixView& m, bool is_c) {
      const int64_t bytes = span_bytes(m);
      const auto begin = reinterpret_cast<uintptr_t>(m.data);
      if (bytes != 0)
        operands_.push_back(
            {begin, begin + static_cast<uintptr_t>(bytes), &m, static_cast<uint32_t>(i), is_c});
    };
    add(problem.c, true);
    for (const Input& input : inputs_of(problem)) add(input.matrix, false);
  }
  std::sort(operands_.begin(), operands_.end(),
            [](const Operand& x, const Operand& y) { return x.begin < y.begin; });
}

/// Whether the matrices of a product repeat with the same stride, and the first row of each matrix
/// ends before the first repetition of any. Then two of them overlap if their first rows overlap.
bool Independence::lie_in_the_same_rows(Operands operands) {
  int64_t stride = 0;  // in bytes; 0: there are single rows only
  for (const Operand& o : operands) {
    if (o.matrix->rows == 1) continue;
    const int64_t own = o.matrix->stride * element_bytes(*o.matrix);
    if (stride != 0 && own != stride) return false;
    stride = own;
  }
  if (stride == 0) return true;
  const auto fits = [&](const Operand& o) {
    return o.begin + static_cast<uintptr_t>(row_bytes(*o.matrix)) <=
           operands[0].begin + static_cast<uintptr_t>(stride);
  };
  return std::all_of(operands.begin(), operands.end(), fits);
}

bool Independence::first_rows_conflict(Operands operands, size_t last_writer) {
  uintptr_t end_of_all = 0, end_of_written = 0;
  for (const Operand& o : operands) {
    const bool written = o.is_c && o.product <= last_writer;
    if (o.begin < (written ? end_of_all : end_of_written)) return true;
    const uintptr_t end = o.begin + static_cast<uintptr_t>(row_bytes(*o.matrix));
    end_of_all = std::max(end_of_all, end);
    if (written) end_of_written = std::max(end_of_written, end);
  }
  return false;
}

bool Independence::pairs_conflict(Operands operands, size_t last_writer) {
  const auto writes = [&](const Operand& o) { return o.is_c && o.product <= last_writer; };
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t j = i + 1; j < operands.size() && operands[j].begin < operands[i].end; ++j)
      if ((writes(operands[i]) || writes(operands[j])) &&
          overlap(*operands[i].matrix, *operands[j].matrix))
        return true;
  return false;
}

/// Whether the C of a product up to `last_writer` overlaps any other operand.
bool Independence::conflict(size_t last_writer) const {
  const Operands all = operands_;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    // The operands of one cluster of overlapping ranges. No other operand touches them.
    uintptr_t reach = all[begin].end;
    bool written = false;
    for (end = begin; end < all.size() && (end == begin || all[end].begin < reach); ++end) {
      reach = std::max(reach, all[end].end);
      written = written || (all[end].is_c && all[end].product <= last_writer);
    }
    const Operands some = all.subspan(begin, end - begin);
    if (!written || some.size() == 1) continue;
    if (lie_in_the_same_rows(some) ? first_rows_conflict(some, last_writer)
                                   : pairs_conflict(some, last_writer))
      return true;
  }
  return false;
}

Status Independence::check(std::span<const PlannedGemm> products) {
  if (products.size() <= kFew) {
    for (size_t i = 0; i < products.size(); ++i) MARLIN_RETURN_IF_ERROR(check_writer(products, i));
    return {};
  }
  collect(products);
  if (!conflict(products.size() - 1)) return {};
  // Bisection finds the first product with a conflict: more writers never have fewer conflicts.
  size_t first = 0;
  for (size_t end = products.size() - 1; first < end;) {
    const size_t middle = first + (end - first) / 2;
    conflict(middle) ? end = middle : first = middle + 1;
  }
  return check_writer(products, first);
}

}  // namespace metal_marlin
