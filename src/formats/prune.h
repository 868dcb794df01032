// 2:4 sparsity of canonical weights: which two of every four elements along K are kept.
//
// - Pruning keeps the two elements with the largest scores, the lower index on ties. The score is
//   |w|. For floats it is taken before any scale is chosen. For codes it is the magnitude of their
//   value (FP4 formats: of the E2M1 number; INT4: |q - zero|, or |q * scale + zero|). With norms of
//   the columns of activations, the score is |w| * norm (Wanda: Sun et al., "A Simple and Effective
//   Pruning Approach for Large Language Models", 2023). Both factors are floats, so the product of
//   doubles is exact, and equal scores compare equal.
// - A block obeys if at most two of its elements are not 0. These elements are kept, and zeros of
//   the lowest index fill up to two.
// - A block of 4 never spans two groups: group sizes are multiples of 4, or one group is the row.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

enum class Sparsity : uint8_t {
  as_given,
  prune,  ///< to 2:4, by score
  obey,   ///< the elements are dense but obey 2:4; MARLIN_E_FORMAT with its place otherwise
};

struct SparseRule {
  Sparsity sparsity = Sparsity::as_given;
  /// [k] norms, finite and not negative. They rank weights to prune, and weigh the errors of
  /// QuantizeOptions::search_mse. They must live as long as the source that this rule makes. Empty
  /// means that all are 1.
  std::span<const float> column_norms{};
};

/// The rule of MARLIN_PACK_PRUNE_2_4 or MARLIN_PACK_OBEYS_2_4 (MARLIN_LOAD_ and MARLIN_CONVERT_
/// have the same bits). Both together, or norms without PRUNE_2_4, are MARLIN_E_ARGUMENT.
Result<SparseRule> sparse_rule(uint32_t flags, std::span<const float> column_norms);

/// Bit i is set if the score of element i is one of the two largest of four; on ties the lower
/// index wins. NaN counts as the largest.
constexpr uint8_t keep_two_largest(const double (&score)[4]) {
  const auto is_nan = [](double x) { return x != x; };
  const auto before = [&](int j, int i) {  // j goes before i
    const bool j_nan = is_nan(score[j]), i_nan = is_nan(score[i]);
    if (j_nan != i_nan) return j_nan;
    return score[j] > score[i] || ((j_nan || score[j] == score[i]) && j < i);
  };
  unsigned kept = 0;
  for (int i = 0; i < 4; ++i) {
    int ahead = 0;
    for (int j = 0; j < 4; ++j) ahead += j != i && before(j, i);
    kept |= ahead < 2 ? 1u << i : 0u;
  }
  return static_cast<uint8_t>(kept);
}

/// Adds the lowest bits to a mask of at most two bits, until it has two.
constexpr uint8_t fill_kept(unsigned mask) {
  while (std::popcount(mask) < 2) mask |= mask + 1;
  return static_cast<uint8_t>(mask);
}

/// Checks that every mask of the stripe, rows first .. first + rows - 1 of a 2:4 sparse matrix,
/// keeps exactly two of four elements, because packed layouts hold exactly two codes. A violation
/// is MARLIN_E_FORMAT with its place.
Status check_kept(const WeightMeta& meta, const Stripe& stripe, int64_t first, int64_t rows);

/// Checks that there are k norms (else MARLIN_E_SHAPE), finite and not negative (else
/// MARLIN_E_FORMAT with the index).
Status check_column_norms(std::span<const float> norms, int64_t k);

/// Masks of the k / 4 blocks of a row of numbers. If a block should obey and does not,
/// MARLIN_E_FORMAT names `name`, `row` and the columns of the block.
Status keep_of_floats(std::span<const double> w, const SparseRule& rule, const std::string& name,
                      int64_t row, uint8_t* kept);

/// Adds the squares of one row after another, so that the share which pruning kept does not depend
/// on the order in which threads read the rows.
class KeptNorm {
 public:
  void add(double w, bool kept) {
    row_squared_ += w * w;
    if (kept) row_kept_ += w * w;
  }
  void end_row() {
    squared_ += row_squared_;
    kept_ += row_kept_;
    row_squared_ = row_kept_ = 0;
  }
  void store(WeightMeta& meta) const {
    meta.squared_norm = squared_;
    meta.kept_norm = kept_;
  }

 private:
  double row_squared_ = 0, row_kept_ = 0, squared_ = 0, kept_ = 0;
};

/// Makes a source of 4-bit codes 2:4 sparse by the rule (not as_given). Pruning a sparse source
/// keeps its pattern; obeying needs a dense source, else MARLIN_E_ARGUMENT. k must be a multiple of
/// 4, else MARLIN_E_SHAPE. INT8 and a group index are MARLIN_E_UNSUPPORTED. Pruning reads the whole
/// source once here, for the norms. read() finds blocks that do not obey.
Result<std::unique_ptr<WeightSource>> make_sparse(std::unique_ptr<WeightSource> source,
                                                  const SparseRule& rule);

}  // namespace metal_marlin
