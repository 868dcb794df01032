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
/// In bytes, of a matrix of several rows.
uint64_t row_stride(const MatrixView& m) {
  return static_cast<uint64_t>(m.stride * element_bytes(m));
}

template <class T>
void sort_counting(std::vector<T>& values, uint64_t& steps) {
  std::sort(values.begin(), values.end(), [&](const T& x, const T& y) {
    ++steps;
    return x < y;
  });
}
/// How many of the sorted values are below this one.
template <class T>
size_t below(const std::vector<T>& values, const T& value, uint64_t& steps) {
  const auto at =
      std::lower_bound(values.begin(), values.end(), value, [&](const T& x, const T& y) {
        ++steps;
        return x < y;
      });
  return static_cast<size_t>(at - values.begin());
}

/// A single row may end in a third row of another matrix.
constexpr size_t kPieces = 3;

}  // namespace

void Independence::reserve(size_t products) {
  if (products <= kFew) return;
  const size_t operands = products * (1 + kInputs);
  operands_.reserve(operands);
  for (auto* places : {&strides_, &all_begins_, &all_ends_}) places->reserve(operands);
  for (auto* some : {&singles_, &several_}) some->reserve(operands);
  begins_.reserve(operands);
  ends_.reserve(operands);
  sweep_.reserve(operands * kPieces);
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
  std::sort(operands_.begin(), operands_.end(), [&](const Operand& x, const Operand& y) {
    ++steps_;
    return x.begin < y.begin;
  });
}

/// Whether the matrices of a product repeat with the same stride, and the first row of each matrix
/// ends before the first repetition of any. Then two of them overlap if their first rows overlap.
bool Independence::lie_in_the_same_rows(Operands operands) {
  int64_t stride = 0;  // in bytes; 0: there are single rows only
  for (const Operand& o : operands) {
    ++steps_;
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
    ++steps_;
    const bool written = o.is_c && o.product <= last_writer;
    if (o.begin < (written ? end_of_all : end_of_written)) return true;
    const uintptr_t end = o.begin + static_cast<uintptr_t>(row_bytes(*o.matrix));
    end_of_all = std::max(end_of_all, end);
    if (written) end_of_written = std::max(end_of_written, end);
  }
  return false;
}

/// Whether a written matrix of several rows meets one of another stride, where ranges decide: there
/// are more ranges of all strides than of its own that meet its range. Fills in strides_.
bool Independence::strides_conflict(Operands operands, size_t last_writer) {
  for (auto* places : {&strides_, &all_begins_, &all_ends_}) places->clear();
  begins_.clear();
  ends_.clear();
  for (const Operand& o : operands) {
    ++steps_;
    if (o.matrix->rows == 1) continue;
    const uint64_t stride = row_stride(*o.matrix);
    strides_.push_back(stride);
    begins_.emplace_back(stride, o.begin);
    ends_.emplace_back(stride, o.end);
    all_begins_.push_back(o.begin);
    all_ends_.push_back(o.end);
  }
  sort_counting(strides_, steps_);
  strides_.erase(std::unique(strides_.begin(), strides_.end()), strides_.end());
  if (strides_.size() < 2) return false;
  sort_counting(begins_, steps_);
  sort_counting(ends_, steps_);
  sort_counting(all_begins_, steps_);
  sort_counting(all_ends_, steps_);
  for (const Operand& o : operands) {
    if (o.matrix->rows == 1 || !o.is_c || o.product > last_writer) continue;
    const uint64_t stride = row_stride(*o.matrix), zero = 0;
    // Those that begin before its end, without those that end before its begin.
    const size_t all = below(all_begins_, uint64_t{o.end}, steps_) -
                       below(all_ends_, uint64_t{o.begin} + 1, steps_);
    const size_t own =
        below(begins_, {stride, o.end}, steps_) - below(begins_, {stride, zero}, steps_) -
        (below(ends_, {stride, o.begin + 1}, steps_) - below(ends_, {stride, zero}, steps_));
    if (all != own) return true;
  }
  return false;
}

