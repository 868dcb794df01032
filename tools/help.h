// How --help shows options, and what a misspelled command is told.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Error;
class FormatterBase;
}  // namespace CLI

namespace metal_marlin::tools {

/// Shows values as words ("default|int8"), defaults and exclusions as sentences behind the text.
std::shared_ptr<CLI::FormatterBase> help_formatter();

/// Throws a Failure that suggests a command if the first word of the command line is none.
void check_command(const CLI::App& app, const std::vector<std::string>& arguments);

/// What is wrong with a command line, and the --help that tells more. Suggests an option if one is
/// misspelled.
std::string usage_error(const CLI::App* app, const CLI::Error& error);

}  // namespace metal_marlin::tools
