#include "printable.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace metal_marlin::tools {
namespace {

struct Character {
  char32_t value;
  size_t bytes;  ///< 0: the text does not begin with UTF-8
};

/// Decodes as RFC 3629 defines it: no overlong forms, surrogates or values past U+10FFFF.
Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes > text.size()) return {lead, 0};
  char32_t value = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {lead, 0};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (overlong || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {lead, 0};
  return {value, bytes};
}

/// True for DEL and C1, for marks, embeddings, overrides and isolates of direction, and for
/// separators of lines and paragraphs.
bool is_hidden(char32_t c) {
  return (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(std::string_view text, bool keep_newlines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [value, bytes] = first_of(text);
    const auto number = static_cast<unsigned>(value);
    const bool kept = keep_newlines && value == '\n';
    if (bytes == 0 || (value < 0x20 && !kept)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", number);
    } else if (is_hidden(value)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", number);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = first_of(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) { return escaped(text, false); }

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  // The remaining characters to escape are inside strings, where \u202e means the same character.
  // Newlines belong to the indentation.
  return escaped(json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                 true);
}

}  // namespace metal_marlin::tools
