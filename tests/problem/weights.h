// Random canonical weights of a case, what the oracle makes of them, and the comparison of a product with the oracle.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "oracle.h"
#include "problem/case.h"

namespace problem {

/// Filled by the case's seed. The source may be changed before it is packed.
class Weights {
 public:
  explicit Weights(const Case& c);

  /// Scale number `index`; one-byte types take `byte`, the others `value`.
  void set_scale(int64_t index, double value, uint8_t byte);
  void set_additive_zero(int64_t index, double value);
  /// As the source says. What depends on the packer's choice of slots is the caller's to set.
  oracle::Weights to_oracle() const;

  Case spec;
  metal_marlin::MemorySource source;

 private:
  void fill_codes(Random& random);
  void fill_scales(Random& random);
  void fill_wide_scales(Random& random);
};

/// Normal numbers by the case's seed, rounded to its types.
struct Operands {
  explicit Operands(const Case& c);

  std::vector<double> a, bias;   ///< [m][k], [n] or empty
  std::vector<double> c_before;  ///< what C holds where the product accumulates, [m][columns()]
};

/// The product without its operands.
oracle::Product product_of(const Case& c, const oracle::Weights& weights);

/// Every element of C, [m][columns], against its bound; `worst` becomes the largest error / bound if that is larger.
testing::AssertionResult compare(const std::vector<oracle::Element>& expected, const std::vector<double>& got, int64_t columns,
                                 double* worst = nullptr);

}  // namespace problem
