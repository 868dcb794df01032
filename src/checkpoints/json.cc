#include "checkpoints/json.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <optional>
#include <vector>

#include "checkpoints/sort_mapped.h"

// In the Swift package of that library, the header has no folder.
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>
#else
#include <json.hpp>
#endif

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;

/// Reports the position of the parser, which its events do not have.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& o) const { return at_ == o.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// The callbacks of nlohmann::json::sax_parse. A callback that returns false stops the parser.
class Handler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Handler(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit)
      : json_(json), visit_(visit), at_(json.text.data()), strings_(json.text) {}
  const char** furthest() { return &at_; }
  const Status& status() const { return status_; }

  bool null() { return give(Kind::null); }
  bool boolean(bool v) { return give(Kind::boolean, {}, v ? 1u : 0u); }
  bool number_integer(number_integer_t v) {
    return give(Kind::negative, std::to_string(v), 0, static_cast<double>(v));
  }
  bool number_unsigned(number_unsigned_t v) {
    return give(Kind::integer, {}, v, static_cast<double>(v));
  }
  bool number_float(number_float_t v, const string_t& text) { return give(Kind::real, text, 0, v); }
  bool string(string_t& v) { return give(Kind::string, v); }
  bool binary(binary_t&) { return false; }  // GCOVR_EXCL_LINE: the parser wants it, no text has one
  bool start_object(size_t) { return open(Kind::object); }
  bool end_object() { return close(Kind::end_object); }
  bool start_array(size_t) { return open(Kind::array); }
  bool end_array() { return close(Kind::end_array); }
  bool key(string_t& v) {
    if (v.find('\0') != string_t::npos) return fail(offset(), "a key holds a NUL character");
    keys_.push_back(begin_of_string());
    return give(Kind::key, v);
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception&) {
    // position counts the characters read, the offending one (or the end) included.
    const uint64_t offset = json_.file_offset + position - 1;
    status_ = Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": malformed JSON near '%.40s'",
                            file_length(), json_.file.data(), offset, token.c_str());
    return false;
  }

 private:
  int file_length() const { return static_cast<int>(std::min<size_t>(json_.file.size(), 80)); }
  uint64_t offset() const {
    return json_.file_offset + static_cast<uint64_t>(at_ - json_.text.data());
  }
  bool fail(uint64_t offset, const char* what) {
    status_ = Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": JSON: %s", file_length(),
                            json_.file.data(), offset, what);
    return false;
  }
  bool give(Kind kind, std::string_view text = {}, uint64_t integer = 0, double number = 0) {
    const uint32_t begin = kind == Kind::string || kind == Kind::key ? begin_of_string() : 0;
    status_ = visit_(
        {kind, text, integer, number, static_cast<int>(first_keys_.size()), offset(), begin});
    return status_.ok();
  }
  /// The begin of the string that has just been read. It follows the last quote before the end of
  /// the string that has no odd number of backslashes before it.
  uint32_t begin_of_string() const {
    const char* const text = json_.text.data();
    for (auto begin = static_cast<size_t>(at_ - text) - 1; begin > 1; --begin) {
      if (text[begin - 1] != '"') continue;
      size_t escapes = 0;
      while (escapes < begin - 1 && text[begin - 2 - escapes] == '\\') ++escapes;
      if (escapes % 2 == 0) return static_cast<uint32_t>(begin);
    }
    return 1;  // the text is only this string
  }
  bool open(Kind kind) {
    if (static_cast<int>(first_keys_.size()) >= json_.max_depth) {
      return fail(offset(), "objects and arrays are nested too deeply");
    }
    first_keys_.push_back(keys_.size());
    return give(kind);
  }
  bool close(Kind kind) {
    if (!check_keys() || !give(kind)) return false;
    keys_.resize(first_keys_.back());
    first_keys_.pop_back();
    return true;
  }

  /// Names the first key of the ending object that repeats an earlier key.
  bool check_keys() {
    const std::span<uint32_t> keys = std::span(keys_).subspan(first_keys_.back());
    strings_.sort(keys);
    uint32_t twice = UINT32_MAX;
    for (size_t i = 1; i < keys.size(); ++i) {
      if (keys[i] < twice && strings_.compare(keys[i - 1], keys[i]) == 0) twice = keys[i];
    }
    if (twice == UINT32_MAX) return true;
    return fail(json_.file_offset + twice,
                ("one object has twice the key " + strings_.get(twice, 80)).c_str());
  }

  const JsonText& json_;
  const std::function<Status(const JsonEvent&)>& visit_;
  const char* at_;
  const JsonStrings strings_;
  std::vector<uint32_t> keys_;  // of the objects around: where they begin
  std::vector<size_t>
      first_keys_;  // where those of each object (and, with none, array) around begin
  Status status_;
};

/// Decodes the bytes of a string of a well-formed text one after the other. Stays inside the text
/// even if the text is a file whose content another process has changed meanwhile.
class Characters {
 public:
  Characters(std::string_view text, size_t begin) : text_(text), at_(begin) {}
  /// The next byte, 0..255, or -1 after the last.
  int next() {
    if (decoded_ != 0) return take_decoded();
    const char c = peek();
    if (c == '"') return -1;
    ++at_;
    if (c == '\\') return decode();
    return static_cast<uint8_t>(c);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '"'; }

