// Text for people from names and paths that may be any bytes: nothing in it can steer a terminal or
// forge a line.
#pragma once

#include <cstddef>

namespace metal_marlin {

/// Copies `text` into `out`, which has room for `size` > 0 bytes with the NUL; what does not fit is
/// cut behind a whole character. The copy is UTF-8. Bytes that are none and control characters
/// below U+0020 become \x1b; other controls and the characters that turn or break lines of text
/// (U+202E and its like) become \u202e.
void copy_printable(const char* text, char* out, size_t size) noexcept;

}  // namespace metal_marlin
