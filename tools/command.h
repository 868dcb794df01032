// The common parts of the subcommands: how they are declared, how they end, how they fail.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

// <CLI/CLI.hpp> takes seconds to compile, so only files that declare options include it.
namespace CLI {
class App;
}

namespace metal_marlin::tools {

/// The documented exit codes; docs/command.md and metal-marlin.1 list them.
enum class ExitCode : int {
  ok = 0,
  wrong = 1,   ///< the command did its work and found an error: a check failed, a layer would not
               ///< load
  usage = 2,   ///< the command line is wrong
  failed = 3,  ///< the work could not be done: missing or malformed file, no memory, no device
};

/// Ends the command with a message for people. Only code in tools throws it; main() prints it.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, ExitCode code = ExitCode::failed)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// The function that main() runs after the command line is parsed. The callback of each subcommand
/// sets it.
using Action = std::function<ExitCode()>;

// Each subcommand has its own file.
void add_doctor(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_unpack(CLI::App& app, Action& action);
void add_pack(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_quickstart(CLI::App& app, Action& action);

}  // namespace metal_marlin::tools
