// Byte-level BPE, as GPT-2 has it: text is cut into words, the bytes of a word are tokens, and
// pairs of neighbors are merged, the pair first that stands first in the model's list. Everything
// comes from the key-values of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf.h"

namespace llm {

using Token = int32_t;

class Tokenizer {
 public:
  /// Throws std::runtime_error for a tokenizer of another kind, with its name and the names that
  /// are known.
  explicit Tokenizer(const Metadata& metadata);

  /// Plain text: the names of control tokens in it are text like any other. Bytes that the
  /// vocabulary lacks (SmolLM2 has none of some control characters) are left out.
  std::vector<Token> encode(std::string_view text) const;
  /// The bytes that a token stands for, which may be part of a character; of a control token none.
  const std::string& bytes(Token token) const { return bytes_.at(static_cast<size_t>(token)); }
  /// The control token of this name, or -1.
  Token control(std::string_view name) const;
  bool is_control(Token token) const { return control_.at(static_cast<size_t>(token)); }
  size_t size() const { return bytes_.size(); }

 private:
  struct Merge {
    uint32_t rank;
    Token merged;
  };
  const Merge* merge_of(Token left, Token right) const;
  void encode_word(std::string_view word, std::vector<Token>& out) const;

  std::vector<std::string> names_, bytes_;
  std::vector<bool> control_;
  std::vector<Token> of_byte_;  // 256; -1: not in the vocabulary
  std::unordered_map<uint64_t, Merge> merges_;
  bool single_digits_ = false;
};

/// Cuts text into the words of GPT-2's regular expression, before that at each number when
/// single_digits. Their concatenation is the text.
std::vector<std::string_view> split_words(std::string_view text, bool single_digits);

}  // namespace llm
