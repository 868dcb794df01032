// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tokenizer.h"

namespace llm {

class Sampler {
 public:
  /// temperature 0: always the most probable. top_p in (0, 1]: from the fewest most probable tokens
  /// that have this share together. The same seed and logits give the same tokens on every
  /// platform: the generator is the standard's, the rest is done here.
  /// repeat_penalty, at least 1: what the logits of tokens of the last answer are divided by, or
  /// multiplied with where they are negative.
  Sampler(double temperature, double top_p, uint64_t seed, double repeat_penalty = 1)
      : temperature_(temperature),
        top_p_(top_p),
        repeat_penalty_(static_cast<float>(repeat_penalty)),
        random_(seed) {}

  /// logits: at least one. Not-a-number never wins. said: the answer so far, whose last 64 tokens
  /// count.
  Token choose(std::span<const float> logits, std::span<const Token> said = {});

 private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }  // [0, 1)

  std::span<const float> penalized(std::span<const float> logits, std::span<const Token> said);

  double temperature_, top_p_;
  float repeat_penalty_;
  std::vector<float> penalized_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, Token>> heap_;
};

}  // namespace llm
