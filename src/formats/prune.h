// 2:4 sparsity of canonical weights: which two of every four elements along K are kept.
//
// - Pruning keeps the two of the largest score, the lower index on ties. The score is |w|: of
// floats before any scale is chosen,
//   of codes what they stand for (FP4 formats: the magnitude of the E2M1 number; INT4: |q - zero|,
//   or |q * scale + zero|). With norms of the activations' columns it is |w| * norm (Wanda: Sun et
//   al., "A Simple and Effective Pruning Approach for Large Language Models", 2023); both factors
//   are floats, so that a product of doubles is exact and equal scores are equal.
// - Obeying means that a block has at most two elements that are not 0; those are kept, and then
// the lowest others up to two.
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
  /// With prune only: [k], finite and not negative, alive as long as the source made by this rule;
  /// empty: all 1.
  std::span<const float> column_norms{};
};

/// The rule that MARLIN_PACK_PRUNE_2_4, MARLIN_PACK_OBEYS_2_4 (or MARLIN_LOAD_ and MARLIN_CONVERT_,
/// which are the same bits) ask for. MARLIN_E_ARGUMENT for both, and for norms without PRUNE_2_4.
Result<SparseRule> sparse_rule(uint32_t flags, std::span<const float> column_norms);

/// Bit i: the score of element i is one of the two largest of four, the lower index on ties. NaN
/// counts as the largest.
constexpr uint8_t keep_two_largest(const double (&score)[4]) {
  const auto before = [&](int j, int i) {  // j goes before i
    const bool j_nan = score[j] != score[j], i_nan = score[i] != score[i];
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

/// A mask of at most two bits, and the lowest others up to two.
constexpr uint8_t fill_kept(unsigned mask) {
  while (std::popcount(mask) < 2) mask |= mask + 1;
  return static_cast<uint8_t>(mask);
}

/// That the stripe, rows first .. first + rows - 1 of a 2:4 sparse matrix, has a mask of two kept
/// elements for every four: packed layouts hold two codes, no more and no less. MARLIN_E_FORMAT
/// with the place.
Status check_kept(const WeightMeta& meta, const Stripe& stripe, int64_t first, int64_t rows);

/// That the norms are k, finite and not negative: MARLIN_E_SHAPE, or MARLIN_E_FORMAT with the
/// index.
Status check_column_norms(const SparseRule& rule, int64_t k);

/// Masks of the k / 4 blocks of a row of numbers. Obeying: MARLIN_E_FORMAT names `name`, `row` and
/// the columns of the block.
Status keep_of_floats(std::span<const double> w, const SparseRule& rule, const std::string& name,
                      int64_t row, uint8_t* kept);

/// Sums of squares of one row after another, so that the share which pruning kept does not depend
/// on who reads what when.
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

/// Another source of 4-bit codes, as 2:4 sparse by the rule (not as_given). Pruning one that is
/// sparse keeps what it keeps; obeying is about dense ones: MARLIN_E_ARGUMENT. MARLIN_E_SHAPE
/// unless k % 4 == 0; MARLIN_E_UNSUPPORTED for INT8 and for a group index. Pruning reads the whole
/// source once here, for the norms; what does not obey is found by read().
Result<std::unique_ptr<WeightSource>> make_sparse(std::unique_ptr<WeightSource> source,
                                                  const SparseRule& rule);

}  // namespace metal_marlin
