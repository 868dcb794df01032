// One product through the C ABI, checked element by element against the oracle.
#pragma once

#include "guarded.h"
#include "k_blocks.h"
#include "metal_marlin/metal_marlin.h"
#include "oracle.h"
#include "problem/weights.h"
#include "test.h"

namespace trial {

using problem::Case;
using problem::Kind;
using problem::Order;
using problem::ScaleType;
using problem::Strides;
using problem::Tensor;
using problem::ZeroKind;

/// A matrix in guarded memory. The gaps between its rows hold 0xff, which is NaN to whoever reads them.
class Matrix {
 public:
  Matrix() = default;
  Matrix(int64_t rows, int64_t cols, marlin_dtype dtype, Strides strides);
  const marlin_matrix& view() const { return view_; }
  double get(int64_t row, int64_t col) const;
  /// Rounds to the dtype and returns what was stored.
  double set(int64_t row, int64_t col, double x);
  /// All elements, row by row.
  void set(const std::vector<double>& values);
  uint8_t* bytes(int64_t row) const;
  void make_read_only() const { memory_.make_read_only(); }
  bool gaps_untouched() const;
  std::vector<uint8_t> raw() const;

 private:
  int64_t stride() const { return view_.row_stride != 0 ? view_.row_stride : view_.cols; }
  guarded::Memory memory_;
  marlin_matrix view_{};
};

/// Where products run: on a CPU context that lives as long as the process, by number of threads; or on the one that
/// use_context() gave, which stays the caller's (null: on the CPU again).
marlin_context* context(uint32_t threads);
void use_context(marlin_context* context);
/// Whether products run on the CPU, which takes scratch of the host's memory.
bool on_cpu();
/// "avx512-vnni-bf16", ...: what the contexts run on.
std::string isa();
/// Why this run cannot be what METAL_MARLIN_ISA asks for on this processor, or why it would show nothing new; empty when it can
/// and does.
std::string unreachable_isa();
/// Likewise for tests of how work is divided, which does not depend on the instruction set: the short form runs them once.
std::string left_to_own_level();

/// The operands of a case, filled at random by its seed. Members, and the source of the weights, may be changed before pack().
class Trial : public problem::Weights {
 public:
  explicit Trial(const Case& c);
  ~Trial() { marlin_weights_destroy(weights_); }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// What pack() packs; lives as long as the trial.
  std::vector<marlin_pack_desc> parts();
  testing::AssertionResult pack();
  /// The product, into a C as it was before: NaN, unless it accumulates.
  testing::AssertionResult run();
  /// Every element against its bound, and the gaps of C.
  testing::AssertionResult check();
  /// marlin_weights_unpack against the oracle, bit for bit.
  testing::AssertionResult check_unpack();
  std::string explain() const;
  /// What `explain` says under this key.
  std::string explained(const std::string& key) const;
  marlin_gemm_desc gemm_desc() const;
  oracle::Product product() const;

  oracle::Weights expected;  ///< refreshed from the source by pack()
  Matrix a, bias, c;
  std::vector<double> c_before;  ///< [m][columns]; used when accumulating
  bool special = false;          ///< has special values, after which little may be left of a sum
  double worst = 0;              ///< largest error / bound that check() saw
  std::unique_ptr<Trial> other;  ///< when spec.together: packed, run (on this one's A) and checked with this one

 private:
  void fill_operands();
  void store_weights();
  void store_codes(int64_t row);
  void clear_c();
  const Matrix& activations() const { return shared_ != nullptr ? shared_->a : a; }

  const Trial* shared_ = nullptr;  ///< whose `other` this is
  Matrix values_, kept_, scales_, zeros_, group_index_;
  marlin_weights* weights_ = nullptr;
  float factors_[2] = {};
};

/// pack, run, check: the failure says which case.
testing::AssertionResult holds(const Case& c, double* worst = nullptr);

}  // namespace trial
