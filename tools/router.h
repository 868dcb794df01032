// Who multiplies what in a mixture of experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_matrix.h"

namespace metal_marlin::tools {

/// Draws the experts of tokens. The r-th most frequent expert, a random one, has a weight of
/// 1 / r^skew: all are equally frequent if the skew is 0, and follow Zipf's law if it is 1.
class Router {
 public:
  Router(int64_t experts, double skew, uint64_t seed);
  /// [tokens][top_k]; those of a token differ.
  std::vector<int32_t> draw(int64_t tokens, int64_t top_k);
  /// All experts in a random order, whatever their weights are.
  std::vector<int32_t> shuffled();

 private:
  Random random_;
  std::vector<double> weights_;  ///< of each expert
};

/// How many experts are among these.
int64_t count_distinct(std::span<const int32_t> ids);

}  // namespace metal_marlin::tools
