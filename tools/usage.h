// What a misspelled command line is told.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace metal_marlin::tools {

/// Throws a Failure that suggests a command if the first word of the command line is none.
void check_command(const CLI::App& app, const std::vector<std::string>& arguments);

/// What is wrong with a command line, and the --help that tells more. Suggests an option if one is
/// misspelled.
std::string usage_error(const CLI::App* app, const CLI::Error& error);

}  // namespace metal_marlin::tools
