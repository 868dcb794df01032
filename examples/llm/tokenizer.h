// Text to tokens and back. Everything comes from the key-values of a GGUF file: the kind of the
// tokenizer, its tokens, and which of them are no text.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary.h"

namespace llm {

class Tokenizer {
 public:
  /// Throws std::runtime_error for a tokenizer of another kind, with its name and the names that
  /// are known.
  explicit Tokenizer(const Metadata& metadata);

  /// Plain text: the names of control tokens in it are text like any other, and those of tokens
  /// that the model's maker added to text are these tokens. Bytes that the vocabulary lacks
  /// (SmolLM2 has none of some control characters) are left out.
  std::vector<Token> encode(std::string_view text) const;
  /// What the model expects in front of every text.
  const std::vector<Token>& opening() const { return opening_; }
  /// The bytes that a token stands for, which may be part of a character; of a control token none.
  const std::string& bytes(Token token) const {
    return vocabulary_->bytes.at(static_cast<size_t>(token));
  }
  /// The text of these tokens, without the space that encode() puts in front of a text.
  std::string text(const std::vector<Token>& tokens) const;
  /// The control token of this name, or -1.
  Token control(std::string_view name) const;
  bool is_control(Token token) const;
  size_t size() const { return vocabulary_->names.size(); }

 private:
  void read_opening(const Metadata& metadata, bool by_default);
  Token added_at(std::string_view text) const;

  std::unique_ptr<Vocabulary> vocabulary_;  // the encoder refers to it
  std::unique_ptr<Encoder> encoder_;
  std::array<std::vector<Token>, 256> added_;  // by the first byte of their names, longest first
  std::vector<Token> opening_;
};

}  // namespace llm
