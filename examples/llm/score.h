// What a model thinks of a given text, and how fast it runs: for tests, for comparing formats and
// other programs.
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

/// Runs the tokens in blocks; texts longer than the context in windows of it. Each window starts
/// with an empty cache and the tokens of `opening`, which are not predicted. The file
/// `logits_file`, unless this is empty, gets the logits, float32 [tokens, vocabulary]; row t is
/// what the model expects behind token t.
Score score(Model& model, const std::vector<Token>& opening, const std::vector<Token>& tokens,
            const std::string& logits_file);

struct Speed {
  double prompt_seconds = 0, generate_seconds = 0;
};

/// Times random tokens as llama-bench does: `prompt` of them together, of which the last gives
/// logits; then `generate` one by one, each giving logits. Both begin with an empty cache; 0 of
/// them take no time. More than the context: std::runtime_error.
Speed time_tokens(Model& model, int64_t prompt, int64_t generate);

}  // namespace llm
