// Makes text for people from names and paths of arbitrary bytes. The text cannot control a terminal
// or forge a line.
#pragma once

#include <cstddef>

namespace metal_marlin {

/// Copies `text` into `out`, which has room for `size` > 0 bytes including the NUL. A text that
/// does not fit is cut after a whole character. The copy is UTF-8. Invalid bytes and control
/// characters below U+0020 become escapes like \x1b. Other control characters, and characters that
/// reverse or break lines of text (U+202E and the like), become escapes like \u202e.
void copy_printable(const char* text, char* out, size_t size) noexcept;

}  // namespace metal_marlin
