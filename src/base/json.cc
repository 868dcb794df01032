#include "checkpoints/json.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
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

constexpr std::string_view kBeforeNumber = " \t\r\n[,:", kAfterNumber = " \t\r\n]},";

/// Whether a text is a number of the JSON grammar that float64 does not hold.
bool is_beyond_float64(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    at = std::min(text.find_first_not_of("0123456789", at), text.size());
    return text.substr(begin, at - begin);
  };
  const std::string_view whole = digits();
  if (whole.empty() || (whole.size() > 1 && whole[0] == '0')) return false;
  std::string_view fraction;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if ((fraction = digits()).empty()) return false;
  }
  int64_t exponent = 0;
  if (at < text.size() && (text[at] | 0x20) == 'e') {
    const bool negative = ++at < text.size() && text[at] == '-';
    if (at < text.size() && (negative || text[at] == '+')) ++at;
    const std::string_view power = digits();
    if (power.empty()) return false;
    for (const char c : power) exponent = std::min<int64_t>(exponent * 10 + (c - '0'), INT32_MAX);
    if (negative) exponent = -exponent;
  }
  const std::string all = std::string(whole) + std::string(fraction);
  const size_t zeros = all.find_first_not_of('0');
  if (at != text.size() || zeros == std::string::npos) return false;
  const int64_t size = static_cast<int64_t>(whole.size()) - static_cast<int64_t>(zeros) + exponent;
  return size > 309 || (size == 309 && all.compare(zeros, 19, "1797693134862315808") >= 0);
}

/// The length of a number at the begin of `text` that Python writes or reads and the grammar of
/// JSON or float64 does not have; else 0.
size_t python_number(std::string_view text) {
  const std::string_view number = text.substr(0, text.find_first_of(kAfterNumber));
  const std::string_view size = number.substr(number.starts_with('-') ? 1 : 0);
  const bool found = number == "NaN" || size == "Infinity" || is_beyond_float64(size);
  return found ? number.size() : 0;
}

/// A string that no parser sees: where its quotes are.
struct LongText {
  size_t first, last;
};

/// Where the parser is, which its events do not say, and the last number that it read as another.
struct TextPlace {
  std::string_view text;
  bool as_python = false;
  const char* at = text.data();  ///< the furthest
  bool in_string = false, is_escaped = false;
  const char* number_end = nullptr;
  std::string_view number{};               ///< for its event; empty: the parser has read it itself
  std::span<const LongText> long_texts{};  ///< that are still to come
  bool is_left_out = false;                ///< the last string
};

/// Gives a text to the parser. It sees "0.0" in place of a number that it does not read, with as
/// many digits as the number has bytes.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  CountingIterator(const char* at, TextPlace* place) : at_(at), place_(place) {}
  reference operator*() const {
    if (!place_->as_python) return *at_;
    if (at_ >= place_->number_end) find_number();
    if (at_ >= place_->number_end) return *at_;
    const char* first = place_->number_end - place_->number.size();
    if (*first == '-' && at_ == first) return '-';
    return at_ == first + (*first == '-' ? 2 : 1) ? '.' : '0';
  }
  CountingIterator& operator++() {
    const bool quote = *at_ == '"' && !place_->is_escaped;
    place_->is_escaped = place_->in_string && *at_ == '\\' && !place_->is_escaped;
    if (quote) place_->in_string = !place_->in_string;
    if (quote && place_->in_string) leave_out();
    place_->at = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& o) const { return at_ == o.at_; }

 private:
  /// Goes on before the last quote of a text that is too long.
  void leave_out() {
    auto& texts = place_->long_texts;
    place_->is_left_out = !texts.empty() && at_ == place_->text.data() + texts[0].first;
    if (!place_->is_left_out) return;
    at_ = place_->text.data() + texts[0].last - 1;
    texts = texts.subspan(1);
  }

  void find_number() const {
    const std::string_view text = place_->text;
    const auto begin = static_cast<size_t>(at_ - text.data());
    const bool may_begin =
        *at_ == '-' || *at_ == 'N' || *at_ == 'I' || (*at_ >= '0' && *at_ <= '9');
    if (!may_begin || place_->in_string) return;
    if (begin > 0 && kBeforeNumber.find(text[begin - 1]) == std::string_view::npos) return;
    const size_t size = python_number(text.substr(begin));
    if (size == 0) return;
    place_->number = text.substr(begin, size);
    place_->number_end = at_ + size;
  }

  const char* at_;
  TextPlace* place_;
};

