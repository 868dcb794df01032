// Measuring which kernels are fastest through the public interface, and reading the results.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "library.h"

namespace metal_marlin::tools {

/// What the products of one set of weights have in common.
struct TunedProduct {
  marlin_dtype dtype;  ///< of the activations and results
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  /// Of a mixture, the experts of a token; 0: a plain product.
  int64_t top_k = 0;
  /// Of a mixture, whether A has a row for each expert of a token, whose results are scaled and
  /// added up (as for down); otherwise a token has one row of A (as for gate and up).
  bool summed = false;
};

/// A product of m rows (of a mixture: tokens) without memory, for calls that read none. Its memory
/// is a buffer's, so that a GPU stages nothing.
marlin_gemm_desc product_without_data(const marlin_weights* weights, int64_t m,
                                      const TunedProduct& product);

/// Measures the classes of M up to max_m that the profile lacks. The context of the weights needs
/// tune_ms. The weights are alike and are used in turn, so that caches do not keep them. Throws
/// Failure.
void tune(std::span<const Weights> alike, int64_t max_m, const TunedProduct& product);

/// The largest M of each class, up to the limit: the library's classes are exact up to 8.
std::vector<int64_t> rows_of_classes(int64_t max_m);

/// What was measured of one product.
struct Tuned {
  std::string usual_kernel, kernel, k_splits;
  double usual_ns, ns;
  bool changed() const { return ns < usual_ns; }
};
/// From the text of explain(); nothing if the product was not measured.
std::optional<Tuned> tuned(const std::string& explanation);

}  // namespace metal_marlin::tools
