#include "checkpoints/convert/json_writer.h"

#include <cstdio>

namespace metal_marlin {

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append(1, '\\').append(1, c);
    } else if (byte < 0x20) {
      // Like other writers, use the short form if there is one.
      constexpr char kShort[] = "btn\0fr";  // for 8..13; 11 has none
      char escape[8];
      const bool is_short = byte >= 8 && byte <= 13 && byte != 11;
      if (is_short) {
        std::snprintf(escape, sizeof escape, "\\%c", kShort[byte - 8u]);
      } else {
        std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      }
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

/// Writes the text before a value or a key.
void JsonWriter::separate() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (counts_.empty()) return;
  if (counts_.back()++ != 0) text_ += ',';
  new_line();
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  text_ += bracket;
  counts_.push_back(0);
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  const bool empty = counts_.back() == 0;
  counts_.pop_back();
  if (!empty) new_line();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_json_string(name, text_);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(text, text_);
  return *this;
}

JsonWriter& JsonWriter::literal(std::string_view text) {
  separate();
  text_ += text;
  return *this;
}

}  // namespace metal_marlin
