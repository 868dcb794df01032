// Byte-level BPE, as GPT-2 has it: text is cut into words, the bytes of a word are tokens, and
// pairs of neighbors are merged, the pair first that stands first in the model's list.
#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "merge.h"
#include "unicode.h"
#include "vocabulary.h"
#include "words.h"

namespace llm {
namespace {

// How text is cut, by tokenizer.ggml.pre.
struct PreTokenizer {
  std::string_view name;
  WordRule rule;
  bool whole_words = false;  // a word that is a token is not merged from its bytes
  bool opening = false;      // a text begins with a token of its own, if no key says otherwise
};
constexpr PreTokenizer kPreTokenizers[] = {{"gpt-2", WordRule::gpt2},
                                           {"smollm", WordRule::single_digits},
                                           {"qwen2", WordRule::qwen2},
                                           {"deepseek-r1-qwen", WordRule::qwen2},
                                           {"gpt-4o", WordRule::gpt4o},
                                           {"llama-bpe", WordRule::llama3, true, true},
                                           {"llama3", WordRule::llama3, true, true},
                                           {"llama-v3", WordRule::llama3, true, true},
                                           {"smaug-bpe", WordRule::llama3}};

const PreTokenizer& find_pre_tokenizer(const Metadata& metadata) {
  const std::string pre = metadata.text("tokenizer.ggml.pre");
  std::string known;
  for (const PreTokenizer& row : kPreTokenizers) {
    if (row.name == pre) return row;
    known += std::string(known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw std::runtime_error(metadata.file() + ": tokenizer.ggml.pre: expected one of " + known +
                           ", found '" + pre + "'");
}

// GPT-2 writes bytes as printable characters: these stand for themselves, the others, in order, for
// 256, 257, ...
bool printable(uint32_t byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

std::unordered_map<uint32_t, char> byte_alphabet() {
  std::unordered_map<uint32_t, char> byte_of;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte)
    byte_of[printable(byte) ? byte : next++] = static_cast<char>(byte);
  return byte_of;
}

std::string to_bytes(std::string_view name, const std::unordered_map<uint32_t, char>& byte_of) {
  std::string bytes;
  while (!name.empty()) {
    const Character c = first_character(name);
    const auto found = byte_of.find(c.code);
    if (found == byte_of.end()) return std::string();  // no token of text
    bytes += found->second;
    name.remove_prefix(c.bytes);
  }
  return bytes;
}

uint64_t pair_key(Token left, Token right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

class BytePairs : public Encoder {
 public:
  BytePairs(const Metadata& metadata, Vocabulary& vocabulary)
      : words_(find_pre_tokenizer(metadata)) {
    of_byte_.fill(-1);
    vocabulary.opening = words_.opening;
    const auto byte_of = byte_alphabet();
    std::unordered_map<std::string_view, Token> ids;
    for (size_t i = 0; i < vocabulary.names.size(); ++i) {
      const std::string& name = vocabulary.names[i];
      const auto id = static_cast<Token>(i);
      ids.emplace(name, id);
      if (vocabulary.types[i] == TokenType::user_defined) vocabulary.bytes[i] = name;
      if (vocabulary.types[i] != TokenType::normal) continue;
      const std::string& bytes = vocabulary.bytes[i] = to_bytes(name, byte_of);
      if (bytes.size() == 1) of_byte_[static_cast<unsigned char>(bytes[0])] = id;
      if (words_.whole_words) whole_.emplace(bytes, id);
    }
    read_merges(metadata, ids);
  }

  void encode(std::string_view text, std::vector<Token>& out) const override {
    for (const std::string_view word : split_words(text, words_.rule)) encode_word(word, out);
  }

 private:
  void read_merges(const Metadata& metadata,
                   const std::unordered_map<std::string_view, Token>& ids) {
    const std::vector<std::string> merges = metadata.texts("tokenizer.ggml.merges");
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view merge = merges[rank];
      const size_t space = merge.find(' ');
      const auto id = [&](std::string_view name) {
        const auto at = ids.find(name);
        if (space == std::string_view::npos || at == ids.end()) {
          throw std::runtime_error(metadata.file() + ": merge " + std::to_string(rank) +
                                   ": expected two tokens, found '" + merges[rank] + "'");
        }
        return at->second;
      };
      const std::string merged =
          merges[rank].substr(0, space) + std::string(merge.substr(space + 1));
      merges_.emplace(pair_key(id(merge.substr(0, space)), id(merge.substr(space + 1))),
                      Merge<Token>{static_cast<double>(rank), id(merged)});
    }
  }

  // Bytes that the vocabulary lacks are left out.
  void encode_word(std::string_view word, std::vector<Token>& out) const {
    if (const auto whole = whole_.find(std::string(word)); whole != whole_.end()) {
      out.push_back(whole->second);
      return;
    }
    std::vector<Token> tokens;
    for (const char c : word) {
      if (const Token token = of_byte_[static_cast<unsigned char>(c)]; token >= 0)
        tokens.push_back(token);
    }
    merge_neighbors(tokens, [&](Token left, Token right) -> std::optional<Merge<Token>> {
      const auto found = merges_.find(pair_key(left, right));
      if (found == merges_.end()) return std::nullopt;
      return found->second;
    });
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

  const PreTokenizer& words_;
  std::unordered_map<std::string, Token> whole_;
  std::array<Token, 256> of_byte_;  // -1: not in the vocabulary
  std::unordered_map<uint64_t, Merge<Token>> merges_;
};

}  // namespace

std::unique_ptr<Encoder> make_byte_pairs(const Metadata& metadata, Vocabulary& vocabulary) {
  return std::make_unique<BytePairs>(metadata, vocabulary);
}

}  // namespace llm
