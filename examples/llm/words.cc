#include "words.h"

#include <cstdint>
#include <utility>

#include "unicode.h"

namespace llm {
namespace {

constexpr std::string_view kSuffixes[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};

bool is_newline(char c) { return c == '\n' || c == '\r'; }

// ASCII alone: these are the letters of the suffixes.
bool starts_with_any_case(std::string_view text, std::string_view suffix) {
  if (text.size() < suffix.size()) return false;
  for (size_t i = 0; i < suffix.size(); ++i) {
    const char c = text[i];
    const bool capital = c >= 'A' && c <= 'Z';
    if ((capital ? c - 'A' + 'a' : c) != suffix[i]) return false;
  }
  return true;
}

// The words at the start of a text, by hand what the regular expressions say.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}
  bool empty() const { return text_.empty(); }

  std::string_view next(WordRule rule) {
    if (rule == WordRule::qwen2) return next_qwen2(1);
    if (rule == WordRule::llama3) return next_qwen2(3);
    return rule == WordRule::gpt4o ? next_gpt4o() : next_gpt2();
  }

 private:
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  std::string_view next_gpt2() {
    for (const std::string_view suffix : kSuffixes) {
      if (text_.starts_with(suffix)) return cut(suffix.size());
    }
    const size_t space = behind_space();
    const CharacterClass kind = class_at(space).first;
    if (kind != CharacterClass::space) return cut(run(space, kind).first);
    return cut_spaces();
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}|
  //  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  std::string_view next_qwen2(int digits) {
    for (const std::string_view suffix : kSuffixes) {
      if (starts_with_any_case(text_, suffix)) return cut(suffix.size());
    }
    const auto [kind, bytes] = class_at(0);
    if (kind == CharacterClass::number) return cut(numbers_end(digits));
    const size_t letters = kind == CharacterClass::letter ? 0 : bytes;
    if (!is_newline(text_[0]) && is(CharacterClass::letter, letters))
      return cut(run(letters, CharacterClass::letter).first);
    return next_without_letters("\r\n");
  }

  // [^\r\n\p{L}\p{N}]?C*S+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?C+S*(?i:'s|...)?|
  // \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
  // C: letters and marks that are not small; S: those that are not capital.
  std::string_view next_gpt4o() {
    const auto [kind, bytes] = class_at(0);
    const bool may_be_in_front =
        kind != CharacterClass::letter && kind != CharacterClass::number && !is_newline(text_[0]);
    for (const bool small : {true, false}) {
      for (const size_t begin : {may_be_in_front ? size_t{bytes} : size_t{0}, size_t{0}}) {
        if (const size_t end = small ? small_end(begin) : run_of<is_small_letter>(begin);
            end > begin)
          return cut_with_suffix(end);
      }
    }
    if (kind != CharacterClass::number) return next_without_letters("\r\n/");
    return cut(numbers_end(3));
  }

  // Where the first numbers end, at most so many.
  size_t numbers_end(int most) const {
    size_t end = 0;
    for (; most > 0 && is(CharacterClass::number, end); --most) end += class_at(end).second;
    return end;
  }

  //  ?[^\s\p{L}\p{N}]+[...]*|\s*[\r\n]+|\s+(?!\S)|\s+, with these characters in the brackets.
  std::string_view next_without_letters(std::string_view behind) {
    const size_t space = behind_space();
    if (is(CharacterClass::other, space)) {
      size_t end = run(space, CharacterClass::other).first;
      while (end < text_.size() && behind.find(text_[end]) != std::string_view::npos) ++end;
      return cut(end);
    }
    // Spaces up to their last newline, if there is one.
    for (size_t end = run(0, CharacterClass::space).first; end > 0; --end) {
      if (is_newline(text_[end - 1])) return cut(end);
    }
    return cut_spaces();
  }
  // Where letters and marks end that are not of the kind that `Not` says.
  template <bool (*Not)(uint32_t)>
  size_t run_of(size_t at) const {
    while (at < text_.size()) {
      const Character c = first_character(text_.substr(at));
      const bool in =
          (class_of(c.code) == CharacterClass::letter || is_mark(c.code)) && !Not(c.code);
      if (!in) break;
      at += c.bytes;
    }
    return at;
  }
  // Where C*S+ ends that starts at `begin`; `begin` when nothing matches.
  size_t small_end(size_t begin) const {
    const size_t capitals = run_of<is_small_letter>(begin);
    if (const size_t end = run_of<is_capital>(capitals); end > capitals) return end;
    // C* gives back what it took, until S+ finds a letter that is both.
    size_t end = begin;
    for (size_t at = begin; at < capitals;) {
      const Character c = first_character(text_.substr(at));
      at += c.bytes;
      if (!is_capital(c.code)) end = at;
    }
    return end;
  }
  std::string_view cut_with_suffix(size_t end) {
    for (const std::string_view suffix : kSuffixes) {
      if (starts_with_any_case(text_.substr(end), suffix)) return cut(end + suffix.size());
    }
    return cut(end);
  }
  std::pair<CharacterClass, uint32_t> class_at(size_t at) const {
    const Character c = first_character(text_.substr(at));
    return {class_of(c.code), c.bytes};
  }
  bool is(CharacterClass kind, size_t at) const {
    return at < text_.size() && class_at(at).first == kind;
  }
  size_t behind_space() const { return text_[0] == ' ' && text_.size() > 1 ? 1 : 0; }
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
  // All spaces at the end of the text, else all but the last, which belongs to the word behind it.
  std::string_view cut_spaces() {
    const auto [end, last] = run(0, CharacterClass::space);
    return cut(end == text_.size() || last == 0 ? end : last);
  }
  std::string_view cut(size_t bytes) {
    const std::string_view word = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return word;
  }
  std::string_view text_;
};

}  // namespace

std::vector<std::string_view> split_words(std::string_view text, WordRule rule) {
  std::vector<std::string_view> words;
  const auto split = [&](std::string_view piece) {
    for (Words rest(piece); !rest.empty();) words.push_back(rest.next(rule));
  };
  size_t begin = 0;
  for (size_t at = 0; rule == WordRule::single_digits && at < text.size();) {
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

}  // namespace llm
