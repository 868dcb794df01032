#include "experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace llm {

void choose_experts(std::span<const float> logits, std::span<int32_t> ids,
                    std::span<float> shares) {
  const auto rank = [&](int32_t id) {
    const float logit = logits[static_cast<size_t>(id)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
  };
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort_copy(
      order.begin(), order.end(), ids.begin(), ids.end(),
      [&](int32_t a, int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  // The sum over all experts, by which the softmax divides, cancels out.
  double sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    shares[i] = std::exp(logits[static_cast<size_t>(ids[i])] - rank(ids[0]));
    sum += double{shares[i]};
  }
  for (float& share : shares) share = static_cast<float>(double{share} / sum);
}

}  // namespace llm
