// What a tokenizer and a terminal need of Unicode: UTF-8, and which characters are letters, numbers
// and spaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace llm {

struct Character {
  uint32_t code;   // kInvalid when the bytes are no UTF-8
  uint32_t bytes;  // 1 to 4; 1 of what is invalid
};
constexpr uint32_t kInvalid = 0xFFFFFFFF;

/// The character that text, which is not empty, starts with.
Character first_character(std::string_view text);
bool is_utf8(std::string_view text);
/// The text with `to` in place of every `from`, which is not empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

enum class CharacterClass { letter, number, space, other };
CharacterClass class_of(uint32_t code);
/// Unicode's categories Lu and Lt, Ll, M. Letters that are neither capital nor small are both in
/// some rules.
bool is_capital(uint32_t code);
bool is_small_letter(uint32_t code);
bool is_mark(uint32_t code);

/// Puts bytes that arrive in any portions together to text that a terminal may get: a character
/// comes out when its last byte is there, what is no UTF-8 as U+FFFD, and control characters (a
/// model must not steer the terminal) not at all, but tabs and newlines.
class TextStream {
 public:
  std::string add(std::string_view bytes);
  /// What is left when no more bytes come.
  std::string finish();

 private:
  std::string drain(bool all);
  std::string pending_;
};

}  // namespace llm
