// Reads JSON from untrusted files. Size and depth are bounded, a reader sees each key of an object
// once, and errors are values with a byte offset. There is no tree of values, because a tree would
// take fifty times the bytes of a hostile text. Readers walk through the text and take what they
// need.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace metal_marlin {

struct JsonText {
  std::string_view text;
  std::string_view file;     ///< for messages
  uint64_t file_offset = 0;  ///< of text in the file, for messages
  uint32_t max_bytes = 0;
  int max_depth = 16;
  /// Accept what Python's json module writes and reads: NaN, Infinity, numbers beyond float64, and
  /// objects that repeat a key, whose last value counts.
  bool as_python = false;
  /// Texts of values above 256 KiB have events without text; otherwise they are errors.
  bool leaves_out_long_texts = false;
};

/// One step of a walk through a text, in the text's order.
struct JsonEvent {
  enum class Kind {
    object,
    end_object,
    array,
    end_array,
    key,
    string,
    integer,
    negative,
    real,
    boolean,
    null
  };
  Kind kind = Kind::null;
  std::string_view text;  ///< of key, string, negative and real (its digits), valid during the call
  uint64_t integer = 0;   ///< of integer (>= 0); boolean: 0 or 1
  double number = 0;      ///< of integer, negative and real
  int depth = 0;        ///< objects and arrays around it; the begin and end of one count themselves
  uint64_t offset = 0;  ///< where in the file it ends
  uint32_t begin = 0;   ///< of key and string: the byte of JsonText::text after its first quote
  bool is_left_out = false;  ///< a string, whose text is too long
};

/// Calls `visit` for every event until it returns an error. A text that is too long, too deep or
/// malformed is MARLIN_E_FORMAT, and so is an object that repeats a key, unless `as_python`: then a
/// member whose key comes again later in its object has no events.
Status walk_json(const JsonText& json, const std::function<Status(const JsonEvent&)>& visit);

/// The keys and strings of a text that walk_json has seen, each identified by its JsonEvent::begin.
/// A list of names therefore costs four bytes per name, however long the names are.
class JsonStrings {
 public:
  explicit JsonStrings(std::string_view text) : text_(text) {}
  /// The decoded text, cut after `most` bytes.
  std::string get(uint32_t begin, size_t most = SIZE_MAX) const;
  /// Compares by bytes: below, equal to or above 0. Reads no further than the first difference.
  int compare(uint32_t a, uint32_t b) const;
  int compare(uint32_t a, std::string_view b) const;
  /// Sorts by bytes, and equal texts by their place.
  void sort(std::span<uint32_t> begins) const;

 private:
  std::string_view text_;
};

}  // namespace metal_marlin
