// What a model thinks of a given text: for tests and for comparing formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.h"

namespace llm {

struct Score {
  int64_t predicted = 0;    // tokens that had one before them
  double negative_log = 0;  // the sum of -ln p(token | those before it), in float64
  double seconds = 0;
};

/// Runs the tokens in blocks; texts longer than the context in windows of it, each from an empty cache. npy, when not empty: a
/// file that gets the logits as a NumPy array, float32 [tokens, vocabulary]; row t is what the model expects behind token t.
Score score(Model& model, const std::vector<Token>& tokens, const std::string& npy);

}  // namespace llm
