// completions: prints a script for a shell that completes this command line. The script is made
// from the definitions of the options.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <regex>

#include "command.h"
#include "quantize_options.h"

namespace metal_marlin::tools {
namespace completions_command {
namespace {

constexpr auto kAll = [](const auto*) { return true; };

/// The values that the help shows in braces; none if any value is allowed.
std::vector<std::string> values_of(const CLI::Option& option) {
  static const std::regex braces(R"(\{(.*)\})"), value(R"([^, ]+)");
  const std::string type = option.get_type_name();
  std::smatch found;
  if (!std::regex_search(type, found, braces)) return {};
  const std::string list = found[1];
  return {std::sregex_token_iterator(list.begin(), list.end(), value), {}};
}
bool is_path(const CLI::Option& option) {
  return values_of(option).empty() && (option.get_positional() || option.get_type_name() == kFile);
}
bool is_flag(const CLI::Option& option) { return option.get_items_expected_max() == 0; }
/// Whether the option takes values with commas between them.
bool is_list(const CLI::Option& option) { return option.get_delimiter() != '\0'; }

/// "-o", "--output"; empty for a positional option.
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

/// The text in single quotes. Around a single quote of the text, the quotes end and begin again,
/// which works in all three shells.
std::string quoted(const std::string& text) {
  return "'" + std::regex_replace(text, std::regex("'"), R"('\'')") + "'";
}

/// `text` with a backslash before each of `special`.
std::string escaped(const std::string& text, const char* special) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(special).find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// --- bash
// ------------------------------------------------------------------------------------------------------------------

constexpr const char* kBashHead = R"(_metal_marlin() {
  local IFS=$' \n' current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= words= files= before=
  if [[ $current == = ]]; then # bash takes --name=value apart
    current=
  elif [[ $previous == = ]]; then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  ((COMP_CWORD == 1)) || command=${COMP_WORDS[1]}
  case "$command $previous" in
)";
constexpr const char* kBashTail = R"(  esac
  if [[ $files && $current != -* ]]; then
    compopt -o filenames 2>/dev/null # which the bash of macOS does not have
    IFS=$'\n'
    COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -P "$before" -W "$words" -- "${current#"$before"}"))
  fi
}
complete -F _metal_marlin metal-marlin
)";

/// The words that may follow each option with a value, and the words that may follow anything else.
std::string bash_cases(const CLI::App& command) {
  std::string cases, files, words;
  for (const CLI::Option* option : command.get_options(kAll)) {
    const auto names = spellings(*option), values = values_of(*option);
    if (names.empty() && is_path(*option)) files = " files=yes";
    for (const std::string& word : names.empty() ? values : names) words += word + " ";
    if (names.empty() || is_flag(*option)) continue;
    for (const std::string& name : names) {
      cases += fmt::format("    '{} {}')", command.get_name(), name);
      if (is_list(*option)) cases += R"( before=${current%"${current##*,}"})";
      if (is_path(*option)) cases += " files=yes";
      cases += fmt::format(" words='{}' ;;\n", fmt::join(values, " "));
    }
  }
  return cases + fmt::format("    '{} '*){} words='{}' ;;\n", command.get_name(), files, words);
}

std::string bash(const CLI::App& app) {
  std::string script = kBashHead, words = "--help --version";
  for (const CLI::App* command : app.get_subcommands(kAll)) {
    script += bash_cases(*command);
    words += " " + command->get_name();
  }
  return script + fmt::format("    *) words='{}' ;;\n", words) + kBashTail;
}

// --- zsh
// -------------------------------------------------------------------------------------------------------------------

constexpr const char* kZshHead = R"(#compdef metal-marlin
local curcontext=$curcontext state line
)";

