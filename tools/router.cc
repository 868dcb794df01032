#include "router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

namespace metal_marlin::tools {

Router::Router(int64_t experts, double skew, uint64_t seed)
    : random_(seed), weights_(static_cast<size_t>(experts)) {
  const std::vector<int32_t> by_rank = shuffled();
  for (size_t rank = 0; rank < weights_.size(); ++rank)
    weights_[static_cast<size_t>(by_rank[rank])] = std::pow(static_cast<double>(rank + 1), -skew);
}

std::vector<int32_t> Router::shuffled() {
  std::vector<int32_t> experts(weights_.size());
  std::iota(experts.begin(), experts.end(), 0);
  for (size_t i = 0; i + 1 < experts.size(); ++i)
    std::swap(experts[i], experts[i + random_.next() % (experts.size() - i)]);
  return experts;
}

/// The first of exponentially distributed moments, whose rates are the weights, are a sample by
/// weight without replacement (Efraimidis and Spirakis, "Weighted random sampling with a
/// reservoir").
std::vector<int32_t> Router::draw(int64_t tokens, int64_t top_k) {
  std::vector<double> moments(weights_.size());
  std::vector<int32_t> experts(weights_.size()), ids;
  for (int64_t token = 0; token < tokens; ++token) {
    for (size_t expert = 0; expert < weights_.size(); ++expert)
      moments[expert] = -std::log1p(-random_.uniform()) / weights_[expert];
    std::iota(experts.begin(), experts.end(), 0);
    std::partial_sort(experts.begin(), experts.begin() + top_k, experts.end(),
                      [&](int32_t a, int32_t b) {
                        return moments[static_cast<size_t>(a)] < moments[static_cast<size_t>(b)];
                      });
    ids.insert(ids.end(), experts.begin(), experts.begin() + top_k);
  }
  return ids;
}

int64_t count_distinct(std::span<const int32_t> ids) {
  return static_cast<int64_t>(std::set<int32_t>(ids.begin(), ids.end()).size());
}

}  // namespace metal_marlin::tools
