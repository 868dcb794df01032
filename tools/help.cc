#include "help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>

#include "command.h"
#include "words.h"

namespace metal_marlin::tools {
namespace {

/// A flag that excludes more others than this stands alone.
constexpr size_t kFewExcludes = 5;
constexpr size_t kNameColumns = 30, kTextColumns = 86;

bool is_flag(const CLI::Option* option) { return option->get_items_expected_max() == 0; }
/// Its own text says what it goes with.
bool stands_alone(const CLI::Option* option) {
  return is_flag(option) && option->get_excludes().size() > kFewExcludes;
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) {
    if (!stands_alone(option)) names.push_back(option->get_name());
  }
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The text in lines of at most `columns`, broken between words.
std::string wrapped(const std::string& text, size_t columns) {
  std::string out;
  size_t begin = 0;
  while (text.size() - begin > columns) {
    size_t end = text.rfind(' ', begin + columns);
    if (end == std::string::npos || end <= begin) end = text.find(' ', begin);
    if (end == std::string::npos) break;
    out += text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out + text.substr(begin);
}

class HelpFormatter final : public CLI::Formatter {
 public:
  /// A flag's name without its value, as "{false}".
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    static const std::regex value(R"(\{[^}]*\})");
    return std::regex_replace(CLI::Formatter::make_option_name(option, positional), value, "");
  }

  /// The values that an option takes: words, FILE or N.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (is_flag(option) || option->get_positional()) return "";
    static const std::regex braces(R"(\{(.*)\})"), comma(", *");
    const std::string type = option->get_type_name();
    const bool is_list = option->get_delimiter() != '\0';
    std::smatch found;
    std::string value = "N";
    if (std::regex_search(type, found, braces))
      value = std::regex_replace(found[1].str(), comma, "|");
    else if (type == "TEXT" || type == "FILE")
      value = type == "TEXT" ? "NAME" : type;
    return " " + value + (is_list ? ",..." : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    std::string initial = option->get_default_str();
    initial.erase(std::remove_if(initial.begin(), initial.end(),
                                 [](char c) { return c == '[' || c == ']' || c == '"'; }),
                  initial.end());
    const bool is_told = text.find("efault") != std::string::npos;
    if (!initial.empty() && !is_told && !is_flag(option)) text += "; default: " + initial;
    if (option->get_required() && !option->get_positional()) text += "; required";
    if (const std::string needs = names_of(option->get_needs()); !needs.empty())
      text += "; only with " + needs;
    if (stands_alone(option)) return wrapped(text, kTextColumns);
    if (const std::string others = names_of(option->get_excludes()); !others.empty())
      text += "; not with " + others;
    return wrapped(text, kTextColumns);
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kNameColumns);
  return formatter;
}

void check_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const auto is_value = [&](size_t i) { return i > 0 && arguments[i - 1] == "--color"; };
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with('-') || is_value(i)) continue;
    if (std::count(commands.begin(), commands.end(), arguments[i]) != 0) return;
    const std::string meant = most_like(arguments[i], commands);
    throw Failure(fmt::format("there is no command '{}'{} The commands are {}", arguments[i],
                              meant.empty() ? "." : fmt::format("; did you mean '{}'?", meant),
                              fmt::join(commands, ", ")),
                  ExitCode::usage);
  }
}

}  // namespace metal_marlin::tools
