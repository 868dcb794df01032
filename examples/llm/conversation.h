// A conversation in the form that the model was trained on, and the model's answers in it.
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model.h"
#include "sampler.h"
#include "tokenizer.h"

namespace llm {

/// Seconds and tokens of everything so far.
struct Counts {
  int64_t prompt_tokens = 0, answer_tokens = 0;
  double prompt_seconds = 0, answer_seconds = 0;
};

enum class End { finished, most_tokens, context_full, interrupted };

struct ChatTemplate;

class Conversation {
 public:
  /// The form comes from tokenizer.chat_template: one of a table, else std::runtime_error. Without
  /// that key it is a transcript. system: "" for the model's own.
  Conversation(Model& model, const Tokenizer& tokenizer, const Metadata& metadata,
               const std::string& system);

  /// Says this to the model and hands its answer to `out`, a token's bytes at a time, until the
  /// model ends it, most_tokens are there, the context is full, or *stop is not 0. When all does
  /// not fit, the oldest exchanges are forgotten; a message that does not fit alone is
  /// std::runtime_error and is not kept.
  End answer(std::string_view message, Sampler& sampler, int64_t most_tokens,
             const volatile std::sig_atomic_t* stop,
             const std::function<void(std::string_view)>& out);

  /// Whether the file has no form, as those of models that were trained on text alone.
  bool only_continues() const;
  /// Forgets all exchanges.
  void reset() { exchanges_.clear(); }
  const Counts& counts() const { return counts_; }
  /// Exchanges that were forgotten so far.
  int64_t forgotten() const { return forgotten_; }

 private:
  using Tokens = std::vector<Token>;
  struct Exchange {
    std::string message;
    Tokens answer;
  };
  void add(Tokens& to, std::string_view role, std::string_view content) const;
  void open(Tokens& to, std::string_view role, std::string_view content) const;
  void append(Tokens& to, std::string_view text) const;
  void close(Tokens& to) const;
  Tokens everything() const;
  Tokens prompt();
  Tokens without_thoughts(const Tokens& answer) const;
  End write(std::span<const float> logits, Sampler& sampler, int64_t most_tokens,
            const volatile std::sig_atomic_t* stop,
            const std::function<void(std::string_view)>& out);
  std::span<const float> run(const Tokens& prompt, const volatile std::sig_atomic_t* stop);

  Model& model_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& form_;
  Token begin_, end_, content_, channel_;  // -1 where the form has none
  std::string about_, system_;
  std::vector<Exchange> exchanges_;  // the last one may still be without its answer
  Tokens ran_;                       // what the model's cache holds
  Counts counts_;
  int64_t forgotten_ = 0;
};

}  // namespace llm
