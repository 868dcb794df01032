// Who multiplies what in a mixture of experts.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace timing {

/// Draws the experts of tokens. The r-th most frequent expert, a random one, has a weight of 1 / r^skew: all are equally
/// frequent if the skew is 0, and follow Zipf's law if it is 1.
class Router {
 public:
  Router(int64_t experts, double skew, uint64_t seed);
  /// [tokens][top_k]; those of a token differ.
  std::vector<int32_t> draw(int64_t tokens, int64_t top_k);

 private:
  std::mt19937_64 random_;
  std::vector<double> weights_;  ///< of each expert
};

/// How many experts are among these.
int64_t count_distinct(std::span<const int32_t> ids);

}  // namespace timing
