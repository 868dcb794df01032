// SentencePiece's BPE: the characters of a text are pieces, and the neighbors are merged first that
// make the piece with the highest score. What is no piece then becomes tokens of single bytes.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "merge.h"
#include "unicode.h"
#include "vocabulary.h"

namespace llm {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which stands for a space in names

// The byte of a name as <0x0A>; -1: another name.
int byte_of(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  int byte = 0;
  for (const char digit : name.substr(3, 2)) {
    const size_t value = std::string_view("0123456789ABCDEF").find(digit);
    if (value == std::string_view::npos) return -1;
    byte = byte * 16 + static_cast<int>(value);
  }
  return byte;
}

class SentencePieces : public Encoder {
 public:
  SentencePieces(const Metadata& metadata, Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    read_scores(metadata);
    vocabulary.opening = true;
    vocabulary.space_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", true);
    of_byte_.fill(-1);
    for (size_t i = 0; i < vocabulary.names.size(); ++i) {
      const std::string& name = vocabulary.names[i];
      const auto id = static_cast<Token>(i);
      switch (vocabulary.types[i]) {
        case TokenType::byte:
          add_byte(metadata, name, id);
          vocabulary.bytes[i] = std::string(1, static_cast<char>(byte_of(name)));
          break;
        case TokenType::normal:
        case TokenType::user_defined:
        case TokenType::unused:
          vocabulary.bytes[i] = replaced(name, kSpace, " ");
          pieces_.emplace(name, id);
          longest_ = std::max(longest_, name.size());
          break;
        case TokenType::unknown:
          unknown_ = id;
          break;
        case TokenType::undefined:
        case TokenType::control:
          break;
      }
    }
  }

  void encode(std::string_view text, std::vector<Token>& out) const override {
    std::string spaced = replaced(text, " ", kSpace);
    if (vocabulary_.space_prefix) spaced.insert(0, kSpace);
    std::vector<std::string_view> symbols;
    for (std::string_view rest = spaced; !rest.empty();) {
      const uint32_t bytes = first_character(rest).bytes;
      symbols.push_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    merge_neighbors(symbols, [&](std::string_view left, std::string_view right) {
      std::optional<Merge<std::string_view>> merge;
      // Both are parts of one text, the right one behind the left one.
      const std::string_view both(left.data(), left.size() + right.size());
      if (const Token token = piece(both); token >= 0)
        merge = {-scores_[static_cast<size_t>(token)], both};
      return merge;
    });
    for (const std::string_view symbol : symbols) add(symbol, out);
  }

 private:
  void read_scores(const Metadata& metadata) {
    scores_ = metadata.numbers("tokenizer.ggml.scores");
    if (scores_.size() != vocabulary_.names.size()) {
      throw std::runtime_error(metadata.file() +
                               ": tokenizer.ggml.scores: expected one of each of " +
                               std::to_string(vocabulary_.names.size()) + " tokens, found " +
                               std::to_string(scores_.size()));
    }
    const auto bad = std::find_if(scores_.begin(), scores_.end(),
                                  [](double score) { return !std::isfinite(score); });
    if (bad != scores_.end()) {
      throw std::runtime_error(metadata.file() + ": tokenizer.ggml.scores: token " +
                               std::to_string(bad - scores_.begin()) +
                               ": expected a finite number, found " + std::to_string(*bad));
    }
  }

  void add_byte(const Metadata& metadata, const std::string& name, Token id) {
    const int byte = byte_of(name);
    if (byte < 0) {
      throw std::runtime_error(metadata.file() + ": tokenizer.ggml.tokens: token " +
                               std::to_string(id) + ": expected a byte as <0x0A>, found '" + name +
                               "'");
    }
    of_byte_[static_cast<size_t>(byte)] = id;
  }

  // -1: none. Pieces that are longer than all need not be hashed.
  Token piece(std::string_view text) const {
    if (text.size() > longest_) return -1;
    const auto found = pieces_.find(text);
    return found == pieces_.end() ? -1 : found->second;
  }

  // The token of a symbol, or those of its bytes, or the one for what is unknown.
  void add(std::string_view symbol, std::vector<Token>& out) const {
    if (const Token token = piece(symbol); token >= 0) {
      out.push_back(token);
      return;
    }
    const size_t before = out.size();
    for (const char c : symbol) out.push_back(of_byte_[static_cast<unsigned char>(c)]);
    if (std::find(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), -1) == out.end())
      return;
    out.resize(before);
    if (unknown_ >= 0) out.push_back(unknown_);
  }

  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  std::unordered_map<std::string_view, Token> pieces_;
  size_t longest_ = 0;
  std::array<Token, 256> of_byte_;  // -1: not in the vocabulary
  Token unknown_ = -1;
};

}  // namespace

std::unique_ptr<Encoder> make_sentence_pieces(const Metadata& metadata, Vocabulary& vocabulary) {
  return std::make_unique<SentencePieces>(metadata, vocabulary);
}

}  // namespace llm
