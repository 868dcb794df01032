#include "printable.h"

#include "base/printable.h"

namespace metal_marlin::tools {

std::string printable(std::string_view text, bool keep_newlines) {
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

}  // namespace metal_marlin::tools
