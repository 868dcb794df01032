// What a stream shows: colors, and how many columns.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace metal_marlin::tools {

enum class Color { automatic, always, never };
std::optional<Color> parse_color(std::string_view name);
/// The choice of --color. automatic: on terminals, unless NO_COLOR is set (no-color.org) or TERM is
/// "dumb".
void set_color(Color color);
/// The text in red if the stream shows colors. The text must end its own line, or none.
std::string red(const std::string& text, std::FILE* to);
/// The columns of a terminal; 0: the stream is none, so that lines may have any length.
size_t terminal_width(std::FILE* to);

}  // namespace metal_marlin::tools
