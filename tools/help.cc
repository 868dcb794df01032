#include "help.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <regex>
#include <sstream>
#include <string_view>

#include "command.h"
#include "printable.h"
#include "terminal.h"
#include "words.h"

namespace metal_marlin::tools {
namespace {

/// A flag that excludes more others than this stands alone.
constexpr size_t kFewExcludes = 5;
constexpr size_t kNameColumns = 30, kTextColumns = 86;

/// The columns of a line of text that begins at this column: those that the terminal has.
size_t columns_from(size_t column, size_t most) {
  const size_t terminal = terminal_width(stdout);
  return terminal == 0 ? most : std::min(most, std::max(terminal, column + 31) - column - 1);
}

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

/// Values with "|" between them, in lines that fit.
std::string broken(const std::string& values) {
  constexpr std::string_view indent = "      ";
  const size_t columns = columns_from(indent.size() + sizeof "  --format", values.size());
  std::string out;
  size_t begin = 0;
  while (values.size() - begin > columns) {
    const size_t end = values.rfind('|', begin + columns);
    if (end == std::string::npos || end <= begin) break;
    out.append(values, begin, end - begin).append("|\n").append(indent);
    begin = end + 1;
  }
  return out.append(values, begin);
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
    return " " + broken(value) + (is_list ? ",..." : "");
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
    const size_t columns = columns_from(kNameColumns, kTextColumns);
    if (stands_alone(option)) return wrapped(text, columns);
    if (const std::string others = names_of(option->get_excludes()); !others.empty())
      text += "; not with " + others;
    return wrapped(text, columns);
  }

  std::string make_description(const CLI::App* app) const override {
    const std::string text = CLI::Formatter::make_description(app);
    return wrapped(text, columns_from(0, text.size()));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(
        out, command->get_name(),
        wrapped(command->get_description(), columns_from(kNameColumns, kTextColumns)),
        get_column_width());
    return out.str();
  }

  /// Sentences are wrapped; lines with an indent are commands.
  std::string make_footer(const CLI::App* app) const override {
    std::string out;
    std::istringstream lines(app->get_footer());
    for (std::string line; std::getline(lines, line);)
      out += (line.starts_with(' ') ? line : wrapped(line, columns_from(0, line.size()))) + "\n";
    return out;
  }
};

/// Of an option that neither the command nor the app has; "" if all that is left over are words.
/// What the command does not take is the app's, because --color may stand behind the command.
std::string unknown_option(const CLI::App& app, const CLI::App& command) {
  for (const std::string& word : app.remaining(true)) {
    const std::string name = word.substr(0, word.find('='));
    if (name.size() < 2 || name[0] != '-') continue;
    std::vector<std::string> options;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& each : option->get_lnames()) options.push_back("--" + each);
    }
    const std::string meant = most_like(name, options);
    return fmt::format("there is no option '{}'{}", name,
                       meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
  }
  return "";
}

/// The names of the commands, in their order.
std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  return commands;
}

}  // namespace

std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  const auto chosen = app->get_subcommands();
  const CLI::App& command = chosen.empty() ? *app : *chosen.front();
  std::string text = unknown_option(*app, command);
  if (text.empty() && chosen.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    text = fmt::format("expected a command, found none. The commands are {}",
                       fmt::join(commands_of(*app), ", "));
  if (text.empty()) text = error.what();
  const std::string name = chosen.empty() ? "metal-marlin" : "metal-marlin " + command.get_name();
  return fmt::format("metal-marlin: {}\nTry '{} --help'.\n", printable(text), name);
}

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(kNameColumns);
  return formatter;
}

void check_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  // Options of all commands may stand before the command, with their value.
  const auto is_value = [&](size_t i) {
    return i > 0 && (arguments[i - 1] == "--color" || arguments[i - 1] == "--read-as");
  };
  const std::vector<std::string> commands = commands_of(app);
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
