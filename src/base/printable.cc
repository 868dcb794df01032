#include "base/printable.h"

#include <cstring>

namespace metal_marlin {

void copy_printable(const char* text, char* out, size_t size) noexcept {
  for (std::string_view left = text; !left.empty();) {
    const PrintableCharacter c = first_printable(left);
    const std::string_view shown =
        c.escape[0] != '\0' ? std::string_view(c.escape) : left.substr(0, c.taken);
    if (shown.size() >= size) break;
    std::memcpy(out, shown.data(), shown.size());
    out += shown.size();
    size -= shown.size();
    left.remove_prefix(c.taken);
  }
  *out = '\0';
}

}  // namespace metal_marlin
