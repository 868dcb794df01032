#include "word_wrap.h"

#include "unicode.h"

namespace llm {
namespace {

bool is_wide(uint32_t code) {
  return (code >= 0x1100 && code <= 0x115F) || (code >= 0x2E80 && code <= 0xA4CF) ||
         (code >= 0xAC00 && code <= 0xD7A3) || (code >= 0xF900 && code <= 0xFAFF) ||
         (code >= 0xFE30 && code <= 0xFE6F) || (code >= 0xFF00 && code <= 0xFF60) ||
         (code >= 0x1F300 && code <= 0x1FAFF) || (code >= 0x20000 && code <= 0x3FFFD);
}

size_t columns_of(uint32_t code) {
  if (is_mark(code)) return 0;
  return is_wide(code) ? 2 : 1;
}

}  // namespace

void WordWrap::end_word(std::string& out) {
  if (word_.empty()) return;
  if (at_ != 0 && at_ + space_width_ + width_ > columns_) {
    out += '\n';
    at_ = 0;
  } else {
    out += spaces_;
    at_ += space_width_;
  }
  out += word_;
  at_ += width_;
  spaces_.clear();
  word_.clear();
  space_width_ = width_ = 0;
}

std::string WordWrap::add(std::string_view text) {
  if (columns_ == 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const Character c = first_character(text);
    const std::string_view bytes = text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
    if (c.code == '\n' || c.code == ' ' || c.code == '\t' || is_wide(c.code)) end_word(out);
    if (c.code == '\n') {
      out += '\n';
      at_ = space_width_ = 0;
      spaces_.clear();
    } else if (c.code == ' ' || c.code == '\t') {
      spaces_ += bytes;
      space_width_ += 1;
    } else {
      word_ += bytes;
      width_ += columns_of(c.code);
      if (is_wide(c.code)) end_word(out);
    }
  }
  return out;
}

std::string WordWrap::finish() {
  std::string out;
  end_word(out);
  return out;
}

}  // namespace llm