/// The value of an option, or a positional argument, in the syntax of _arguments: ":value:(auto
/// cpu)".
std::string zsh_value(const CLI::Option& option) {
  if (is_flag(option)) return "";
  if (is_path(option)) return ":file:_files";
  const std::string values = escaped(fmt::format("{}", fmt::join(values_of(option), " ")), ":");
  return is_list(option) && !values.empty() ? ":value:_values -s , value " + values
                                            : ":value:(" + values + ")";
}

/// The call that completes all arguments of a command.
std::string zsh_arguments(const CLI::App& command) {
  std::string call = "_arguments -C";
  for (const CLI::Option* option : command.get_options(kAll)) {
    const std::string often = option->get_expected_max() > 1 ? "*" : "", value = zsh_value(*option);
    const std::string description = "[" + escaped(option->get_description(), "[]\\") + "]";
    for (const std::string& name : spellings(*option)) {
      const char* const separator = value.empty() || name[1] != '-' ? "" : "=";
      call += " \\\n  ";
      call += quoted(fmt::format("{}{}{}{}{}", often, name, separator, description, value));
    }
    if (option->get_positional()) call += " \\\n  " + quoted(value);
  }
  return call;
}

std::string zsh(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : app.get_subcommands(kAll)) {
    commands += "  " + quoted(command->get_name() + ":" + command->get_description()) + "\n";
    cases += "argument-" + command->get_name() + ") " + zsh_arguments(*command) + " ;;\n";
  }
  return kZshHead + zsh_arguments(app) +
         " \\\n  ':command:->command' '*::argument:->argument' && return\n" +
         "local -a commands=(\n" + commands +
         ")\ncase $state-$line[1] in\ncommand-*) _describe command commands ;;\n" + cases +
         "esac\n";
}

// --- fish
// ------------------------------------------------------------------------------------------------------------------

std::string fish_value(const CLI::Option& option) {
  if (is_flag(option)) return "";
  if (is_path(option)) return " -r -F";
  const std::string values = fmt::format("{}", fmt::join(values_of(option), " "));
  return " -x -a " +
         quoted(is_list(option) && !values.empty() ? "(__fish_append , " + values + ")" : values);
}

std::string fish_options(const CLI::App& command, const std::string& condition) {
  std::string lines;
  for (const CLI::Option* option : command.get_options(kAll)) {
    lines += "complete -c metal-marlin -n " + quoted(condition);
    for (const std::string& name : option->get_snames()) lines += " -s " + name;
    for (const std::string& name : option->get_lnames()) lines += " -l " + name;
    lines += fish_value(*option) + " -d " + quoted(option->get_description()) + "\n";
  }
  return lines;
}

std::string fish(const CLI::App& app) {
  const std::string first = "__fish_use_subcommand";
  std::string script = "complete -c metal-marlin -f\n" + fish_options(app, first);
  for (const CLI::App* command : app.get_subcommands(kAll)) {
    script += fmt::format("complete -c metal-marlin -n {} -a {} -d {}\n", first,
                          command->get_name(), quoted(command->get_description()));
    script += fish_options(*command, "__fish_seen_subcommand_from " + command->get_name());
  }
  return script;
}

}  // namespace
}  // namespace completions_command

void add_completions(CLI::App& app, Action& action) {
  using namespace completions_command;
  auto* sub =
      app.add_subcommand("completions", "Print what a shell needs to complete these command lines");
  auto shell = std::make_shared<std::string>();
  sub->add_option("SHELL", *shell, "Whose script")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  sub->footer(
      "An installed prefix has the scripts where shells look for them. Without one:\n\n"
      "  metal-marlin completions bash >>~/.bashrc\n"
      "  metal-marlin completions zsh >DIR/_metal-marlin   # DIR: a folder of $fpath\n"
      "  metal-marlin completions fish >~/.config/fish/completions/metal-marlin.fish");
  sub->callback([&app, &action, shell] {
    action = [&app, shell] {
      fmt::print("{}", *shell == "bash" ? bash(app) : *shell == "zsh" ? zsh(app) : fish(app));
      return ExitCode::ok;
    };
  });
}

}  // namespace metal_marlin::tools
