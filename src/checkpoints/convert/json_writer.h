// Writes JSON as text from beginning to end. (A tree of nlohmann::json is no alternative: its
// destructor allocates memory, and ends the program if there is none.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metal_marlin {

/// `text` must be UTF-8.
void append_json_string(std::string_view text, std::string& out);

/// Indents by two spaces. The caller must keep the grammar.
class JsonWriter {
 public:
  JsonWriter& begin(char bracket);  ///< '{' or '['
  JsonWriter& end(char bracket);    ///< '}' or ']'
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);
  JsonWriter& number(std::string_view digits) { return literal(digits); }
  JsonWriter& boolean(bool value) { return literal(value ? "true" : "false"); }
  JsonWriter& null() { return literal("null"); }
  const std::string& text() const { return text_; }

 private:
  JsonWriter& literal(std::string_view text);
  void separate();
  void new_line() { text_.append("\n").append(2 * counts_.size(), ' '); }

  std::string text_;
  std::vector<size_t>
      counts_;  // of values (in objects: keys) so far in the objects and arrays around
  bool after_key_ = false;
};

}  // namespace metal_marlin
