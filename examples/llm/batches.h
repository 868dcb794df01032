// Whether a token gets the same logits alone and in a batch, bit for bit: speculative decoding and
// batched serving then give the tokens that decoding alone gives.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace llm {

struct BatchCheck {
  int64_t tokens = 0;
  // Of each size of batches: how many tokens have the logits that they have alone, with
  // row-invariant products and without.
  struct Size {
    int64_t batch, same, same_without;
  };
  std::vector<Size> sizes;
  bool holds() const;
};

/// Decodes `count` tokens one by one behind `opening`, always the most probable one, and runs the
/// same tokens again in batches of these sizes. More than the context or a block:
/// std::runtime_error. Leaves the model with row-invariant products.
BatchCheck check_batches(Model& model, const std::vector<Token>& opening, int64_t count,
                         const std::vector<int64_t>& batches);

}  // namespace llm
