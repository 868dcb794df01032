// JSON from files that nobody vouches for: bounded in size and depth, no key twice, errors as values with a byte offset.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

struct JsonText {
  std::string_view text;
  std::string_view file;     ///< for messages
  uint64_t file_offset = 0;  ///< of text in the file, for messages
  size_t max_bytes = 0;
  int max_depth = 16;
};

/// One step of a walk through a text, in the text's order.
struct JsonEvent {
  enum class Kind { object, end_object, array, end_array, key, string, integer, negative, real, boolean, null };
  Kind kind = Kind::null;
  std::string_view text;  ///< of key, string, negative and real (its digits), valid during the call
  uint64_t integer = 0;   ///< of integer (>= 0); boolean: 0 or 1
  double number = 0;      ///< of integer, negative and real
  int depth = 0;          ///< objects and arrays around it; the begin and end of one count themselves
  uint64_t offset = 0;    ///< where in the file it ends
};

/// Calls visit for every event until it returns an error. MARLIN_E_FORMAT for a text that is too long, too deep, malformed or
/// names a key of one object twice.
Status walk_json(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit);

struct JsonMember;

/// A text as a tree; for small files.
struct JsonValue {
  JsonEvent::Kind kind = JsonEvent::Kind::null;
  std::string text;
  double number = 0;
  bool boolean = false;
  std::vector<JsonMember> members;  ///< of an object, in the text's order
  std::vector<JsonValue> items;     ///< of an array
  /// The member, or null when there is none or this is no object.
  const JsonValue* find(std::string_view key) const;
  bool is_object() const { return kind == JsonEvent::Kind::object; }
};
struct JsonMember {
  std::string key;
  JsonValue value;
};
Result<JsonValue> parse_json(const JsonText& json);

}  // namespace metal_marlin
