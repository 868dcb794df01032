#include "batches.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

namespace llm {
namespace {

void restart(Model& model, const std::vector<Token>& opening) {
  model.rewind(0);
  if (!opening.empty()) model.run(opening, 0);
}

// How many of the tokens, run in batches of this size, have these logits.
int64_t count_same(Model& model, const std::vector<Token>& opening,
                   const std::vector<Token>& tokens, int64_t batch,
                   const std::vector<float>& expected) {
  restart(model, opening);
  const auto columns = static_cast<size_t>(model.vocabulary());
  int64_t same = 0;
  for (size_t at = 0; at < tokens.size();) {
    const size_t rows = std::min(tokens.size() - at, static_cast<size_t>(batch));
    const std::span<const float> logits =
        model.run(std::span(tokens).subspan(at, rows), static_cast<int64_t>(rows));
    for (size_t row = 0; row < rows; ++row)
      same += std::memcmp(&logits[row * columns], &expected[(at + row) * columns],
                          columns * sizeof(float)) == 0;
    at += rows;
  }
  return same;
}

}  // namespace

bool BatchCheck::holds() const {
  return std::all_of(sizes.begin(), sizes.end(),
                     [this](const Size& size) { return size.same == tokens; });
}

BatchCheck check_batches(Model& model, const std::vector<Token>& opening, int64_t count,
                         const std::vector<int64_t>& batches) {
  if (std::ssize(opening) + count > model.context())
    throw std::runtime_error(std::to_string(std::ssize(opening) + count) +
                             " tokens, and the context has " + std::to_string(model.context()));
  if (std::ranges::any_of(batches, [&](int64_t batch) { return batch > model.block(); }))
    throw std::runtime_error("a batch is larger than a block of " + std::to_string(model.block()) +
                             " tokens");
  model.set_row_invariant(true);
  restart(model, opening);
  std::vector<Token> tokens;
  std::vector<float> alone;
  for (Token next = 0; std::ssize(tokens) < count;) {
    tokens.push_back(next);
    const std::span<const float> logits = model.run({&next, 1}, 1);
    alone.insert(alone.end(), logits.begin(), logits.end());
    next = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
  }
  BatchCheck check{count, {}};
  for (const int64_t batch : batches) {
    model.set_row_invariant(false);
    const int64_t without = count_same(model, opening, tokens, batch, alone);
    model.set_row_invariant(true);
    check.sizes.push_back({batch, count_same(model, opening, tokens, batch, alone), without});
  }
  return check;
}

}  // namespace llm
