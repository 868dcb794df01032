#include "printable.h"

#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace metal_marlin::tools {
namespace {

std::string escaped(std::string_view text, bool keep_newlines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const PrintableCharacter c = first_printable(text);
    const bool kept = c.escape[0] == '\0' || (keep_newlines && text[0] == '\n');
    out += kept ? text.substr(0, c.taken) : std::string_view(c.escape);
    text.remove_prefix(c.taken);
  }
  return out;
}

}  // namespace

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
