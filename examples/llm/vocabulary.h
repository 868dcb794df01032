// What a tokenizer of either kind is made of: the tokens of the file, and how plain text becomes
// tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf.h"

namespace llm {

using Token = int32_t;

/// The numbers of tokenizer.ggml.token_type.
enum class TokenType { undefined, normal, unknown, control, user_defined, unused, byte };

struct Vocabulary {
  std::vector<std::string> names;  // as the file has them
  std::vector<TokenType> types;
  std::vector<std::string> bytes;  // what each token stands for; nothing for control tokens
  bool space_prefix = false;       // a text gets a space in front, which is none of its own
  bool opening = false;            // a text begins with a token, if no key says otherwise
};

class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Appends the tokens of this text, which is not empty.
  virtual void encode(std::string_view text, std::vector<Token>& out) const = 0;
};

/// The kinds of tokenizers. Each fills vocabulary.bytes, says whether there
/// are a space prefix and an opening, and throws std::runtime_error for bad keys.
std::unique_ptr<Encoder> make_byte_pairs(const Metadata& metadata, Vocabulary& vocabulary);
std::unique_ptr<Encoder> make_sentence_pieces(const Metadata& metadata, Vocabulary& vocabulary);

}  // namespace llm
