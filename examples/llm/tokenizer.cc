#include "tokenizer.h"

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <tuple>

#include "unicode.h"

namespace llm {
namespace {

// How text is cut, by tokenizer.ggml.pre.
struct PreTokenizer {
  std::string_view name;
  bool single_digits;
};
constexpr PreTokenizer kPreTokenizers[] = {{"gpt-2", false}, {"smollm", true}};

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

// The words of GPT-2 in a piece of text, by hand what its regular expression says:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  std::string_view next() {
    for (const std::string_view suffix : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      if (text_.starts_with(suffix)) return cut(suffix.size());
    }
    const size_t space = text_[0] == ' ' && text_.size() > 1 ? 1 : 0;
    const CharacterClass kind = class_at(space).first;
    if (kind != CharacterClass::space) return cut(run(space, kind).first);
    // Spaces: all of them at the end of the text, else all but the last, which belongs to the word
    // behind it.
    const auto [end, last] = run(0, CharacterClass::space);
    return cut(end == text_.size() || last == 0 ? end : last);
  }
  bool empty() const { return text_.empty(); }

 private:
  std::pair<CharacterClass, uint32_t> class_at(size_t at) const {
    const Character c = first_character(text_.substr(at));
    return {class_of(c.code), c.bytes};
  }
  // Where a run of one class that starts at `at` ends, and where its last character starts.
  std::pair<size_t, size_t> run(size_t at, CharacterClass kind) const {
    size_t last = at;
    while (at < text_.size()) {
      const auto [found, bytes] = class_at(at);
      if (found != kind) break;
      last = at;
      at += bytes;
    }
    return {at, last};
  }
  std::string_view cut(size_t bytes) {
    const std::string_view word = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return word;
  }
  std::string_view text_;
};

}  // namespace

std::vector<std::string_view> split_words(std::string_view text, bool single_digits) {
  std::vector<std::string_view> words;
  const auto split = [&](std::string_view piece) {
    for (Words rest(piece); !rest.empty();) words.push_back(rest.next());
  };
  size_t begin = 0;
  for (size_t at = 0; single_digits && at < text.size();) {
    const Character c = first_character(text.substr(at));
    if (class_of(c.code) == CharacterClass::number) {
      split(text.substr(begin, at - begin));
      words.push_back(text.substr(at, c.bytes));
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  split(text.substr(begin));
  return words;
}

Tokenizer::Tokenizer(const Metadata& metadata)
    : names_(metadata.texts("tokenizer.ggml.tokens")), of_byte_(256, -1) {
  if (const std::string& kind = metadata.text("tokenizer.ggml.model"); kind != "gpt2") {
    throw std::runtime_error(metadata.file() +
                             ": tokenizer.ggml.model: expected gpt2 (byte-level BPE), found '" +
                             kind + "'");
  }
  const std::string& pre = metadata.text("tokenizer.ggml.pre");
  const auto* found = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                                   [&](const auto& p) { return p.name == pre; });
  if (found == std::end(kPreTokenizers)) {
    throw std::runtime_error(metadata.file() +
                             ": tokenizer.ggml.pre: expected gpt-2 or smollm, found '" + pre + "'");
  }
  single_digits_ = found->single_digits;

  const std::vector<double>& types = metadata.numbers("tokenizer.ggml.token_type");
  if (types.size() != names_.size())
    throw std::runtime_error(metadata.file() + ": as many token types as tokens expected");
  const auto byte_of = byte_alphabet();
  std::unordered_map<std::string_view, Token> ids;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto id = static_cast<Token>(i);
    control_.push_back(types[i] != 1 &&
                       types[i] !=
                           4);  // 1: pieces of text; 4: text that the model's maker added as it is
    bytes_.push_back(types[i] == 4 ? names_[i] : control_[i] ? "" : to_bytes(names_[i], byte_of));
    ids.emplace(names_[i], id);
    if (bytes_[i].size() == 1) of_byte_[static_cast<unsigned char>(bytes_[i][0])] = id;
  }
  const std::vector<std::string>& merges = metadata.texts("tokenizer.ggml.merges");
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
    const std::string merged = merges[rank].substr(0, space) + std::string(merge.substr(space + 1));
    merges_.emplace(pair_key(id(merge.substr(0, space)), id(merge.substr(space + 1))),
                    Merge{static_cast<uint32_t>(rank), id(merged)});
  }
}

Token Tokenizer::control(std::string_view name) const {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (control_[i] && names_[i] == name) return static_cast<Token>(i);
  }
  return -1;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> out;
  for (const std::string_view word : split_words(text, single_digits_)) encode_word(word, out);
  return out;
}

const Tokenizer::Merge* Tokenizer::merge_of(Token left, Token right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// The tokens are a linked list; a heap has the pairs that can be merged. A pair in it whose tokens
// are no longer there is stale and skipped, so that a word of n bytes takes n log n steps.
void Tokenizer::encode_word(std::string_view word, std::vector<Token>& out) const {
  struct Link {
    Token token;  // -1: merged into another
    int prev, next;
  };
  using Pair = std::tuple<uint32_t, int, Token, Token,
                          Token>;  // rank, place of the left one, left, right, merged
  std::vector<Link> list;
  for (const char c : word) {
    const int at = static_cast<int>(list.size());
    if (const Token token = of_byte_[static_cast<unsigned char>(c)]; token >= 0)
      list.push_back({token, at - 1, at + 1});
  }
  const int size = static_cast<int>(list.size());
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto offer = [&](int left) {
    if (left < 0 || list[left].next >= size) return;
    const Token a = list[left].token, b = list[list[left].next].token;
    if (const Merge* merge = merge_of(a, b)) pairs.emplace(merge->rank, left, a, b, merge->merged);
  };
  for (int i = 0; i < size; ++i) offer(i);
  while (!pairs.empty()) {
    const auto [rank, left, a, b, merged] = pairs.top();
    pairs.pop();
    const int right = list[left].next;
    if (list[left].token != a || right >= size || list[right].token != b) continue;
    list[left] = {merged, list[left].prev, list[right].next};
    list[right].token = -1;
    if (list[left].next < size) list[list[left].next].prev = left;
    offer(list[left].prev);
    offer(left);
  }
  for (const Link& link : list) {
    if (link.token >= 0) out.push_back(link.token);
  }
}

}  // namespace llm
