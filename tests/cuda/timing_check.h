// Whether results on the device are right: some elements against the float64 oracle.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle.h"
#include "timing_device.h"
#include "timing_operands.h"

namespace timing {

/// What became of elements whose values and bounds the oracle gave.
class Verdict {
 public:
  void add(const oracle::Element& expected, double got);
  void add(const Verdict& of_others);
  double worst() const { return worst_; }  ///< the largest error over its bound
  /// Sum of squared errors over sum of squares; rounding to bfloat16 alone makes 3e-6.
  double nmse() const { return errors_ / squares_; }
  bool is_right() const { return worst_ <= 1; }

 private:
  double worst_ = 0, errors_ = 0, squares_ = 0;
};

/// How products are computed: a type, and of INT8 the activations that share a scale.
struct Compute {
  const char* name = "default";
  marlin_compute type = MARLIN_COMPUTE_DEFAULT;
  int64_t activation_group = 0;  ///< of marlin_gemm_desc
};
inline constexpr Compute kComputes[] = {{},
                                        {"fp8", MARLIN_COMPUTE_FP8},
                                        {"w16", MARLIN_COMPUTE_W16},
                                        {"int8", MARLIN_COMPUTE_INT8},
                                        {"int8-128", MARLIN_COMPUTE_INT8, 128},
                                        {"int8-row", MARLIN_COMPUTE_INT8, INT32_MAX}};

inline constexpr int64_t kMostToCheck = 64;  // rows, and columns

/// The first, the last and others at random: `most` of them, or all if there are no more.
std::vector<int64_t> some_of(int64_t count, int64_t most = kMostToCheck);

/// Some columns of C, and the rows of W [N, K] that they come from: with two inputs all gate rows, and then all up rows.
struct Sample {
  std::vector<int64_t> columns, rows;
};
Sample sample_of(int64_t n, marlin_epilogue epilogue, int64_t most = kMostToCheck);

/// What some rows of A by sampled rows of W give: [rows][columns of the sample].
std::vector<oracle::Element> expected_of(const oracle::Weights& weights, const Activations& activations,
                                         std::span<const int64_t> rows, marlin_epilogue epilogue, marlin_dtype c_dtype,
                                         const Compute& compute = {});

/// C by the rows of W [N, K], of the type of A.
struct ProductToCheck {
  Activations a;
  int64_t m, n;
  DevicePtr c;
  marlin_epilogue epilogue = MARLIN_EPILOGUE_NONE;
  Compute compute = {};
};

/// Checks up to 64 rows of C at the sampled columns, for which `weights` has the rows of the sample.
Verdict check(const Device& device, const ProductToCheck& product, const Sample& sample, const oracle::Weights& weights);

}  // namespace timing
