#include "base/printable.h"

#include <cstdio>
#include <cstring>

#include "base/utf8.h"

namespace metal_marlin {
namespace {

/// Decodes a sequence of `length` bytes that utf8_length() has accepted.
unsigned code_point(const unsigned char* p, size_t length) {
  unsigned value = length == 1 ? p[0] : p[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) value = value << 6 | (p[i] & 0x3fu);
  return value;
}

/// True for DEL and C1, for marks, embeddings, overrides and isolates of direction, and for
/// separators of lines and paragraphs.
bool is_hidden(unsigned c) {
  return (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace

void copy_printable(const char* text, char* out, size_t size) noexcept {
  const auto* p = reinterpret_cast<const unsigned char*>(text);
  while (*p != 0) {
    const size_t length = utf8_length(p);
    const unsigned c = length == 0 ? *p : code_point(p, length);
    char escape[16] = "";
    if (length == 0 || c < 0x20) {
      std::snprintf(escape, sizeof escape, "\\x%02x", c);
    } else if (is_hidden(c)) {
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
    }
    const char* from = escape[0] != '\0' ? escape : reinterpret_cast<const char*>(p);
    const size_t bytes = escape[0] != '\0' ? std::strlen(escape) : length;
    if (bytes >= size) break;
    std::memcpy(out, from, bytes);
    out += bytes;
    size -= bytes;
    p += length == 0 ? 1 : length;
  }
  *out = '\0';
}

}  // namespace metal_marlin