/// Adds the bytes of an operand, which begins at `offset`, as rectangles of rows of `stride` bytes.
void Independence::add_rows(const Operand& operand, uint64_t offset, uint64_t stride,
                            bool written) {
  ++steps_;
  const uint64_t row = offset / stride, column = offset % stride;
  const auto width = static_cast<uint64_t>(row_bytes(*operand.matrix));
  if (operand.matrix->rows > 1) {  // a row is not longer than the stride
    const auto rows = static_cast<uint64_t>(operand.matrix->rows);
    const uint64_t first = std::min(width, stride - column);
    sweep_.add({row, row + rows, column, column + first, written});
    sweep_.add({row + 1, row + 1 + rows, 0, width - first, written});
    return;
  }
  const uint64_t end = offset + width, last = end / stride;
  if (row == last) {
    sweep_.add({row, row + 1, column, end % stride, written});
    return;
  }
  sweep_.add({row, row + 1, column, stride, written});
  sweep_.add({row + 1, last, 0, stride, written});
  sweep_.add({last, last + 1, 0, end % stride, written});
}

/// Whether a written operand meets another, of a cluster without a conflict of strides: each stride
/// has a sweep over its matrices and the single rows in their range, of which those that are only
/// read matter to written matrices alone. A range with a written matrix meets no other stride's.
bool Independence::rows_conflict(Operands operands, size_t last_writer) {
  singles_.clear();
  several_.clear();
  uintptr_t longest = 0;
  for (const Operand& o : operands) {
    ++steps_;
    const bool single = o.matrix->rows == 1;
    (single ? singles_ : several_).push_back(o);
    if (single) longest = std::max(longest, o.end - o.begin);
  }
  if (first_rows_conflict(singles_, last_writer)) return true;
  std::sort(several_.begin(), several_.end(), [&](const Operand& x, const Operand& y) {
    ++steps_;
    return std::pair(row_stride(*x.matrix), x.begin) < std::pair(row_stride(*y.matrix), y.begin);
  });
  const auto is_written = [&](const Operand& o) { return o.is_c && o.product <= last_writer; };
  for (size_t begin = 0, end = 0; begin < several_.size(); begin = end) {
    const uint64_t stride = row_stride(*several_[begin].matrix);
    const uintptr_t first = several_[begin].begin;
    uintptr_t reach = 0;
    bool written = false;
    sweep_.clear();
    for (; end < several_.size() && row_stride(*several_[end].matrix) == stride; ++end) {
      const Operand& o = several_[end];
      add_rows(o, o.begin - operands[0].begin, stride, is_written(o));
      reach = std::max(reach, o.end);
      written = written || is_written(o);
    }
    auto single =
        std::lower_bound(singles_.begin(), singles_.end(), first - std::min(first, longest),
                         [](const Operand& o, uintptr_t place) { return o.begin < place; });
    bool writes = written;
    for (; single != singles_.end() && single->begin < reach; ++single) {
      ++steps_;
      if (single->end <= first || !(written || is_written(*single))) continue;
      add_rows(*single, single->begin - operands[0].begin, stride, is_written(*single));
      writes = true;
    }
    if (writes && sweep_.meet()) return true;
  }
  return false;
}

/// Whether the C of a product up to `last_writer` overlaps any other operand.
bool Independence::conflict(size_t last_writer) {
  const Operands all = operands_;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    // The operands of one cluster of overlapping ranges. No other operand touches them.
    uintptr_t reach = all[begin].end;
    bool written = false;
    for (end = begin; end < all.size() && (end == begin || all[end].begin < reach); ++end) {
      ++steps_;
      reach = std::max(reach, all[end].end);
      written = written || (all[end].is_c && all[end].product <= last_writer);
    }
    const Operands some = all.subspan(begin, end - begin);
    if (!written || some.size() == 1) continue;
    if (lie_in_the_same_rows(some)) {
      if (first_rows_conflict(some, last_writer)) return true;
      continue;
    }
    if (strides_conflict(some, last_writer) || rows_conflict(some, last_writer)) return true;
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
