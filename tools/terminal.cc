#include "terminal.h"

#include <cstdlib>
#include <cstring>

#include "platform.h"

namespace metal_marlin::tools {
namespace {

Color chosen = Color::automatic;

bool shows_colors(std::FILE* to) {
  if (chosen != Color::automatic) return chosen == Color::always;
  const char *none = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  if (none != nullptr && *none != '\0') return false;
  return term != nullptr && std::strcmp(term, "dumb") != 0 && is_terminal(to);
}

}  // namespace

std::optional<Color> parse_color(std::string_view name) {
  if (name == "auto") return Color::automatic;
  if (name == "always") return Color::always;
  return name == "never" ? std::optional(Color::never) : std::nullopt;
}

void set_color(Color color) { chosen = color; }

std::string red(const std::string& text, std::FILE* to) {
  if (!shows_colors(to)) return text;
  const bool line = text.ends_with('\n');
  return "\033[31m" + text.substr(0, text.size() - (line ? 1 : 0)) + "\033[0m" + (line ? "\n" : "");
}

size_t terminal_width(std::FILE* to) {
  if (!is_terminal(to)) return 0;
  const size_t columns = terminal_columns(to);
  return columns != 0 ? columns : 80;
}

}  // namespace metal_marlin::tools
