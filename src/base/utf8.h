// UTF-8 as RFC 3629 defines it: no overlong forms, surrogates or values past U+10FFFF.
#pragma once

#include <cstddef>
#include <string>

namespace metal_marlin {

/// The length in bytes of the sequence that begins at `p`, or 0 if it is not valid UTF-8. The text
/// ends with a NUL.
inline size_t utf8_length(const unsigned char* p) {
  const auto follows = [p](int i, unsigned low = 0x80, unsigned high = 0xbf) {
    return p[i] >= low && p[i] <= high;
  };
  if (p[0] < 0x80) return 1;
  if (p[0] < 0xc2 || p[0] > 0xf4) return 0;
  if (p[0] < 0xe0) return follows(1) ? 2 : 0;
  if (p[0] < 0xf0)
    return follows(1, p[0] == 0xe0 ? 0xa0 : 0x80, p[0] == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
  return follows(1, p[0] == 0xf0 ? 0x90 : 0x80, p[0] == 0xf4 ? 0x8f : 0xbf) && follows(2) &&
                 follows(3)
             ? 4
             : 0;
}

inline bool is_utf8(const std::string& text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.c_str());
  for (const auto* end = p + text.size(); p < end;) {
    const size_t length = utf8_length(p);
    if (length == 0) return false;
    p += length;
  }
  return true;
}

}  // namespace metal_marlin
