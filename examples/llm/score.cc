#include "score.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "stopwatch.h"

namespace llm {
namespace {

// -ln softmax(logits)[token]
double negative_log(std::span<const float> logits, Token token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return std::log(sum) + max - double{logits[static_cast<size_t>(token)]};
}

}  // namespace

Score score(Model& model, const std::vector<Token>& opening, const std::vector<Token>& tokens,
            NpyFile* logits_file) {
  if (std::ssize(opening) >= model.context())
    throw std::runtime_error("the context has no room for a text");
  if (logits_file != nullptr) logits_file->begin(tokens.size(), model.vocabulary());
  Score sum;
  const Stopwatch watch;
  for (size_t at = 0; at < tokens.size();) {
    if (at == 0 || model.position() == model.context()) {
      model.rewind(0);
      if (!opening.empty()) model.run(opening, 0);
    }
    const int64_t count = std::min({std::ssize(tokens) - static_cast<int64_t>(at), model.block(),
                                    model.context() - model.position()});
    const std::span<const float> logits =
        model.run(std::span(tokens).subspan(at, static_cast<size_t>(count)), count);
    if (logits_file != nullptr) logits_file->write(logits);
    const bool window_ends = model.position() == model.context();
    const auto row_size = static_cast<size_t>(model.vocabulary());
    for (size_t row = 0; row < static_cast<size_t>(count); ++row) {
      const size_t next = at + row + 1;
      if (next == tokens.size() || (window_ends && row + 1 == static_cast<size_t>(count))) continue;
      sum.negative_log += negative_log(logits.subspan(row * row_size, row_size), tokens[next]);
      ++sum.predicted;
    }
    at += static_cast<size_t>(count);
  }
  sum.seconds = watch.seconds();
  if (logits_file != nullptr) logits_file->commit();
  return sum;
}

Speed time_tokens(Model& model, int64_t prompt, int64_t generate) {
  const int64_t most = std::max(prompt, generate);
  if (most > model.context()) {
    throw std::runtime_error(std::to_string(most) + " tokens, and the context has " +
                             std::to_string(model.context()));
  }
  std::mt19937 random;  // the same tokens each time. NOLINT(bugprone-random-generator-seed)
  std::vector<Token> tokens(static_cast<size_t>(most));
  for (Token& token : tokens)
    token = static_cast<Token>(random() % static_cast<uint32_t>(model.vocabulary()));
  const auto timed = [&](int64_t count, int64_t block, bool each_gives_logits) {
    const Stopwatch watch;
    model.rewind(0);
    for (int64_t at = 0; at < count; at += block) {
      const int64_t rows = std::min(block, count - at);
      const bool wanted = each_gives_logits || at + rows == count;
      model.run(std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)),
                wanted ? 1 : 0);
    }
    return watch.seconds();
  };
  return {timed(prompt, model.block(), false), timed(generate, 1, true)};
}

}  // namespace llm
