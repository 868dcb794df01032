#include "timing_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace timing {

Router::Router(int64_t experts, double skew, uint64_t seed) : random_(seed), weights_(static_cast<size_t>(experts)) {
  for (size_t rank = 0; rank < weights_.size(); ++rank) weights_[rank] = std::pow(static_cast<double>(rank + 1), -skew);
  std::shuffle(weights_.begin(), weights_.end(), random_);
}

/// The first of exponentially distributed moments, whose rates are the weights, are a sample by weight without replacement
/// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir").
std::vector<int32_t> Router::draw(int64_t tokens, int64_t top_k) {
  std::exponential_distribution<double> exponential;
  std::vector<double> moments(weights_.size());
  std::vector<int32_t> experts(weights_.size()), ids;
  for (int64_t token = 0; token < tokens; ++token) {
    for (size_t expert = 0; expert < weights_.size(); ++expert) moments[expert] = exponential(random_) / weights_[expert];
    std::iota(experts.begin(), experts.end(), 0);
    std::partial_sort(experts.begin(), experts.begin() + top_k, experts.end(),
                      [&](int32_t a, int32_t b) { return moments[static_cast<size_t>(a)] < moments[static_cast<size_t>(b)]; });
    ids.insert(ids.end(), experts.begin(), experts.begin() + top_k);
  }
  return ids;
}

int64_t count_distinct(std::span<const int32_t> ids) {
  return static_cast<int64_t>(std::set<int32_t>(ids.begin(), ids.end()).size());
}

}  // namespace timing
