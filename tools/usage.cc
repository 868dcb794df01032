#include "usage.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "command.h"
#include "printable.h"
#include "words.h"

namespace metal_marlin::tools {
namespace {

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

void check_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  // Options of all commands may stand before the command, with their value.
  const auto is_value = [&](size_t i) {
    return i > 0 && (arguments[i - 1] == "--color" || arguments[i - 1] == "--read-as");
  };
  const std::vector<std::string> commands = commands_of(app);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with('-') || is_value(i)) continue;
    if (std::count(commands.begin(), commands.end(), arguments[i]) != 0) return;
    const std::string meant = arguments[i] == "help" ? "--help" : most_like(arguments[i], commands);
    throw Failure(fmt::format("there is no command '{}'{} The commands are {}", arguments[i],
                              meant.empty() ? "." : fmt::format("; did you mean '{}'?", meant),
                              fmt::join(commands, ", ")),
                  ExitCode::usage);
  }
}

}  // namespace metal_marlin::tools
