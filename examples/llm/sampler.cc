#include "sampler.h"

#include <algorithm>
#include <cmath>

namespace llm {

std::span<const float> Sampler::penalized(std::span<const float> logits,
                                          std::span<const Token> said) {
  constexpr size_t kWindow = 64;
  if (repeat_penalty_ == 1 || said.empty()) return logits;
  penalized_.assign(logits.begin(), logits.end());
  for (const Token token : said.last(std::min(said.size(), kWindow))) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    // From the logits as they were, so that a token that was said twice is not penalized twice.
    const float logit = logits[static_cast<size_t>(token)];
    penalized_[static_cast<size_t>(token)] =
        logit > 0 ? logit / repeat_penalty_ : logit * repeat_penalty_;
  }
  return penalized_;
}

Token Sampler::choose(std::span<const float> given, std::span<const Token> said) {
  const std::span<const float> logits = penalized(given, said);
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
