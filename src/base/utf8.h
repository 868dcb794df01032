// UTF-8 as RFC 3629 defines it: no overlong forms, surrogates or values past U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace metal_marlin {

/// The small letter of a capital of ASCII; everything else as it is.
inline char small_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; }

/// The length in bytes of the sequence with which a text begins, or 0 if it begins with none.
inline size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (text.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  if (lead < 0xe0) return follows(1) ? 2 : 0;
  if (lead < 0xf0)
    return follows(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
  return follows(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf) && follows(2) &&
                 follows(3)
             ? 4
             : 0;
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace metal_marlin
