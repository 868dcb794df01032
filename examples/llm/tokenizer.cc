#include "tokenizer.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace llm {
namespace {

// The kinds, by tokenizer.ggml.model.
struct Kind {
  std::string_view name, about;
  std::unique_ptr<Encoder> (*make)(const Metadata&, Vocabulary&);
};
constexpr Kind kKinds[] = {{"gpt2", "byte-level BPE", make_byte_pairs},
                           {"llama", "SentencePiece", make_sentence_pieces}};

const Kind& find_kind(const Metadata& metadata) {
  const std::string name = metadata.text("tokenizer.ggml.model");
  std::string known;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
    if (!known.empty()) known += ", ";
    known.append(kind.name).append(" (").append(kind.about).append(")");
  }
  throw std::runtime_error(metadata.file() + ": tokenizer.ggml.model: expected one of " + known +
                           ", found '" + name + "'");
}

std::vector<TokenType> read_types(const Metadata& metadata, size_t tokens) {
  const std::vector<double> numbers = metadata.numbers("tokenizer.ggml.token_type");
  const std::string where = metadata.file() + ": tokenizer.ggml.token_type: ";
  if (numbers.size() != tokens) {
    throw std::runtime_error(where + "expected one of each of " + std::to_string(tokens) +
                             " tokens, found " + std::to_string(numbers.size()));
  }
  std::vector<TokenType> types;
  for (const double number : numbers) {
    const bool known = number >= 0 && number <= 6;  // not-a-number is neither
    if (!known) {
      throw std::runtime_error(where + "token " + std::to_string(types.size()) +
                               ": expected 0 to 6, found " + std::to_string(number));
    }
    types.push_back(static_cast<TokenType>(static_cast<int>(number)));
  }
  return types;
}

}  // namespace

Tokenizer::Tokenizer(const Metadata& metadata) : vocabulary_(std::make_unique<Vocabulary>()) {
  Vocabulary& all = *vocabulary_;
  const Kind& kind = find_kind(metadata);
  all.names = metadata.texts("tokenizer.ggml.tokens");
  all.types = read_types(metadata, all.names.size());
  all.bytes.resize(all.names.size());
  encoder_ = kind.make(metadata, all);
  read_opening(metadata, all.opening);
  for (size_t i = 0; i < all.names.size(); ++i) {
    if (all.types[i] == TokenType::user_defined && !all.names[i].empty())
      added_[static_cast<unsigned char>(all.names[i][0])].push_back(static_cast<Token>(i));
  }
  const auto length = [&](Token token) { return all.names[static_cast<size_t>(token)].size(); };
  for (std::vector<Token>& some : added_) {
    std::sort(some.begin(), some.end(), [&](Token a, Token b) {
      return length(a) != length(b) ? length(a) > length(b) : a < b;
    });
  }
}

void Tokenizer::read_opening(const Metadata& metadata, bool by_default) {
  if (!metadata.flag("tokenizer.ggml.add_bos_token", by_default)) return;
  const std::string key = "tokenizer.ggml.bos_token_id";
  const double token = metadata.number(key);
  const bool there = token >= 0 && token < static_cast<double>(size());
  if (!there) {
    throw std::runtime_error(metadata.file() + ": " + key + ": expected one of " +
                             std::to_string(size()) + " tokens, found " + std::to_string(token));
  }
  opening_ = {static_cast<Token>(token)};
}

Token Tokenizer::control(std::string_view name) const {
  for (size_t i = 0; i < size(); ++i) {
    if (is_control(static_cast<Token>(i)) && vocabulary_->names[i] == name)
      return static_cast<Token>(i);
  }
  return -1;
}

// Also what is unknown or unused, which is no text either.
bool Tokenizer::is_control(Token token) const {
  const TokenType type = vocabulary_->types.at(static_cast<size_t>(token));
  return type != TokenType::normal && type != TokenType::user_defined && type != TokenType::byte;
}

// The longest added token that a text starts with, or -1.
Token Tokenizer::added_at(std::string_view text) const {
  for (const Token token : added_[static_cast<unsigned char>(text[0])]) {
    if (text.starts_with(vocabulary_->names[static_cast<size_t>(token)])) return token;
  }
  return -1;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> out;
  size_t begin = 0;
  const auto encode_until = [&](size_t end) {
    if (end > begin) encoder_->encode(text.substr(begin, end - begin), out);
  };
  for (size_t at = 0; at < text.size();) {
    const Token added = added_at(text.substr(at));
    if (added < 0) {
      ++at;
      continue;
    }
    encode_until(at);
    out.push_back(added);
    at += vocabulary_->names[static_cast<size_t>(added)].size();
    begin = at;
  }
  encode_until(text.size());
  return out;
}

std::string Tokenizer::text(const std::vector<Token>& tokens) const {
  std::string out;
  for (const Token token : tokens) out += bytes(token);
  return vocabulary_->space_prefix && out.starts_with(' ') ? out.substr(1) : out;
}

}  // namespace llm