/// The callbacks of nlohmann::json::sax_parse. A callback that returns false stops the parser.
class Handler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  /// `hidden`: where the keys begin, in ascending order, whose members have no events; or null, and
  /// then the walk finds the keys that come again.
  Handler(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit,
          const std::vector<uint32_t>* hidden, std::span<const LongText> long_texts)
      : json_(json),
        visit_(visit),
        place_{.text = json.text, .as_python = json.as_python, .long_texts = long_texts},
        strings_(json.text),
        hidden_(hidden) {}
  TextPlace* place() { return &place_; }
  const Status& status() const { return status_; }
  /// The keys of members that come again later, in ascending order.
  std::vector<uint32_t> repeated() {
    std::sort(repeated_.begin(), repeated_.end());
    return std::move(repeated_);
  }

  bool null() { return give(Kind::null); }
  bool boolean(bool v) { return give(Kind::boolean, {}, v ? 1u : 0u); }
  bool number_integer(number_integer_t v) {
    return give(Kind::negative, std::to_string(v), 0, static_cast<double>(v));
  }
  bool number_unsigned(number_unsigned_t v) {
    return give(Kind::integer, {}, v, static_cast<double>(v));
  }
  bool number_float(number_float_t v, const string_t& text) {
    const std::string_view own = std::exchange(place_.number, {});
    if (own.empty()) return give(Kind::real, text, 0, v);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (own[0] == 'N') return give(Kind::real, own, 0, std::numeric_limits<double>::quiet_NaN());
    return give(Kind::real, own, 0, own[0] == '-' ? -kInfinity : kInfinity);
  }
  bool string(string_t& v) { return give(Kind::string, v); }
  bool binary(binary_t&) { return false; }  // GCOVR_EXCL_LINE: the parser wants it, no text has one
  bool start_object(size_t) { return open(Kind::object); }
  bool end_object() { return close(Kind::end_object); }
  bool start_array(size_t) { return open(Kind::array); }
  bool end_array() { return close(Kind::end_array); }
  bool key(string_t& v) {
    if (v.find('\0') != string_t::npos) return fail(offset(), "a key holds a NUL character");
    const uint32_t begin = begin_of_string();
    if (hidden_ == nullptr) {
      keys_.push_back(begin);
    } else if (is_hidden(begin) && hiding_ == 0) {
      hiding_ = static_cast<int>(first_keys_.size());
      return true;
    }
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
    return json_.file_offset + static_cast<uint64_t>(place_.at - json_.text.data());
  }
  bool fail(uint64_t offset, const char* what) {
    status_ = Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": JSON: %s", file_length(),
                            json_.file.data(), offset, what);
    return false;
  }
  /// A scalar's depth is that of its key; an object or array ends one deeper.
  bool hide(Kind kind) {
    const int depth = static_cast<int>(first_keys_.size());
    const bool opens = kind == Kind::object || kind == Kind::array;
    const bool closes = kind == Kind::end_object || kind == Kind::end_array;
    if (closes ? depth == hiding_ + 1 : !opens && depth == hiding_) hiding_ = 0;
    return true;
  }
  bool is_hidden(uint32_t key) {
    while (next_hidden_ < hidden_->size() && (*hidden_)[next_hidden_] < key) ++next_hidden_;
    return next_hidden_ < hidden_->size() && (*hidden_)[next_hidden_] == key;
  }
  bool give(Kind kind, std::string_view text = {}, uint64_t integer = 0, double number = 0) {
    if (hiding_ != 0) return hide(kind);
    const uint32_t begin = kind == Kind::string || kind == Kind::key ? begin_of_string() : 0;
    status_ = visit_({kind, text, integer, number, static_cast<int>(first_keys_.size()), offset(),
                      begin, kind == Kind::string && place_.is_left_out});
    return status_.ok();
  }
  /// The begin of the string that has just been read. It follows the last quote before the end of
  /// the string that has no odd number of backslashes before it.
  uint32_t begin_of_string() const {
    const char* const text = json_.text.data();
    for (auto begin = static_cast<size_t>(place_.at - text) - 1; begin > 1; --begin) {
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

  /// Finds the keys of the ending object that come again. Unless the text is Python's, the first
  /// of them is an error.
  bool check_keys() {
    const std::span<uint32_t> keys = std::span(keys_).subspan(first_keys_.back());
    strings_.sort(keys);
    uint32_t twice = UINT32_MAX;
    for (size_t i = 1; i < keys.size(); ++i) {
      if (strings_.compare(keys[i - 1], keys[i]) != 0) continue;
      twice = std::min(twice, keys[i]);
      if (json_.as_python) repeated_.push_back(keys[i - 1]);
    }
    if (twice == UINT32_MAX || json_.as_python) return true;
    return fail(json_.file_offset + twice,
                ("one object has twice the key " + strings_.get(twice, 80)).c_str());
  }

  const JsonText& json_;
  const std::function<Status(const JsonEvent&)>& visit_;
  TextPlace place_;
  const JsonStrings strings_;
  const std::vector<uint32_t>* hidden_;
  size_t next_hidden_ = 0;
  int hiding_ = 0;                  // the depth of the key whose value is left out
  std::vector<uint32_t> repeated_;  // where the keys begin that come again
  std::vector<uint32_t> keys_;      // of the objects around: where they begin
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
/// several times the bytes of a header. With `texts`, those texts are listed and no error.
std::optional<size_t> too_long(std::string_view text, std::vector<LongText>* texts) {
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
    if (is_value && at - begin <= kMostText) continue;
    if (!is_value || texts == nullptr) return begin;
    texts->push_back({begin, at - 1});
  }
  return std::nullopt;
}

/// One walk: leaves out the members of the keys `hidden`, or finds those that come again.
Status parse(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit,
             const std::vector<uint32_t>* hidden, std::vector<uint32_t>* repeated,
             std::span<const LongText> long_texts = {}) {
  Handler handler(json, visit, hidden, long_texts);
  const char* begin = json.text.data();
  nlohmann::json::sax_parse(CountingIterator(begin, handler.place()),
                            CountingIterator(begin + json.text.size(), handler.place()), &handler);
  if (repeated != nullptr) *repeated = handler.repeated();
  return handler.status();
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
  std::vector<LongText> long_texts;
  if (const auto at = too_long(json.text, json.leaves_out_long_texts ? &long_texts : nullptr)) {
    return Status::error(
        MARLIN_E_FORMAT,
        "%.*s: byte %" PRIu64
        ": JSON: expected keys and numbers of up to 128 KiB and texts of up to 256 "
        "KiB, found a longer one",
        static_cast<int>(std::min<size_t>(json.file.size(), 80)), json.file.data(),
        json.file_offset + *at);
  }
  if (!json.as_python) return parse(json, visit, nullptr, nullptr, long_texts);
  // A key that comes again is known only at the end of its object, so a first walk finds them all.
  std::vector<uint32_t> repeated;
  MARLIN_RETURN_IF_ERROR(
      parse(json, [](const JsonEvent&) { return Status(); }, nullptr, &repeated));
  return parse(json, visit, &repeated, nullptr);
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
