// Makes text for people from names and paths of arbitrary bytes. The text cannot control a terminal
// or forge a line.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string_view>

#include "base/utf8.h"

namespace metal_marlin {

/// What stands for the first character of a text.
struct PrintableCharacter {
  size_t taken;          ///< bytes of the text
  char escape[16] = "";  ///< "": these bytes stand for themselves
};

/// Of a text that is not empty. What stands for it is UTF-8. Invalid bytes and control characters
/// below U+0020 become escapes like \x1b. Other control characters, and characters that reverse or
/// break lines of text (U+202E and the like), become escapes like \u202e.
inline PrintableCharacter first_printable(std::string_view text) noexcept {
  const size_t length = utf8_length(text);
  PrintableCharacter first{length == 0 ? 1 : length};
  const auto byte = [&](size_t i) { return static_cast<unsigned>(text[i]) & 0xffu; };
  unsigned c = length <= 1 ? byte(0) : byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (byte(i) & 0x3fu);
  // DEL and C1; marks, embeddings, overrides and isolates of direction; separators of lines and
  // paragraphs.
  const bool is_hidden = (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
                         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
  if (length == 0 || c < 0x20)
    std::snprintf(first.escape, sizeof first.escape, "\\x%02x", c);
  else if (is_hidden)
    std::snprintf(first.escape, sizeof first.escape, "\\u%04x", c);
  return first;
}

/// Copies `text` as first_printable() shows it into `out`, which has room for `size` > 0 bytes
/// including the NUL. A text that does not fit is cut after a whole character.
void copy_printable(const char* text, char* out, size_t size) noexcept;

}  // namespace metal_marlin
