// The parts of an answer in Harmony, the form of gpt-oss.
#pragma once

#include <string>
#include <string_view>

#include "vocabulary.h"

namespace llm {

/// An answer there is <channel>name<content>text<end><begin>assistant<channel>name<content>text...
/// The text of the final channel is the answer, that of others are thoughts, which a user sees
/// between <think> and </think>. Without a channel token, an answer is one part.
class AnswerParts {
 public:
  static constexpr std::string_view kFinal = "final";
  /// Control tokens, or -1.
  struct Marks {
    Token begin, end, content, channel;
  };
  explicit AnswerParts(const Marks& marks) : marks_(marks), in_head_(marks.channel >= 0) {}

  /// Is this control token inside of the answer? Others end it.
  bool goes_on_with(Token token) const {
    return marks_.channel >= 0 && (token == marks_.begin || token == marks_.end ||
                                   token == marks_.content || token == marks_.channel);
  }
  /// What the user sees of the next token, which stands for these bytes.
  std::string shown(Token token, const std::string& bytes) {
    if (!goes_on_with(token)) {
      if (in_head_) channel_ += bytes;
      return in_head_ ? std::string() : bytes;
    }
    const bool thought = !in_head_ && !in_final();
    if (token == marks_.channel) channel_.clear();
    in_head_ = token != marks_.content;
    if (token == marks_.content) return in_final() ? "" : "<think>";
    return token == marks_.end && thought ? "</think>\n" : "";
  }
  /// Is the token that was shown last text of the final channel?
  bool in_final() const {
    return marks_.channel < 0 || (!in_head_ && channel_.starts_with(kFinal));
  }

 private:
  Marks marks_;
  bool in_head_;  // where a channel's name stands
  std::string channel_;
};

}  // namespace llm
