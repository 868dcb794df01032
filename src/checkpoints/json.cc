#include "checkpoints/json.h"

#include <cinttypes>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;

/// Tells where the parser is, which its events do not.
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
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& o) const { return at_ == o.at_; }
  bool operator!=(const CountingIterator& o) const { return at_ != o.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

/// What nlohmann::json::sax_parse calls; false stops it.
class Handler {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  Handler(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit)
      : json_(json), visit_(visit), at_(json.text.data()) {}
  const char** furthest() { return &at_; }
  const Status& status() const { return status_; }

  bool null() { return give(Kind::null); }
  bool boolean(bool v) { return give(Kind::boolean, {}, v ? 1u : 0u); }
  bool number_integer(number_integer_t v) { return give(Kind::negative, std::to_string(v), 0, static_cast<double>(v)); }
  bool number_unsigned(number_unsigned_t v) { return give(Kind::integer, {}, v, static_cast<double>(v)); }
  bool number_float(number_float_t v, const string_t& text) { return give(Kind::real, text, 0, v); }
  bool string(string_t& v) { return give(Kind::string, v); }
  bool binary(binary_t&) { return fail("binary value"); }
  bool start_object(size_t) { return open(Kind::object); }
  bool end_object() { return close(Kind::end_object); }
  bool start_array(size_t) { return open(Kind::array); }
  bool end_array() { return close(Kind::end_array); }
  bool key(string_t& v) {
    if (v.find('\0') != string_t::npos) return fail("a key holds a NUL character");
    if (!keys_.back().insert(v).second) {
      return fail(("one object has twice the key " + v.substr(0, 80)).c_str());
    }
    return give(Kind::key, v);
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception&) {
    // position counts the characters read, the offending one included.
    const uint64_t offset = json_.file_offset + (position == 0 ? 0 : position - 1);
    status_ = Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": malformed JSON near '%.40s'", file_length(),
                            json_.file.data(), offset, token.c_str());
    return false;
  }

 private:
  int file_length() const { return static_cast<int>(std::min<size_t>(json_.file.size(), 80)); }
  uint64_t offset() const { return json_.file_offset + static_cast<uint64_t>(at_ - json_.text.data()); }
  bool fail(const char* what) {
    status_ =
        Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": JSON: %s", file_length(), json_.file.data(), offset(), what);
    return false;
  }
  bool give(Kind kind, std::string_view text = {}, uint64_t integer = 0, double number = 0) {
    status_ = visit_({kind, text, integer, number, static_cast<int>(keys_.size()), offset()});
    return status_.ok();
  }
  bool open(Kind kind) {
    if (static_cast<int>(keys_.size()) >= json_.max_depth) return fail("objects and arrays are nested too deeply");
    keys_.emplace_back();
    return give(kind);
  }
  bool close(Kind kind) {
    if (!give(kind)) return false;
    keys_.pop_back();
    return true;
  }

  const JsonText& json_;
  const std::function<Status(const JsonEvent&)>& visit_;
  const char* at_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects (and, empty, arrays) around
  Status status_;
};

}  // namespace

Status walk_json(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit) {
  if (json.text.size() > json.max_bytes) {
    return Status::error(MARLIN_E_FORMAT, "%.*s: byte %" PRIu64 ": JSON: expected at most %zu bytes, found %zu",
                         static_cast<int>(json.file.size()), json.file.data(), json.file_offset, json.max_bytes,
                         json.text.size());
  }
  Handler handler(json, visit);
  const char* begin = json.text.data();
  nlohmann::json::sax_parse(CountingIterator(begin, handler.furthest()),
                            CountingIterator(begin + json.text.size(), handler.furthest()), &handler);
  return handler.status();
}

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name == key) return &value;
  }
  return nullptr;
}

Result<JsonValue> parse_json(const JsonText& json) {
  JsonValue root;
  std::vector<JsonValue*> open;  // the objects and arrays around; stable, because only the last one's children grow
  std::string key;
  const auto place = [&]() -> JsonValue& {
    if (open.empty()) return root;
    JsonValue& parent = *open.back();
    if (parent.kind == Kind::array) return parent.items.emplace_back();
    return parent.members.emplace_back(key, JsonValue{}).value;
  };
  MARLIN_RETURN_IF_ERROR(walk_json(json, [&](const JsonEvent& event) -> Status {
    if (event.kind == Kind::end_object || event.kind == Kind::end_array) {
      open.pop_back();
      return {};
    }
    if (event.kind == Kind::key) {
      key = event.text;
      return {};
    }
    JsonValue& value = place();
    value.kind = event.kind;
    value.text = event.text;
    value.number = event.number;
    value.boolean = event.integer != 0;
    if (event.kind == Kind::object || event.kind == Kind::array) open.push_back(&value);
    return {};
  }));
  return root;
}

}  // namespace metal_marlin
