#include "unicode.h"

#include <algorithm>
#include <iterator>

namespace llm {
namespace {

/// Every step-th code point.
struct CodeRange {
  uint32_t first, last, step = 1;
};
#include "unicode_classes.inc"
// The property White_Space.
constexpr CodeRange kSpaces[] = {
    {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};

template <size_t N>
bool in(const CodeRange (&ranges)[N], uint32_t code) {
  const auto* range = std::partition_point(std::begin(ranges), std::end(ranges),
                                           [&](const CodeRange& r) { return r.last < code; });
  return range != std::end(ranges) && range->first <= code &&
         (code - range->first) % range->step == 0;
}

// Bytes of the character that a first byte announces; 0: none starts so.
uint32_t announced(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xC2) return 0;  // a later byte, or a longer way to write ASCII
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

// Could these bytes, fewer than announced, still become a character?
bool may_grow(std::string_view text) {
  const uint32_t bytes = announced(static_cast<unsigned char>(text[0]));
  if (text.size() >= bytes) return false;
  std::string whole(text);
  while (whole.size() < bytes) {  // the second byte's lowest and highest values depend on the first
    const auto lowest = static_cast<char>(whole.size() == 1 && text[0] == '\xE0'   ? 0xA0
                                          : whole.size() == 1 && text[0] == '\xF0' ? 0x90
                                                                                   : 0x80);
    whole += lowest;
  }
  return first_character(whole).code != kInvalid;
}

}  // namespace

Character first_character(std::string_view text) {
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // that needs so many bytes
  const auto first = static_cast<unsigned char>(text[0]);
  const uint32_t bytes = announced(first);
  if (bytes == 0 || text.size() < bytes) return {kInvalid, 1};
  uint32_t code = bytes == 1 ? first : first & (0x7Fu >> bytes);
  for (uint32_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {kInvalid, 1};
    code = code << 6 | (next & 0x3F);
  }
  if (code < kLeast[bytes] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    return {kInvalid, 1};
  return {code, bytes};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character c = first_character(text);
    if (c.code == kInvalid) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

CharacterClass class_of(uint32_t code) {
  if (in(kLetters, code)) return CharacterClass::letter;
  if (in(kNumbers, code)) return CharacterClass::number;
  return in(kSpaces, code) ? CharacterClass::space : CharacterClass::other;
}

bool is_capital(uint32_t code) { return in(kCapitals, code); }
bool is_small_letter(uint32_t code) { return in(kSmallLetters, code); }
bool is_mark(uint32_t code) { return in(kMarks, code); }

std::string TextStream::add(std::string_view bytes) {
  pending_ += bytes;
  return drain(false);
}
std::string TextStream::finish() { return drain(true); }

std::string TextStream::drain(bool all) {
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty() && (all || !may_grow(rest))) {
    const Character c = first_character(rest);
    const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
    if (c.code == kInvalid)
      out += "\xEF\xBF\xBD";
    else if (!control || c.code == '\n' || c.code == '\t')
      out += rest.substr(0, c.bytes);
    rest.remove_prefix(c.bytes);
  }
  pending_ = std::string(rest);
  return out;
}

}  // namespace llm
