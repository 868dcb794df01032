#include "core/independent.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/shapes.h"

namespace metal_marlin {
namespace {

constexpr size_t kOperands = 1 + kInputs;
/// The operands of up to this many products need no memory but the stack's.
constexpr size_t kFew = 8;

}  // namespace

void Independence::reserve(size_t products) {
  if (products > kFew) operands_.reserve(products * kOperands);
}

/// The operands that are not empty, by their begin.
std::span<Independence::Operand> Independence::collect(std::span<const PlannedGemm> products,
                                                       std::span<Operand> memory) {
  size_t count = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const GemmProblem& problem = products[i].problem;
    uint32_t place = 0;
    const auto add = [&](const MatrixView& m) {
      const auto begin = reinterpret_cast<uintptr_t>(m.data);
      const auto end = begin + static_cast<uintptr_t>(span_bytes(m));
      if (begin != end) memory[count++] = {begin, end, &m, static_cast<uint32_t>(i), place};
      ++place;
    };
    add(problem.c);
    for (const Input& input : inputs_of(problem)) add(input.matrix);
  }
  std::sort(memory.begin(), memory.begin() + count,
            [](const Operand& x, const Operand& y) { return x.begin < y.begin; });
  return memory.first(count);
}

/// Whether all rows have one stride, and the first rows lie one after another within it: then no
/// row meets another.
bool Independence::lie_side_by_side(std::span<const Operand> operands) {
  int64_t stride = INT64_MAX;  // in bytes
  uintptr_t end = 0;
  for (const Operand& o : operands) {
    const MatrixView& m = *o.matrix;
    const int64_t own = m.rows > 1 ? m.stride * element_bytes(m) : stride;
    if ((stride != INT64_MAX && own != stride) || o.begin < end) return false;
    stride = own;
    end = o.begin + static_cast<uintptr_t>(m.cols * element_bytes(m));
  }
  return end - operands.front().begin <= static_cast<uintptr_t>(stride);
}

/// Compares each operand with those that begin before its end.
Independence::Conflict Independence::first_conflict(std::span<const Operand> operands) {
  Conflict first;
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t j = i + 1; j < operands.size() && operands[j].begin < operands[i].end; ++j) {
      const Operand *writer = &operands[i], *other = &operands[j];
      // Of two C, that of the earlier product is the writer.
      if (other->place == 0 && (writer->place != 0 || other->product < writer->product))
        std::swap(writer, other);
      if (writer->place != 0 || writer->product == other->product) continue;
      const Conflict found{writer->product, other->product, other->place};
      if (found < first && overlap(*writer->matrix, *other->matrix)) first = found;
    }
  return first;
}

Status Independence::check(std::span<const PlannedGemm> products) {
  std::array<Operand, kFew * kOperands> few;
  if (products.size() > kFew) operands_.resize(products.size() * kOperands);
  const std::span<const Operand> all =
      collect(products, products.size() > kFew ? std::span(operands_) : std::span(few));
  Conflict first;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    // The operands of one cluster of overlapping ranges. No other operand touches them.
    uintptr_t reach = all[begin].end;
    bool written = false;
    for (; end < all.size() && (end == begin || all[end].begin < reach); ++end) {
      reach = std::max(reach, all[end].end);
      written = written || all[end].place == 0;
    }
    const auto some = all.subspan(begin, end - begin);
    if (written && !lie_side_by_side(some)) first = std::min(first, first_conflict(some));
  }
  if (first == Conflict{}) return {};
  const GemmProblem& other = products[first.other].problem;
  return Status::error(
      MARLIN_E_ARGUMENT, "c of product %u overlaps %s of product %u; products must be independent",
      first.writer, first.place == 0 ? "c" : inputs_of(other)[first.place - 1].name, first.other);
}

}  // namespace metal_marlin
