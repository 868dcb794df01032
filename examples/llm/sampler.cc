#include "sampler.h"

#include <algorithm>
#include <cmath>

namespace llm {

Token Sampler::choose(std::span<const float> logits) {
  heap_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]))
      heap_.emplace_back(logits[i], -static_cast<Token>(i));  // of equals the first wins
  }
  if (heap_.empty()) return 0;
  const float max = std::max_element(heap_.begin(), heap_.end())->first;
  if (temperature_ <= 0) return -std::max_element(heap_.begin(), heap_.end())->second;

  const auto weight = [&](float logit) { return std::exp((double{logit} - max) / temperature_); };
  double all = 0;
  for (const auto& [logit, token] : heap_) all += weight(logit);
  // Only the few that count are put in order: making a heap takes n steps, each one off it log n.
  std::make_heap(heap_.begin(), heap_.end());
  auto end = heap_.end();
  double share = 0;
  while (share < top_p_ * all && end != heap_.begin()) {
    std::pop_heap(heap_.begin(), end--);
    share += weight(end->first);
  }
  // The chosen few lie behind `end`, the most probable last.
  double rest = uniform() * share;
  for (auto at = heap_.end(); at-- != end;) {
    rest -= weight(at->first);
    if (rest < 0) return -at->second;
  }
  return -heap_.back().second;
}

}  // namespace llm