  int take_decoded() {
    const auto byte = static_cast<uint8_t>(decoded_);
    decoded_ >>= 8;
    return byte;
  }

  int decode() {
    static constexpr std::string_view kLetters = "bfnrt", kMeanings = "\b\f\n\r\t";
    const char letter = peek();
    ++at_;
    if (letter != 'u') {
      const size_t known = kLetters.find(letter);
      return static_cast<uint8_t>(known == std::string_view::npos ? letter : kMeanings[known]);
    }
    uint32_t code = hex_digits();
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a pair: \uXXXX\uXXXX
      at_ += 2;
      code = 0x10000 + ((code - 0xd800) << 10 | (hex_digits() & 0x3ff));
    }
    return encode(code);
  }

  uint32_t hex_digits() {
    uint32_t value = 0;
    for (const size_t end = at_ + 4; at_ < end; ++at_) {
      const char c = peek();
      const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
      value =
          value * 16 + (static_cast<uint32_t>(digit) & 15u);  // any value, if the file has changed
    }
    return value;
  }

  /// Encodes as UTF-8. Returns the first byte and keeps the others, none of which is 0.
  int encode(uint32_t code) {
    static constexpr uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    const uint32_t more = (code >= 0x80) + (code >= 0x800) + (code >= 0x10000);
    for (uint32_t i = 0; i < more; ++i) decoded_ = decoded_ << 8 | 0x80 | (code >> 6 * i & 0x3f);
    return static_cast<uint8_t>(kFirst[more] | code >> 6 * more);
  }

  std::string_view text_;
  size_t at_;
  uint32_t decoded_ = 0;  // bytes of one character that are still to come, the lowest first
};

/// Where the first word of a text begins that is too long: a key, a number or another word above
/// 128 KiB, or the text of a value above 256 KiB. A parser keeps copies of a word, which would take
/// several times the bytes of a header.
std::optional<size_t> too_long(std::string_view text) {
  constexpr size_t kMostWord = size_t{128} << 10, kMostText = size_t{256} << 10;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool is_string = text[at] == '"';
    if (is_string) {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
      at = std::min(at + 1, text.size());
    } else {
      at = std::min(text.find_first_of(" \t\r\n{}[]:,\"", at), text.size());
      if (at == begin) ++at;
    }
    if (at - begin <= kMostWord) continue;
    const size_t next = text.find_first_not_of(" \t\r\n", at);
    const bool is_value = is_string && (next == std::string_view::npos || text[next] != ':');
    if (!is_value || at - begin > kMostText) return begin;
  }
  return std::nullopt;
}

int sign(int a, int b) { return (a > b) - (a < b); }

}  // namespace

Status walk_json(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit) {
  if (json.text.size() > json.max_bytes) {
    return Status::error(MARLIN_E_FORMAT,
                         "%.*s: byte %" PRIu64 ": JSON: expected at most %" PRIu32
                         " bytes, found %zu",
                         static_cast<int>(json.file.size()), json.file.data(), json.file_offset,
                         json.max_bytes, json.text.size());
  }
  // nlohmann::json takes a NUL for the end of the text and ignores what follows.
  if (const size_t at = json.text.find('\0'); at != std::string_view::npos) {
    return Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": JSON: found a NUL byte",
                         static_cast<int>(json.file.size()), json.file.data(),
                         json.file_offset + at);
  }
  if (const auto at = too_long(json.text)) {
    return Status::error(
        MARLIN_E_FORMAT,
        "%.*s: byte %" PRIu64
        ": JSON: expected keys and numbers of up to 128 KiB and texts of up to 256 "
        "KiB, found a longer one",
        static_cast<int>(std::min<size_t>(json.file.size(), 80)), json.file.data(),
        json.file_offset + *at);
  }
  Handler handler(json, visit);
  const char* begin = json.text.data();
  nlohmann::json::sax_parse(CountingIterator(begin, handler.furthest()),
                            CountingIterator(begin + json.text.size(), handler.furthest()),
                            &handler);
  return handler.status();
}

std::string JsonStrings::get(uint32_t begin, size_t most) const {
  std::string out;
  Characters characters(text_, begin);
  for (int c = characters.next(); c >= 0 && out.size() < most; c = characters.next())
    out += static_cast<char>(c);
  return out;
}

int JsonStrings::compare(uint32_t a, uint32_t b) const {
  Characters first(text_, a), second(text_, b);
  for (;;) {
    const int x = first.next(), y = second.next();
    if (x != y || x < 0) return sign(x, y);
  }
}

int JsonStrings::compare(uint32_t a, std::string_view b) const {
  Characters first(text_, a);
  for (const char c : b) {
    const int x = first.next(), y = static_cast<uint8_t>(c);
    if (x != y) return sign(x, y);
  }
  return first.next() < 0 ? 0 : 1;
}

void JsonStrings::sort(std::span<uint32_t> begins) const {
  sort_mapped(begins, [&](uint32_t a, uint32_t b) {
    const int order = compare(a, b);
    return order != 0 ? order < 0 : a < b;
  });
}

}  // namespace metal_marlin
